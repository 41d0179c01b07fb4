"""The commands: their output, their exit codes, and user errors on one line."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import shlex
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import TEXTS, last_error, run, write_corpus
from memory_store import MemoryStore
from models import write_model

from tt.model.dataset.manifest import DatasetManifest
from tt.model.engines.translator import Engine
from tt.model.formats.exports import export_ctranslate2
from tt.pipelines.inference.model_loading import ModelRequest, find_model
from tt.pipelines.preprocess.options import PreprocessOptions


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_version_of_the_package_is_printed(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"tt {importlib.metadata.version('tt-translate')}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "--beam-size", "2.5"], "--beam-size must be a whole number. Received: 2.5. "
         "See `tt translate --help`"),
        (["train", "--dropout", "much"], "--dropout must be a number. Received: much. See `tt "
         "train --help`"),
        (["translate", "--beam-sise", "2"], "No such option: --beam-sise (Possible options: "
         "--beam-size). See `tt translate --help`"),
        (["train", "--steps"], "Option '--steps' requires an argument. See `tt train --help`"),
        (["transalte"], "No such command 'transalte'. Did you mean 'translate', 'back-translate', "
         "'translate-batch'? See `tt --help`"),
    ],
)  # fmt: skip
def test_errors_about_flags_show_the_value_received(capsys, arguments, message):
    assert run(*arguments) == 2
    assert last_error(capsys).removeprefix("tt: error: ") == message


def test_beam_options_are_only_for_commands_with_beam(capsys):
    assert run("train", "--", "--runner=FlinkRunner") == 2
    assert (
        "only `tt preprocess`, `tt translate-batch`, `tt back-translate` and `tt translate-stream`"
        in last_error(capsys)
    )


# preprocess


def test_preprocess_passes_options_to_beam(folder, capsys):
    write_corpus(folder)
    assert run("preprocess", *TEXTS, "--", "--direct_num_workers=2",
               "--direct_running_mode=multi_threading") == 0  # fmt: skip
    printed = capsys.readouterr().err
    assert "60 read, " in printed
    assert (folder / "dataset/dataset.json").is_file()
    assert not (folder / "input.parquet").exists(), "only the embedded corpus writes this file"


def options_of(folder, capsys, *arguments):
    """Run `tt preprocess`, and return the options in the manifest."""
    assert run("preprocess", *TEXTS, *arguments) == 0, capsys.readouterr().err
    return DatasetManifest.load(folder / "dataset").options


def test_defaults_of_the_command_equal_defaults_of_the_library(folder, capsys):
    write_corpus(folder)
    expected = PreprocessOptions(output="", vocabulary_size=36).resolved()
    assert options_of(folder, capsys) == json.loads(json.dumps(expected))


def test_each_flag_reaches_the_manifest(folder, capsys):
    write_corpus(folder)
    (folder / "test.txt").write_text("no such sentence\n")
    found = options_of(
        folder, capsys, "--shards", "2", "--shard-megabytes", "3", "--vocabulary-type", "bpe",
        "--vocabulary-sample", "900", "--character-coverage", "0.98", "--user-symbol", "<x>",
        "--user-symbol", "<y>", "--sentencepiece-rule", "identity", "--unicode-form", "NFKC",
        "--keep-whitespace", "--lowercase", "--deduplicate", "source", "--exclude", "test.txt",
        "--held-out-by", "source", "--encoding", "latin-1",
        "--min-characters", "2", "--max-characters", "400", "--min-tokens", "2",
        "--max-tokens", "200", "--max-length-ratio", "4", "--min-letters", "0",
        "--keep-identical", "--keep-mojibake", "--source-language", "en",
        "--target-language", "tlh", "--min-script", "0.5", "--validation-fraction", "0.2",
        "--seed", "5", "--separate-vocabularies", "--placeholder-share", "0.2",
        "--no-language-filter", "--test-fraction", "0.1", "--keep-entities",
    )  # fmt: skip
    assert [file["path"] for file in found.pop("exclude")] == ["test.txt"]
    assert found == {
        "held_out_by": "source", "encoding": "iso8859-1",
        "shards": 2, "shard_megabytes": 3.0, "vocabulary_size": 36, "vocabulary_type": ["bpe"],
        "shared_vocabulary": False, "vocabulary": [], "vocabulary_sample": 900,
        "character_coverage": 0.98, "byte_fallback": False, "user_symbols": ["<x>", "<y>"],
        "sentencepiece_rule": "identity", "deduplicate": "source", "validation_fraction": 0.2,
        "seed": 5, "source_language": "en", "target_language": "tlh", "protect": True,
        "placeholder_share": 0.2, "language_filter": False, "alignment_filter": None,
        "test_fraction": 0.1, "decode_entities": False,
        "normalization": {
            "unicode_form": "NFKC", "clean_whitespace": False, "lowercase": True,
        },
        "filters": {
            "min_characters": 2, "max_characters": 400, "min_tokens": 2, "max_tokens": 200,
            "max_length_ratio": 4.0, "min_letters": 0.0, "reject_identical": False,
            "reject_mojibake": False, "min_script": 0.5,
            "source_script": "Latin",
            "target_script": "",  # The script of tlh (Klingon) is unknown.
        },
    }  # fmt: skip


def test_dry_run_prints_the_plan_and_writes_nothing(folder, capsys):
    write_corpus(folder)
    before = sorted(folder.iterdir())
    assert run("preprocess", *TEXTS, "--dry-run", "--", "--direct_num_workers=1") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "a.en + a.xx" in printed.out
    assert "FnApiRunner, 1 worker," in printed.out
    assert run("preprocess", "--dry-run") == 0
    assert "embedded" in capsys.readouterr().out
    assert sorted(folder.iterdir()) == before
    assert run("preprocess", *TEXTS, "--dry-run", "--", "--runner=Flnk") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "x"], "these options need a corpus: --data-dir"),
        ([*TEXTS, "--", "--runner=Flnk"], "there is no runner Flnk. Set --runner "),
        ([*TEXTS, "--", "--no-such-flag=1"], "Beam has no option --no-such-flag=1."),
        (
            [*TEXTS, "--source-language", "English"],
            "--source-language must be the code of one language, such as en, de or zh-Hant. "
            "Received: English",
        ),
        (["--source", "a.en"], "1 --source .* and 0 --target"),
        ([*TEXTS, "--encoding", "latin-99"], "--encoding must be one .* Received: 'latin-99'"),
        (
            ["a.en", "a.xx"],
            r"If a.en belongs to a pair .* both with a.en\+OTHER, or with --source and --target",
        ),
        ([*TEXTS[:4], "--vocab", "no.spm"], "no.spm"),
        (
            [*TEXTS[:4], "--vocab", "a.en", "--byte-fallback", "--vocabulary-size", "99"],
            "--vocab cannot be combined .* Received: --vocabulary-size, --byte-fallback. Remove",
        ),
        ([*TEXTS, "--min-tokens", "300"], "--min-tokens <= --max-tokens. Received: 300 and 256"),
        ([*TEXTS, "--output", "thesis"], "thesis"),
    ],
)
def test_errors_of_preprocess(folder, capsys, arguments, message):
    write_corpus(folder)
    (folder / "thesis").mkdir()
    (folder / "thesis/thesis.tex").write_text("")
    assert run("preprocess", *arguments) == 2
    error = last_error(capsys)
    assert re.search(message, error), error
    assert not (folder / "dataset/dataset.json").exists()
    assert [f.name for f in (folder / "thesis").iterdir()] == ["thesis.tex"]


# translate-batch


@pytest.fixture
def with_model(folder, trained_toy):
    (folder / "run").symlink_to(trained_toy.run)
    return folder


def test_translate_batch_keeps_rows_and_columns(with_model, capsys):
    sources = ["one two three", None, "", "four five", "  ", " ".join(["six"] * 300)]
    table = pa.table({"id": [5, 4, 3, 2, 1, 0], "text": sources})
    pq.write_table(table, "input.parquet")
    assert run("translate-batch", "input.parquet", "--beam-size", "2", "--on-too-long", "skip") == 0
    found = pq.read_table("translated/input-00000-of-00001.parquet")
    assert found.select(["id", "text"]).equals(table)
    assert found.column_names[2:] == [
        "translation", "translation_score", "translation_status", "translation_error",
        "translation_flags",
    ]  # fmt: skip
    assert found["translation_status"].to_pylist() == [
        "ok", "null", "empty", "ok", "empty", "too_long",
    ]  # fmt: skip
    translations = found["translation"].to_pylist()
    assert translations[1:3] == [None, ""]
    assert translations[4:] == ["", None]
    assert set(translations[0].split()) == {"one", "two", "three"}
    shown = capsys.readouterr().err
    assert "6 of 1 file in 1 unit" in shown
    assert re.findall(r"^text +(\w+) +(\d+) *$", shown, re.MULTILINE) == [
        ("ok", "2"), ("null", "1"), ("empty", "2"), ("too_long", "1"),
    ]  # fmt: skip


def test_too_many_failed_rows_give_exit_code_1(with_model, capsys):
    latin = pa.array([b"one two", b"caf\xe9", b"three"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, latin.buffers())
    pq.write_table(pa.table({"text": column, "note": ["six", "two", None]}), "input.parquet")
    command = ("translate-batch", "input.parquet", "--beam-size", "2", "--n-best", "2")
    both = (*command, "--text-column", "text", "--text-column", "note", "--limit", "2")
    assert run(*both, "--price-per-hour", "36") == 1
    shown = capsys.readouterr().err
    assert shown.splitlines()[-1].startswith(
        "tt: error: 1 of 2 rows failed and 0 were skipped, which exceeds"
    )
    assert re.findall(r"^(text|note) +(\w+) +(\d+) *$", shown, re.MULTILINE) == [
        ("text", "ok", "1"), ("text", "failed", "1"), ("note", "ok", "2"),
    ]  # fmt: skip
    assert "price per million rows" in shown
    found = pq.read_table("translated")
    assert found["text_translation_error"].to_pylist() == [
        None, "not UTF-8: unexpected end of data",
    ]  # fmt: skip
    assert [len(best or []) for best in found["text_translation_n_best"].to_pylist()] == [2, 0]
    assert run(*both) == 1
    assert run(*both, "--retry-failed", "--max-failed", "0.5") == 0
    assert run(*both, "--overwrite", "--max-failed", "1", "--compression", "gzip") == 0
    assert run(*command, "--text-column", "note", "--limit", "2") == 2
    error = last_error(capsys)
    assert (
        "--text-column was text, note and is now note; --compression was gzip and is now zstd"
        in error
    )
    assert run(*both, "--compression", "gzip", "--compute-type", "bfloat16") == 2
    assert "--compute-type was float32 and is now bfloat16" in last_error(capsys)


def test_unsupported_engine_options_leave_no_output_folder(with_model, capsys):
    pq.write_table(pa.table({"text": ["one"]}), "input.parquet")
    command = ("translate-batch", "input.parquet", "--engine", "ctranslate2")
    for flag in ("--max-decoding-length", "--max-source-tokens"):
        assert run(*command, flag, "4096") == 2
        assert f"{flag} must be at most 2,048" in last_error(capsys)
    assert not (with_model / "translated").exists()


def test_translate_batch_loads_an_export_for_ctranslate2(with_model, capsys):
    export_ctranslate2(with_model / "run/model", with_model / "exported")
    pq.write_table(pa.table({"text": ["one two three", "four"]}), "input.parquet")
    command = ("translate-batch", "input.parquet", "--model", "exported")
    command = (*command, "--engine", "ctranslate2")
    assert run(*command, "--dry-run") == 0
    assert re.search("^units +1 of up to", capsys.readouterr().out, re.MULTILINE)
    assert not (with_model / "translated").exists()
    assert run(*command) == 0
    found = pq.read_table("translated/input-00000-of-00001.parquet")
    assert found["translation_status"].to_pylist() == ["ok", "ok"]
    size = sum(path.stat().st_size for path in (with_model / "exported").iterdir())
    wanted = ModelRequest(model="exported", engine=Engine(name="ctranslate2"))
    assert find_model(wanted, report=print).size == size


def test_errors_of_translate_batch(with_model, capsys):
    MemoryStore.clear()
    assert run("translate-batch", "mem://b/x.parquet", "--output", "mem://b/out") == 2
    assert capsys.readouterr().err == (
        "Checking mem://b/x.parquet, mem://b/out\n"
        "tt: error: no file matches the input mem://b/x.parquet. Check the path\n"
    )
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), "two.parquet")
    assert run("translate-batch", "two.parquet") == 2
    assert "--text-column" in last_error(capsys)
    assert run("translate-batch", "two.parquet", "--text-column", "a", "--model", "no") == 2
    assert "no model folder at no" in last_error(capsys)
    assert run("translate-batch", "two.parquet", "--model", "two.parquet") == 2
    assert "two.parquet contains no exported model" in last_error(capsys)
    assert not (with_model / "translated").exists()


@pytest.mark.parametrize("script", ["exec 2</dev/null; {tt}", "{tt} 2>&-"])
def test_closed_stderr_only_suppresses_the_messages(folder, script):
    (folder / "a.txt").write_text("one\n")
    tt = [sys.executable, "-m", "tt.cli.main", "evaluate", "a.txt", "--reference", "a.txt"]
    for more, code in ((["--fail-below", "101"], 2), ([], 0)):
        command = script.format(tt=shlex.join([*tt, *more]))
        ended = subprocess.run(["sh", "-c", command], check=False, cwd=folder, capture_output=True)
        assert (ended.returncode, ended.stderr) == (code, b"")


def test_too_little_address_space_is_an_error_before_anything_is_written(folder):
    """With 3 GB, TensorFlow loads, but threads cannot start, and gRPC waits forever."""
    write_model(folder / "model")
    before = sorted(folder.rglob("*"))
    tt = shlex.join([sys.executable, "-m", "tt.cli.main", "translate", "--model", "model/model"])
    ended = subprocess.run(
        ["sh", "-c", f"ulimit -v 3000000; exec {tt}"],
        check=False, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("tt: error: this process may use only 2.9 GiB of address space")
    assert sorted(folder.rglob("*")) == before
