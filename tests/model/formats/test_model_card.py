"""Model cards: in model folders and exports, and when other versions wrote them."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json

import numpy as np
import pytest
import toy
from hypothesis import given
from hypothesis import strategies as st
from trainers import export_average, export_checkpoint

from tt.model.dataset.manifest import DatasetManifest, ratio_of_place, ratio_places
from tt.model.formats.exports import (
    VOCABULARY_FOLDER,
    copy_model,
    export_ctranslate2,
    export_saved_model,
)
from tt.model.formats.foreign import ABOUT_FILE
from tt.model.formats.model_card import About, TrainingData, ratio_quantiles
from tt.model.formats.model_folder import load_about, load_config
from tt.model.json_files import parse_fields
from tt.model.training.options import TrainingConfig
from tt.model.transformer.search_options import Decoding


def test_trained_model_has_a_model_card(trained_toy):
    about = load_about(trained_toy.run)
    manifest = DatasetManifest.load(trained_toy.dataset)
    assert about.data == TrainingData(
        corpora=["toy"], fingerprint="toy", pairs=2000,
        source_lengths=manifest.splits["train"].source_lengths,
        target_lengths=manifest.splits["train"].target_lengths,
    )  # fmt: skip
    assert (about.steps, about.checkpoints) == (500, [])
    assert (about.recipe["warmup_steps"], about.recipe["replicas"]) == (60, 1)
    assert {"replicas", *about.recipe} == {
        "replicas", *(field.name for field in dataclasses.fields(TrainingConfig))
    }  # fmt: skip
    assert about.versions == {
        name: importlib.metadata.version(name)
        for name in ("tt-translate", "tensorflow", "keras", "sentencepiece")
    }
    assert load_config(trained_toy.run / "model") == toy.toy_config()


def test_averages_and_exports_keep_the_model_card(trained_toy, tmp_path):
    about = load_about(trained_toy.run)
    names = export_average(str(trained_toy.run), tmp_path / "mean")
    assert load_about(tmp_path / "mean") == dataclasses.replace(about, checkpoints=names)
    export_checkpoint(str(trained_toy.run), tmp_path / "best", name="best")
    assert load_about(tmp_path / "best").checkpoints == ["best-500"]
    copy_model(trained_toy.run, tmp_path / "copy")
    export_ctranslate2(trained_toy.run, tmp_path / "ct2")
    assert load_about(tmp_path / "copy") == load_about(tmp_path / "ct2") == about
    export_saved_model(trained_toy.run, tmp_path / "saved", decoding=Decoding(beam_size=1))
    path = tmp_path / "saved" / VOCABULARY_FOLDER / ABOUT_FILE
    assert parse_fields(About, json.loads(path.read_text())["about"]) == about


def test_corpora_are_listed_once_without_held_out_corpora(trained_toy):
    manifest = dataclasses.replace(
        DatasetManifest.load(trained_toy.dataset),
        source_language="de",
        sources=[
            {"name": "web", "is_held_out": False},
            {"name": "web", "is_held_out": False},
            {"name": "news", "is_held_out": False},
            {"name": "test", "is_held_out": True},
        ],
    )
    data = TrainingData.of(manifest)
    assert (data.source_language, data.corpora) == ("de", ["web", "news"])


def test_unknown_fields_of_later_versions_are_ignored():
    data = {"source_language": "de", "colour": "blue"}
    about = parse_fields(About, {"data": data, "steps": 5, "mood": "fine"})
    assert about == About(data=TrainingData(source_language="de"), steps=5)
    scored = About(token_scores={"0.1%": -2.5})
    assert parse_fields(About, dataclasses.asdict(scored)) == scored


@given(st.lists(st.tuples(st.integers(3, 300), st.integers(3, 300)), min_size=1, max_size=50))
def test_ratio_quantiles_are_exact_up_to_the_width_of_a_bin(pairs):
    source, target = np.array(pairs).T
    places = ratio_places(source, target)
    counts = np.bincount(places).tolist()
    ratios = np.clip((target - 2) / (source - 2), 2.0**-5, 2.0**5)
    assert all(
        abs(np.log2(ratio_of_place(place) / ratio)) <= 1 / 16 + 1e-9
        for place, ratio in zip(places.tolist(), ratios.tolist(), strict=True)
    )
    exact = np.quantile(ratios, [0.1, 0.5, 0.99], method="inverted_cdf")
    found = [ratio_quantiles(counts)[name] for name in ("10%", "50%", "99%")]
    np.testing.assert_allclose(np.log2(found), np.log2(exact), atol=1 / 16 + 0.03)


@pytest.mark.parametrize("counts", [[], [0], [0, 0]])
def test_quantiles_without_pairs_are_empty(counts):
    assert ratio_quantiles(counts) == {}


def test_training_data_contains_placeholder_counts_and_patterns(trained_toy):
    manifest = DatasetManifest.load(trained_toy.dataset)
    assert TrainingData.of(manifest).placeholder_pairs == []
    train = dataclasses.replace(manifest.splits["train"], placeholder_pairs=[7, 2])
    counted = dataclasses.replace(manifest, splits={**manifest.splits, "train": train})
    assert TrainingData.of(counted).placeholder_pairs == [7, 2]
    assert TrainingData.of(manifest).protect_regex == []
    options = {**manifest.options, "protect_regex": ["SKU-[0-9]+", "x+"]}
    protecting = dataclasses.replace(manifest, options=options)
    assert TrainingData.of(protecting).protect_regex == ["SKU-[0-9]+", "x+"]


def test_members_of_a_macrolanguage_are_not_other_languages():
    data = TrainingData(source_language="yue", target_language="nb")
    for target in ("nb", "no", "nn"):
        assert not data.describe_other_languages(source_language="zh", target_language=target)
    assert data.describe_other_languages(source_language="zh", target_language="da") == (
        "translates from yue to nb, but the dataset is from zh to da"
    )
