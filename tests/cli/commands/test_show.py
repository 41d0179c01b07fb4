"""`tt show`: the output for each kind of folder, as tables and as JSON, and its errors."""

from __future__ import annotations

import json
import re
import shutil

import foreign_models
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run
from commands import Child, run_tt
from translation_jobs import translate, write

from tt.model.dataset.manifest import DatasetManifest
from tt.model.folders import lock_folder
from tt.model.formats.foreign import load_tokens, open_foreign
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.run_folder import LOCK_FILE


def shown(capsys, *arguments):
    assert run("show", *arguments) == 0
    return capsys.readouterr().out


def test_a_dataset_fits_two_screens(dataset, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = shown(capsys, dataset)
    assert len(printed.splitlines()) <= 48
    manifest = DatasetManifest.load(dataset)
    assert f"{manifest.lines_read:,} read, {manifest.pairs_kept:,} kept" in printed
    for reason, count in manifest.rejected.items():
        assert re.search(rf"{reason} +{count:,}", printed)
    assert printed.endswith(f"\nShow everything, with examples: tt show {dataset} --all\n")
    whole = shown(capsys, dataset, "--all")
    assert set(printed.splitlines()[:-1]) <= set(whole.splitlines()), "nothing is lost"
    assert shown(capsys, dataset, "--examples", "3") == whole


def test_dataset_is_shown(dataset, capsys):
    printed = shown(capsys, dataset, "--all")
    manifest = DatasetManifest.load(dataset)
    assert f"{manifest.lines_read:,} read, {manifest.pairs_kept:,} kept" in printed
    for heading in (
        "Overview",
        "Rejected pairs",
        "Lengths of train",
        "Vocabulary",
        "Padding in batches",
    ):
        assert heading in printed
    for reason, count in manifest.rejected.items():
        assert f"Rejected: {reason}, {count:,}" in printed
    assert printed.count("round trip") == 12
    assert "decoder ids" in printed
    vocabulary = load_vocabularies(dataset).source
    size, empty = vocabulary.size, vocabulary.size - vocabulary.piece_count
    assert (size, size % 8) == (manifest.source_vocabulary_size, 0)
    filled = f", {empty} of them unused" if empty else ""
    assert f"{size:,} tokens (unigram){filled}, vocabulary.spm" in printed


def test_rejected_texts_are_shown_unchanged(dataset, tmp_path, capsys):
    shutil.copytree(dataset, tmp_path / "data")
    for path in (tmp_path / "data").glob("rejected-*.parquet"):
        path.unlink()
    row = {
        "reason": "odd", "corpus": "c", "file": "a.tsv", "line": 7, "source": "[b]x[/b]",
        "target": "y", "survivor_corpus": None, "survivor_file": None, "survivor_line": None,
    }  # fmt: skip
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "data/rejected-0.parquet")
    path = tmp_path / "data/dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rejected": {"odd": 1}}))
    printed = shown(capsys, tmp_path / "data", "--all")
    assert "Rejected: odd, 1" in printed
    assert re.search(r"place +a.tsv:7\nsource +\[b\]x\[/b\]\ntarget +y", printed)


def test_run_and_its_model_are_shown(trained_toy, capsys):
    printed = shown(capsys, trained_toy.run)
    assert re.search(r"\n +\d+ .*\d%", printed.partition("Curves over steps\ntrain:")[2]), (
        "accuracy"
    )
    for heading in ("finished", "Learning rate", "train:", "validation:"):
        assert heading in printed
    model = shown(capsys, trained_toy.run / "model")
    assert "encoder_0/attention" in model
    assert "Architecture" in model


def test_stopped_run_is_shown_with_its_last_checkpoint(toy_dataset, tmp_path, capsys):
    folder = tmp_path / "run"
    arguments = ["train", f"--dataset={toy_dataset}", f"--run={folder}", "--preset=tiny",
                 "--encoder-layers=1", "--decoder-layers=1", "--d-model=16", "--heads=2",
                 "--d-ff=32", "--steps=9",
                 "--batch-tokens=128", "--effective-batch-size=256", "--save-every=2"]  # fmt: skip
    hook = {"where": "tt.model.training.step:TrainingStep.update", "call": 6}
    assert Child(run_tt, arguments, hook=hook).wait().code == 143
    printed = shown(capsys, folder)
    assert "stopped: the same command resumes after update 6" in printed
    assert "6 of 9" in printed
    assert "stop-" in printed
    for damaged in (folder / "checkpoints").glob("stop-*.data*"):
        damaged.write_bytes(b"cut off")
    assert "resumes after update 4" in shown(capsys, folder), "the previous checkpoint"
    (folder / "checkpoints/checkpoints.json").unlink()
    assert "resumes after update 4" in shown(capsys, folder), "without the list of checkpoints"
    with lock_folder(folder, name=LOCK_FILE, remedy=""):
        assert "being trained now" in shown(capsys, folder)


