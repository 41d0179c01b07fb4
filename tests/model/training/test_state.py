"""The state of a run: the list of the best validations, and saving the state as JSON."""

from __future__ import annotations

import pytest

from tt.model.dataset.batches import Position
from tt.model.training.state import TrainingState


def validate(values, *, greater_is_better=False, keep=2):
    """Return the state after validations at steps 1, 2, ..., and the rank of each validation."""
    state = TrainingState()
    places = []
    for value in values:
        state.step += 1
        places.append(state.add_validation(value, greater_is_better=greater_is_better, keep=keep))
        assert state.validated == state.step
    return state, places


def test_best_validations_are_ranked():
    state, places = validate([5.0, 4.0, 6.0, 4.5, 3.0])
    assert places == [0, 0, None, 1, 0]
    assert state.best == [(3.0, 5), (4.0, 2)]
    assert state.since_best == 0


def test_greater_values_can_be_better():
    state, places = validate([5.0, 4.0, 6.0], greater_is_better=True)
    assert places == [0, 1, 0]
    assert state.best == [(6.0, 3), (5.0, 1)]


@pytest.mark.parametrize("greater_is_better", [False, True])
def test_first_of_equal_validations_stays_the_best(greater_is_better):
    state, places = validate([5.0, 5.0, 5.0], greater_is_better=greater_is_better)
    assert places == [0, 1, None]
    assert state.best == [(5.0, 1), (5.0, 2)]
    assert state.since_best == 2


def test_validation_without_the_metric_is_not_ranked():
    state, places = validate([5.0, None, 6.0, None])
    assert places == [0, None, 1, None]
    assert state.since_best == 1


def test_state_survives_json():
    state, _ = validate([0.1, 1 / 3])
    state.position = Position(1, 2, 3, 4, 5, 6, 7)
    state.update_start = state.position._replace(batch=1)
    state.meter = {"loss": 0.1 + 0.2, "updates": 3}
    assert TrainingState.from_json(state.to_json()) == state
