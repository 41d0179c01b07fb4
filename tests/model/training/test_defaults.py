"""Options chosen by the size of a dataset: the table, given options, and warnings."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import write_dataset

from tt.model.training.defaults import (
    EMBEDDED_CORPUS,
    MAX_STEPS,
    choose_options,
    configure,
    option_warnings,
)
from tt.model.training.options import TrainingConfig
from tt.model.transformer.config import PRESETS, preset_fields

TATOEBA = {"tokens": 209_851, "longest": 60}  # Chinese-English
MULTI30K = {"tokens": 465_000, "longest": 60}
IWSLT = {"tokens": 4_000_000, "longest": 60}
WMT = {"tokens": 130_000_000, "longest": 60}


@pytest.mark.parametrize("given_steps", [{"steps": 20}, {"steps": 20, "score_every": 40}])
def test_short_training_is_validated_within_its_steps(given_steps):
    chosen = choose_options(given_steps, **MULTI30K)
    assert chosen["save_every"] == 20
    assert chosen["validate_every"] == 20
    assert "validate_every" not in choose_options({"steps": 20, "validate_every": 50}, **MULTI30K)
    TrainingConfig(**{key: chosen[key] for key in ("validate_every", "save_every")}, **given_steps)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (TATOEBA, ("tiny", 0.25, 2048, 10_000, 1000, 0.0014, 200, 200)),
        (MULTI30K, ("tiny", 0.25, 2048, 16_000, 1000, 0.0014, 200, 200)),
        (IWSLT, ("small", 0.2, 4096, 30_000, 2000, 0.00099, 500, 500)),
        ({**WMT, "tokens": 25_000_000}, ("base", 0.2, 4096, 90_000, 4000, 0.0007, 1000, 500)),
        (WMT, ("base", 0.1, 4096, 100_000, 4000, 0.0007, 1000, 500)),
    ],
    ids=["tatoeba", "multi30k", "iwslt", "a million pairs", "wmt"],
)
def test_all_options_are_chosen_if_none_is_given(size, expected):
    names = ("preset", "dropout", "batch_tokens", "steps", "warmup_steps", "peak_learning_rate",
             "validate_every", "save_every")  # fmt: skip
    assert choose_options({}, **size) == dict(zip(names, expected, strict=True))


def test_given_options_are_kept_and_the_others_fit_them():
    assert "steps" not in choose_options({"steps": 2000}, **WMT)
    assert choose_options({"steps": 2000}, **WMT)["warmup_steps"] == 500
    assert choose_options({"steps": 60}, **WMT)["warmup_steps"] == 15
    assert choose_options({"steps": 3}, **WMT)["warmup_steps"] == 1
    # A given preset determines the dropout, and its width the rate:
    # 512^-0.5 * 4000^-0.5 = 0.000699.
    with_base = choose_options({"preset": "base"}, **TATOEBA)
    assert "dropout" not in with_base
    assert with_base["peak_learning_rate"] == 0.0007
    # If the size would choose the same preset, the size also chooses the dropout.
    assert choose_options({"preset": "tiny"}, **MULTI30K) == {
        name: value for name, value in choose_options({}, **MULTI30K).items() if name != "preset"
    }
    assert choose_options({"d_model": 512}, **TATOEBA)["peak_learning_rate"] == 0.0007
    # Updates with twice as many tokens need half as many updates.
    assert choose_options({}, **MULTI30K)["steps"] == 16_000
    assert choose_options({"batch_tokens": 4096}, **MULTI30K)["steps"] == 8200
    assert choose_options({"effective_batch_size": 4096}, **MULTI30K)["steps"] == 8200
    assert choose_options({"score_every": 300}, **MULTI30K)["validate_every"] == 300
    assert choose_options({"score_every": 400}, **MULTI30K)["validate_every"] == 200
    assert choose_options({"score_every": 0}, **MULTI30K)["validate_every"] == 200
    assert choose_options({}, tokens=9000, longest=2050)["batch_tokens"] == 4096
    assert choose_options({}, tokens=9000, longest=2048)["batch_tokens"] == 2048


@pytest.mark.parametrize("replicas", [2, 3, 8, 64])
@pytest.mark.parametrize("size", [TATOEBA, MULTI30K, IWSLT])
@pytest.mark.parametrize("stated", [{}, {"effective_batch_size": 8192}])
def test_any_number_of_replicas_trains_as_many_epochs_as_one(size, stated, replicas):
    def tokens_trained(replicas):
        chosen = choose_options(stated, **size, replicas=replicas)
        tokens = max(stated.get("effective_batch_size", 0), chosen["batch_tokens"] * replicas)
        assert chosen["warmup_steps"] <= chosen["steps"] / 4
        return chosen["steps"] * tokens

    # Both numbers of updates are rounded to two digits, which changes each by at most 5 %.
    assert tokens_trained(replicas) == pytest.approx(tokens_trained(1), rel=0.1)


def test_updates_of_eight_replicas_on_multi30k():
    # 61.8 epochs of 465,000 tokens / (8 * 2,048 * 0.85) tokens are 2,062 updates.
    assert choose_options({}, **MULTI30K, replicas=8)["steps"] == 2100
    # The updates have 32,768 tokens on any number of replicas.
    same = {"effective_batch_size": 32_768}
    updates = {choose_options(same, **MULTI30K, replicas=n)["steps"] for n in (1, 2, 8, 16)}
    assert updates == {1000}


def test_replicas_share_a_batch_of_the_embedded_corpus(tmp_path):
    manifest = dataclasses.replace(write_dataset(tmp_path, train=60), corpus=EMBEDDED_CORPUS)

    def chosen(replicas, **given):
        training = configure(given, manifest=manifest, replicas=replicas)[1]
        return training.steps, training.batch_tokens

    assert [chosen(n) for n in (1, 2, 8)] == [(770, 2048), (770, 1024), (770, 256)]
    assert chosen(2000) == (770, manifest.splits["train"].longest)
    assert chosen(8, batch_tokens=512) == (770, 512)


@given(
    pairs=st.integers(1, 10**9),
    length=st.integers(2, 300),
    stated=st.fixed_dictionaries(
        {},
        optional={
            "preset": st.sampled_from([None, *PRESETS]),
            "steps": st.integers(1, 10**6),
            "batch_tokens": st.integers(300, 10**5),
            "effective_batch_size": st.integers(300, 10**6),
            "warmup_steps": st.integers(1, 10**5),
            "score_every": st.integers(0, 5000),
        },
    ),
    replicas=st.integers(1, 1000),
)
def test_any_dataset_size_gives_sensible_options(pairs, length, stated, replicas):
    chosen = choose_options(stated, tokens=pairs * length, longest=length, replicas=replicas)
    named = {name for name, value in stated.items() if value is not None}
    assert not chosen.keys() & named
    values = {**chosen, **{name: stated[name] for name in named}}
    preset = preset_fields(values.pop("preset"))
    values.pop("dropout", None)
    training = TrainingConfig(**values)  # checks the values
    assert training.batch_tokens >= length
    if not {"steps", "warmup_steps"} & named:
        assert option_warnings(training, width=preset["d_model"]) == []
        assert training.warmup_steps <= training.steps / 4 or training.steps < 8
        assert 1 <= training.steps <= MAX_STEPS