def test_translated_folder_is_shown(tmp_path, capsys):
    write(tmp_path / "in.parquet", {"text": ["one [red]two[/red] three", None, "12"]})
    translate(tmp_path / "in.parquet", tmp_path / "out")
    printed = shown(capsys, tmp_path / "out")
    assert "one [red]two[/red] three" in printed  # rich must not interpret markup
    assert "status copied, shortest" in printed or "status copied, sample" in printed
    assert "Time by worker" in printed


def test_long_text_is_truncated(tmp_path, capsys):
    write(tmp_path / "in.parquet", {"text": [f"one {'two ' * 900}end", "one"]})
    translate(tmp_path / "in.parquet", tmp_path / "out")
    printed = shown(capsys, tmp_path / "out")
    assert printed.count("… (3,607 characters)") == 2, "a text and its translation"
    assert len(printed) < 8000
    assert not [line for line in printed.splitlines() if line.endswith(" ")]
    assert run("report", tmp_path / "out", "--output", tmp_path / "a.html") == 0
    assert "<summary>one two" in (tmp_path / "a.html").read_text("utf-8")
    assert "… (3,607 characters)</summary>" in (tmp_path / "a.html").read_text("utf-8")


@pytest.mark.parametrize("kind", ["dataset", "run", "model"])
def test_json_contains_all_sections(dataset, trained_toy, capsys, kind):
    folder = {"dataset": dataset, "run": trained_toy.run, "model": trained_toy.run / "model"}[kind]
    found = json.loads(shown(capsys, folder, "--json"))
    assert found["kind"] == kind
    sections = {each["anchor"]: each["blocks"] for each in found["sections"]}
    assert sections["overview"][0]["values"][kind] == str(folder)
    assert sections["vocabulary"][0]["values"]["begin a word"] > 0


def test_tfds_corpora_are_listed(tmp_path, capsys):
    assert "tfds:ted_hrlr_translate" in shown(capsys, "tfds:", "--data-dir", tmp_path)
    found = shown(capsys, "tfds:ted_hrlr_translate/ru_to_en", "--data-dir", tmp_path, "--json")
    [section] = json.loads(found)["sections"]
    [row] = section["blocks"][0]["rows"]
    assert row[:2] == ["tfds:ted_hrlr_translate/ru_to_en", "ru en"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere does not exist. Choose the folder"),
        ([__file__], "is a file. Choose the folder"),
        (["hdfs://host/dataset"], "tt does not support hdfs://. Choose a local path"),
        (["x", "--examples", "0"], "--examples must be at least 1. Received: 0"),
        (["x", "--data-dir", "y"], "--data-dir needs a tfds: name. Received: x"),
        (["tfds:no_such_thing"], "TensorFlow Datasets has no tfds:no_such_thing"),
    ],
)
def test_errors_of_show(capsys, arguments, message):
    assert run("show", *arguments) == 2
    assert message in last_error(capsys)


@pytest.mark.parametrize("layout", ["nllb", "argos"])
def test_foreign_model_is_shown(tmp_path, capsys, layout):
    getattr(foreign_models, layout)(tmp_path)
    model = open_foreign(tmp_path)
    printed = shown(capsys, tmp_path)
    assert "ctranslate2, from another program" in printed
    for name in (*model.files, *model.tokenization.models, "decoder start token", "most tokens"):
        assert name in printed
    assert "trained on" not in printed, "a foreign model does not name its training data"
    found = json.loads(shown(capsys, tmp_path, "--json"))
    tokens = len(load_tokens(model.weights_folder, "target"))
    folded = {each.get("title"): each for each in found["sections"][0]["blocks"]}
    values = folded["Tokens"]["blocks"][0]["values"]
    assert values["target tokens"] == tokens
    assert values["languages"] == sorted(model.languages)
    assert {name for name, _ in folded["Files"]["blocks"][0]["rows"]} == set(model.files)


def test_damaged_foreign_model_is_an_error(tmp_path, capsys):
    foreign_models.opus(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"x")
    assert run("show", tmp_path) == 2
    assert "model.bin is truncated, or not a CTranslate2 model" in last_error(capsys)
