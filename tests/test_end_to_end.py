"""All commands in sequence: training and translation must process texts identically."""

from __future__ import annotations

import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from command_line import run
from toy import toy_sentences
from trainers import log_of

from tt.cli.commands import demo
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.training import defaults
from tt.pipelines.preprocess import ready_made as embedded

pytestmark = pytest.mark.slow

TINY = (
    "--encoder-layers", "1", "--decoder-layers", "1", "--d-model", "16", "--heads", "2",
    "--d-ff", "16",
)  # fmt: skip


def records(path):
    features = {name: tf.io.RaggedFeature(tf.int64) for name in ("source", "target")}
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        example = tf.io.parse_single_example(record, features)
        yield example["source"].numpy().tolist(), example["target"].numpy().tolist()


def test_training_data_and_translation_have_the_same_ids(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    messy = [
        ("one  two\u00a0three", "three two one"),
        ("\ufefffour five ", " five\tfour"),
        (unicodedata.normalize("NFD", "seis más"), unicodedata.normalize("NFD", "más seis")),
        ("nine\u200bteen\u00ad", "ten\u2028nine"),
        ("zero\x07one", "one zero"),
    ]
    pairs = messy + toy_sentences(80, seed=3)
    for name, side in zip(("en", "xx"), zip(*pairs, strict=True), strict=True):
        (tmp_path / f"a.{name}").write_text("".join(f"{line}\n" for line in side))
    assert run("preprocess", "--source", "a.en", "--target", "a.xx", "--vocabulary-size", "36",
               "--validation", "a.en+a.xx") == 2, (
        "no pairs are left if the validation corpus equals the corpus"
    )  # fmt: skip
    assert run("preprocess", "--source", "a.en", "--target", "a.xx", "--vocabulary-size", "36",
               "--validation-fraction", "0.1", "--output", "data",
               "--keep-identical") == 0  # fmt: skip
    assert run("train", "--dataset", "data", *TINY, "--steps", "1", "--warmup-steps", "1",
               "--batch-tokens", "500") == 0  # fmt: skip
    translator = TensorFlowTranslator.load("run")
    sources = translator.vocabularies.source.encode([source for source, _ in pairs])
    targets = translator.vocabularies.target.encode([target for _, target in pairs])
    expected = {(tuple(s), tuple(t)) for s, t in zip(sources, targets, strict=True)}
    found = [
        (tuple(source), tuple(target))
        for shard in sorted((tmp_path / "data").glob("*.tfrecord"))
        for source, target in records(shard)
    ]
    assert len(found) == len(set(found)) == len(expected)
    assert set(found) == expected
    texts = {translator.vocabularies.target.decode([list(target)])[0] for _, target in found}
    assert "más seis" in texts
    assert "ten nine" in texts


def test_demo_runs_the_three_main_commands(tmp_path, shallow_presets, monkeypatch, capsys):
    monkeypatch.setitem(defaults.EMBEDDED_OPTIONS, "steps", 2)
    few = embedded.held_out_pairs()[:16]
    monkeypatch.setattr(embedded, "held_out_pairs", lambda: few)
    monkeypatch.chdir(tmp_path)
    assert run("demo", "--folder", "there") == 1, "two steps are too few"
    assert [line["step"] for line in log_of(tmp_path / "there/run")] == [2, 2]
    printed = capsys.readouterr()
    assert "tt: the model should reach 90 BLEU, but has " in printed.err
    for command in ("tt preprocess", "tt train --strategy mirrored", "tt translate-batch input"):
        assert f"$ {command}" in printed.err
    assert "No corpus given: using the embedded English-Spanish corpus" in printed.err
    for words in (
        "BLEU of 16 held-out sentences",
        "BLEU of a word-for-word translation",
        "Signature:",
    ):
        assert words in printed.out
    table = pq.read_table(tmp_path / "there/translated")
    assert table["english"].to_pylist() == [pair.source for pair in few]
    # After two updates, the model rarely predicts EOS.
    assert set(table["translation_status"].to_pylist()) <= {"ok", "incomplete"}
    monkeypatch.setattr(demo, "LEAST_BLEU", 0)
    assert run("demo", "--folder", "there") == 0, "all steps are already finished"


def test_preprocess_does_not_replace_an_existing_input_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"mine": ["a"]}), "input.parquet")
    assert run("preprocess") == 0
    assert "input.parquet already exists and remains unchanged" in capsys.readouterr().err
    assert pq.read_table("input.parquet").column_names == ["mine"]
    assert run("preprocess") == 0, "the same command must have nothing to do"
    assert run("preprocess", "--seed", "2") == 2
    assert "dataset is already finished" in capsys.readouterr().err
