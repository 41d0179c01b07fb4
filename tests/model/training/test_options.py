"""Configurations: published presets, and the error message of each rule."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.training.options import TrainingConfig
from tt.model.transformer.config import PRESETS, TransformerConfig
from tt.model.transformer.search_options import Decoding

SIZES = {"source_vocabulary_size": 80, "target_vocabulary_size": 80, "shared_vocabulary": True}


def test_base_and_big_match_table_3():
    base = TransformerConfig.from_preset("base", **SIZES)
    assert (base.layers, base.d_model, base.heads, base.d_ff, base.dropout) == (
        6, 512, 8, 2048, 0.1,
    )  # fmt: skip
    big = TransformerConfig.from_preset("big", **SIZES)
    assert (big.layers, big.d_model, big.heads, big.d_ff, big.dropout) == (6, 1024, 16, 4096, 0.3)


@pytest.mark.parametrize("preset", PRESETS)
def test_configs_survive_json(preset):
    config = TransformerConfig.from_preset(preset, **SIZES)
    assert TransformerConfig(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_fields_override_a_preset():
    config = TransformerConfig.from_preset("tiny", **SIZES, heads=4, dropout=0.3)
    assert (config.layers, config.heads, config.dropout) == (4, 4, 0.3)
    assert TransformerConfig.from_preset("student-tiny", **SIZES, layers=3).depths == (3, 3)
    config = TransformerConfig.from_preset("student-tiny", **SIZES, decoder_layers=1)
    assert config.depths == (6, 1)


def test_equal_architectures_have_equal_configs():
    same = [{"layers": 6, "decoder_layers": 2}, {"encoder_layers": 6, "decoder_layers": 2},
            {"layers": 2, "encoder_layers": 6}]  # fmt: skip
    first, *others = (TransformerConfig(**SIZES, **fields) for fields in same)
    assert others == [first, first]
    assert first != TransformerConfig(**SIZES, layers=6)
    both = TransformerConfig(**SIZES, layers=1, encoder_layers=4, decoder_layers=4)
    assert both == TransformerConfig(**SIZES, layers=4)
    assert dataclasses.replace(first, decoder_layers=6) == TransformerConfig(**SIZES, layers=6)


def test_json_of_a_config_omits_newer_fields_with_defaults():
    before = {"layers", "d_model", "heads", "d_ff", "dropout", "attention_dropout", "norm",
              "tie_embeddings", "position_base", *SIZES}  # fmt: skip
    assert TransformerConfig(**SIZES).to_json().keys() == before
    fields = TransformerConfig.from_preset("student-base", **SIZES).to_json()
    assert fields.keys() == before | {"encoder_layers", "decoder_layers"}
    assert TransformerConfig(**json.loads(json.dumps(fields))).depths == (6, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TransformerConfig.from_preset("huge", **SIZES),
            "`preset` must be one of tiny, .* Received: huge",
        ),
        (
            lambda: TransformerConfig(**SIZES, d_model=100),
            "multiple of twice `heads`. Received: 100 and 8",
        ),
        (lambda: TransformerConfig(**SIZES, layers=0), "`layers` must be at least 1. Received: 0"),
        (
            lambda: TransformerConfig(**SIZES, decoder_layers=0),
            "`decoder_layers` must be at least 1. Received: 0",
        ),
        (lambda: TransformerConfig(**SIZES, dropout=0.99), "`dropout` must be 0 to 0.9"),
        (lambda: TrainingConfig(seed=-1), "`seed` must be 0 to 4,294,967,295. Received: -1"),
        (lambda: TransformerConfig(**SIZES, position_base=1.0), "`position_base` must be greater"),
        (
            lambda: TransformerConfig(**{**SIZES, "target_vocabulary_size": 88}),
            "the same size for source and target. Received: 80 and 88",
        ),
        (lambda: TrainingConfig(steps=0), "`steps` must be at least 1"),
        (lambda: TrainingConfig(peak_learning_rate=0.0), "`peak_learning_rate` must be positive"),
        (lambda: TransformerConfig(**SIZES, norm="both"), "`norm` must be one of post, pre"),
        (lambda: TrainingConfig(schedule="cosine"), "one of inverse-sqrt, constant. Received: cos"),
        (
            lambda: TrainingConfig(compute_type="float16"),
            "float32, mixed_bfloat16. Received: f",
        ),
        (lambda: TrainingConfig(average="all"), "`average` must be one of none, last, best"),
        (
            lambda: TrainingConfig(best_metric="ter"),
            "loss, nll, perplexity, bleu, chrf. Received: ter",
        ),
        (lambda: TrainingConfig(clip_norm=0.0), "`clip_norm` must be positive. Received: 0.0"),
        (lambda: TrainingConfig(patience=0), "`patience` must be at least 1. Received: 0"),
        (
            lambda: TrainingConfig(effective_batch_size=-1),
            "`effective_batch_size` must be at least 1",
        ),
        (
            lambda: TrainingConfig(score_every=750),
            "multiple of `validate_every`. Received: 750 and",
        ),
        (
            lambda: TrainingConfig(best_metric="bleu", score_every=0),
            "must be loss, nll or perplexity if `score_every` is 0. Received: bleu",
        ),
        (
            lambda: TrainingConfig(label_smoothing=1.0),
            r"`label_smoothing` must be at least 0 and below 1",
        ),
        (lambda: Decoding(beam_size=0), "`beam_size` must be at least 1"),
        (lambda: Decoding(length_penalty=-1.0), "`length_penalty` must be 0 to 10. Received: -1.0"),
        (lambda: Decoding(length_penalty=10.1), "`length_penalty` must be 0 to 10. Received: 10.1"),
        (lambda: Decoding(patience=0.5), "`patience` must be 1 to 100. Received: 0.5"),
        (lambda: Decoding(length_penalty=math.nan), "`length_penalty` must be 0 to 10"),
        (lambda: Decoding(max_length_ratio=math.inf), "`max_length_ratio` must be finite"),
        (
            lambda: Decoding(beam_size=2, n_best=3),
            "`n_best` must be at most `beam_size`, 2",
        ),
        (lambda: Decoding(no_repeat_ngram_size=-1), "`no_repeat_ngram_size` must be 0 .off. or"),
        (lambda: Decoding(max_length_ratio=0, max_extra_tokens=0), "must not both be 0"),
        (lambda: Decoding(max_decoding_length=0), "`max_decoding_length` must be at least 1"),
        (lambda: Engine(name="fairseq"), "`engine` must be one of tensorflow, ctranslate2"),
        (
            lambda: Engine(name="tensorflow", compute_type="int8"),
            "tensorflow must be one of float32, bfloat16",
        ),
    ],
)
def test_invalid_values_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_validations_that_compute_scores():
    every = TrainingConfig(steps=100, validate_every=10)
    some = TrainingConfig(steps=95, validate_every=10, score_every=30)
    never = TrainingConfig(steps=100, validate_every=10, score_every=0)
    at = [10, 20, 30, 60, 95]
    assert [every.scores_at(step) for step in at] == [True, True, True, True, False]
    assert [some.scores_at(step) for step in at] == [False, False, True, True, True]
    assert not any(never.scores_at(step) for step in [*at, 100])
