"""Model cards: in model folders and exports, and when other versions wrote them."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json

import toy
from trainers import export_average, export_checkpoint

from tt.model.dataset.manifest import DatasetManifest
from tt.model.formats.exports import (
    VOCABULARY_FOLDER,
    copy_model,
    export_ctranslate2,
    export_saved_model,
)
from tt.model.formats.foreign import ABOUT_FILE
from tt.model.formats.model_card import About, TrainingData
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
