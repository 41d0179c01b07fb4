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


def model(preset="base", **fields):
    return TransformerConfig.from_preset(preset, **{**SIZES, **fields})


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
    ("kind", "fields", "message"),
    [
        (model, {"preset": "huge"}, "`preset` must be one of tiny, .* Received: huge"),
        (model, {"d_model": 100}, "multiple of twice `heads`. Received: 100 and 8"),
        (model, {"layers": 0}, "`layers` must be at least 1. Received: 0"),
        (model, {"decoder_layers": 0}, "`decoder_layers` must be at least 1. Received: 0"),
        (model, {"dropout": 0.99}, "`dropout` must be 0 to 0.9"),
        (model, {"position_base": 1.0}, "`position_base` must be greater"),
        (model, {"target_vocabulary_size": 88}, "same size for source and target. .* 80 and 88"),
        (model, {"norm": "both"}, "`norm` must be one of post, pre"),
        (TrainingConfig, {"seed": -1}, "`seed` must be 0 to 4,294,967,295. Received: -1"),
        (TrainingConfig, {"steps": 0}, "`steps` must be at least 1"),
        (TrainingConfig, {"steps": 2**40}, "`steps` must be at most 2,147,483,647"),
        (TrainingConfig, {"peak_learning_rate": 0.0}, "`peak_learning_rate` must be positive"),
        (TrainingConfig, {"schedule": "cosine"}, "one of inverse-sqrt, constant. Received: cos"),
        (TrainingConfig, {"compute_type": "float16"}, "float32, mixed_bfloat16. Received: f"),
        (TrainingConfig, {"average": "all"}, "`average` must be one of none, last, best"),
        (TrainingConfig, {"best_metric": "ter"}, "perplexity, bleu, chrf. Received: ter"),
        (TrainingConfig, {"clip_norm": 0.0}, "`clip_norm` must be positive. Received: 0.0"),
        (TrainingConfig, {"patience": 0}, "`patience` must be at least 1. Received: 0"),
        (TrainingConfig, {"effective_batch_size": -1}, "`effective_batch_size` must be at least 1"),
        (TrainingConfig, {"score_every": 750}, "multiple of `validate_every`. Received: 750 and"),
        (TrainingConfig, {"best_metric": "bleu", "score_every": 0}, "if `score_every` is 0. Rec"),
        (TrainingConfig, {"label_smoothing": 1.0}, "must be at least 0 and below 1"),
        (Decoding, {"beam_size": 0}, "`beam_size` must be at least 1"),
        (Decoding, {"length_penalty": -1.0}, "`length_penalty` must be 0 to 10. Received: -1.0"),
        (Decoding, {"patience": 0.5}, "`patience` must be 1 to 100. Received: 0.5"),
        (Decoding, {"max_length_ratio": math.inf}, "`max_length_ratio` must be finite"),
        (Decoding, {"beam_size": 2, "n_best": 3}, "`n_best` must be at most `beam_size`, 2"),
        (Decoding, {"no_repeat_ngram_size": -1}, "`no_repeat_ngram_size` must be 0 .off. or"),
        (Decoding, {"max_length_ratio": 0, "max_extra_tokens": 0}, "must not both be 0"),
        (Decoding, {"max_decoding_length": 0}, "`max_decoding_length` must be at least 1"),
        (Engine, {"name": "tensorflow", "compute_type": "int8"}, "must be one of float32, bfloat"),
    ],
)
def test_invalid_values_are_refused(kind, fields, message):
    with pytest.raises(UserError, match=message):
        kind(**fields)


def test_validations_that_compute_scores():
    every = TrainingConfig(steps=100, validate_every=10)
    some = TrainingConfig(steps=95, validate_every=10, score_every=30)
    never = TrainingConfig(steps=100, validate_every=10, score_every=0)
    at = [10, 20, 30, 60, 95]
    assert [every.scores_at(step) for step in at] == [True, True, True, True, False]
    assert [some.scores_at(step) for step in at] == [False, False, True, True, True]
    assert not any(never.scores_at(step) for step in [*at, 100])
