"""Where a run stands: its list of the best validations, and what comes back of it."""

from __future__ import annotations

import json

import pytest

from tt.model.dataset.batches import Position
from tt.model.training.state import TrainingState


def validate(values, *, greater_is_better=False, keep=2):
    """Returns the state after a validation at steps 1, 2, ..., and the place that each took."""
    state = TrainingState()
    places = []
    for value in values:
        state.step += 1
        places.append(state.add_validation(value, greater_is_better=greater_is_better, keep=keep))
        assert state.validated == state.step
    return state, places


def test_the_best_validations_are_kept_in_their_order():
    state, places = validate([5.0, 4.0, 6.0, 4.5, 3.0])
    assert places == [0, 0, None, 1, 0]
    assert state.best == [(3.0, 5), (4.0, 2)]
    assert state.since_best == 0


def test_greater_values_can_be_the_better_ones():
    state, places = validate([5.0, 4.0, 6.0], greater_is_better=True)
    assert places == [0, 1, 0]
    assert state.best == [(6.0, 3), (5.0, 1)]


@pytest.mark.parametrize("greater_is_better", [False, True])
def test_of_equals_the_first_stays_the_best(greater_is_better):
    state, places = validate([5.0, 5.0, 5.0], greater_is_better=greater_is_better)
    assert places == [0, 1, None]
    assert state.best == [(5.0, 1), (5.0, 2)]
    assert state.since_best == 2


def test_a_validation_without_the_metric_is_neither_better_nor_worse():
    state, places = validate([5.0, None, 6.0, None])
    assert places == [0, None, 1, None]
    assert state.since_best == 1


def test_a_state_comes_back_as_it_was():
    state, _ = validate([0.1, 1 / 3])
    state.position = Position(1, 2, 3, 4, 5, 6, 7)
    state.update_start = state.position._replace(batch=1)
    state.meter = {"loss": 0.1 + 0.2, "updates": 3}
    assert TrainingState.from_json(state.to_json()) == state


def test_a_state_of_before_tokens_had_scores_is_read():
    state = TrainingState(step=3, token_scores={"0.1%": -2.5})
    assert TrainingState.from_json(state.to_json()) == state
    values = json.loads(state.to_json())
    del values["token_scores"]
    assert TrainingState.from_json(json.dumps(values)) == TrainingState(step=3)
