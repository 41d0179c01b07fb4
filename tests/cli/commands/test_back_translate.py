"""`tt back-translate`: the corpus, its counts, `tt preprocess` on it, kills and mistakes."""

from __future__ import annotations

import gzip
import json
import re
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run, write_corpus
from commands import Child, run_tt
from corpora import rejected, texts
from toy import toy_sentences
from translation_jobs import output_bytes, without_run

from tt.model.dataset.manifest import DatasetManifest
from tt.model.text.vocabulary import load_vocabularies

COMMAND = ("back-translate", "mono.txt", "--model", "run", "--output", "bt", "--beam-size", "1")
PALINDROME = "one two three four three two one"


@pytest.fixture
def folder(tmp_path, trained_toy, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(trained_toy.run)
    return tmp_path


def write_lines(path, lines):
    path.write_bytes(b"".join(line.encode("latin-1") + b"\n" for line in lines))


def manifest_of(folder):
    return json.loads((folder / "bt/_tt/manifest.json").read_text())


def test_lines_become_pairs_and_every_other_line_is_counted(folder, capsys):
    # The model reverses words, so its translation of a palindrome is a copy, which has a flag.
    lines = ["one two three", "", "four five\r", "caf\xe9", "12345", "six", PALINDROME]
    write_lines(folder / "mono.txt", lines)
    assert run(*COMMAND, "--max-failed", "1") == 0
    shown = capsys.readouterr().err
    found = pq.read_table("bt/mono-00000-of-00001.parquet")
    assert found.schema == pa.schema([("source", pa.string()), ("target", pa.string())])
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("<BT> three two one", "one two three"), ("<BT> five four", "four five"),
        ("<BT> six", "six"),
    ]  # fmt: skip
    dropped = {
        "flag_copy": 1, "translation_copied": 1, "translation_empty": 1, "translation_failed": 1,
    }  # fmt: skip
    manifest = manifest_of(folder)
    assert manifest["rows_dropped"] == dropped
    assert manifest["rows"] == len(lines) == manifest["rows_out"] + sum(dropped.values())
    assert re.search(r"^rows +7 of 1 file in 1 unit$", shown, re.MULTILINE)
    assert re.search(r"^pairs +3$", shown, re.MULTILINE)
    rows = re.findall(r"^((?:flag|translation)_\w+) +(\d+) *$", shown, re.MULTILINE)
    assert dict(rows) == {name: str(count) for name, count in dropped.items()}
    assert "Corpus: bt" in shown

    assert run(*COMMAND, "--max-failed", "1") == 0
    assert "Already finished; nothing to do" in capsys.readouterr().err
    assert run(*COMMAND) == 1  # more than 0.1 % of the rows failed
    shown = capsys.readouterr().err
    assert "1 of 7 rows failed" in shown
    assert "the status" not in shown  # a corpus has no statuses
    assert run(*COMMAND, "--tag", "") == 2
    assert "--tag was <BT> and is now empty" in last_error(capsys)

    assert run("show", "bt") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "pairs 3" in shown
    assert "flag_copy 1" in shown
    assert "<BT> three two one" in shown
    assert run("report", "bt", "--output", "report.html") == 0
    assert "translation_copied" in (folder / "report.html").read_text()


def test_column_of_a_table_without_a_tag(folder, capsys):
    table = {"id": [1, 2, 3], "de": ["one two", "three", None], "translation": ["x"] * 3}
    pq.write_table(pa.table(table), "mono.parquet")
    command = ("back-translate", "mono.parquet", *COMMAND[2:])
    flags = ("--text-column", "de", "--tag", "", "--where", "id > 1")
    assert run(*command, *flags, "--dry-run") == 0
    assert "id > 1" in capsys.readouterr().out
    assert not (folder / "bt").exists()
    assert run(*command, *flags) == 0
    found = pq.read_table("bt/mono-00000-of-00001.parquet")
    assert found.to_pydict() == {"source": ["three"], "target": ["three"]}
    assert manifest_of(folder)["rows_dropped"] == {"translation_null": 1, "translation_skipped": 1}


def test_corpus_is_preprocessed_with_a_weight(folder, capsys):
    write_corpus(folder)
    mono = [target for _, target in toy_sentences(80, seed=9)]
    (folder / "mono.txt.gz").write_bytes(gzip.compress("\n".join(mono).encode()))
    assert run("back-translate", "mono.txt.gz", *COMMAND[2:]) == 0
    pairs = pq.read_table("bt/mono-00000-of-00001.parquet").to_pylist()
    assert len(pairs) == manifest_of(folder)["rows_out"] > 60
    command = (
        "preprocess", "a.en+a.xx", "bt=bt/", "--weight", "bt=0.5", "--user-symbol", "<BT>",
        "--source-language", "en", "--vocabulary-size", "36", "--output", "data",
        "--placeholder-share", "0", "--deduplicate", "none", "--keep-identical",
    )  # fmt: skip
    assert run(*command) == 0
    _, synthetic = DatasetManifest.load(folder / "data").sources
    assert (synthetic["name"], synthetic["weight"]) == ("bt", 0.5)
    assert synthetic["rejected"].keys() == {"not_sampled"}
    assert synthetic["kept"] + synthetic["rejected"]["not_sampled"] == len(pairs)
    assert 10 < synthetic["kept"] < len(pairs) - 10
    every = {(row["source"], row["target"]) for row in pairs}
    kept = [
        pair
        for split in ("train", "validation")
        for pair in texts(folder / "data", split)
        if pair[0].startswith("<BT>")
    ]
    assert len(kept) == synthetic["kept"]
    assert set(kept) <= every
    assert {row["reason"] for row in rejected(folder / "data")} == {"not_sampled"}
    source = load_vocabularies(folder / "data").source
    with_tag, without = source.encode(["<BT> one two", "one two"])
    assert len(with_tag) <= len(without) + 2  # the tag, and at most a piece for the space before it


def test_killed_command_is_resumed_with_the_same_files(folder):
    mono = [target for _, target in toy_sentences(40, seed=9)]
    write_lines(folder / "mono.txt", [*mono, "", PALINDROME])
    paths = {"mono.txt": folder / "mono.txt", "run": folder / "run"}
    command = [str(paths.get(word, word)) for word in COMMAND] + ["--unit-rows", "10"]

    def start(name, **options):
        output = folder / name
        arguments = [str(output) if word == "bt" else word for word in command]
        return Child(run_tt, arguments, **options).wait(), output

    ended, whole = start("whole")
    assert ended.code == 0
    files = output_bytes(whole)
    assert len(files) == 5
    hook = {"where": "tt.pipelines.translate.units:make_pairs", "call": 3, "signals": ["SIGKILL"]}
    ended, killed = start("killed", hook=hook)
    assert ended.code == -signal.SIGKILL
    assert not (killed / "_tt/manifest.json").exists()
    before = output_bytes(killed)
    assert 0 < len(before) < 5
    assert run("preprocess", f"{killed}/", "--output", folder / "data") == 2
    ended, killed = start("killed")
    assert ended.code == 0, ended.lines
    assert output_bytes(killed) == files
    assert any("units of earlier runs" in line for line in ended.lines)
    manifests = [json.loads((each / "_tt/manifest.json").read_text()) for each in (whole, killed)]
    first, second = map(without_run, manifests)
    assert first == second
    assert second["rows_dropped"]["flag_copy"] == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nowhere.txt", "--model", "run"), "no file matches the input nowhere.txt"),
        (("mono.txt", "--model", "run", "--text-column", "de"), "has no column 'de'. Its columns: "
         "text: string"),
        (("two.parquet", "--model", "run"), "has 2 columns of strings: a, b. Set --text-column"),
        (("two.parquet", "--model", "run", "--text-column", "a", "--text-column", "b"),
         "a corpus needs one text column. Set --text-column once"),
        (("mono.txt", "--model", "run", "--tag", " BT"), "--tag must not begin or end with a"),
        (("mono.txt", "--model", "run", "--output", "delta:x"), "a corpus needs a folder"),
        (("mono.txt", "--model", "run", "--n-best", "2"), "No such option: --n-best"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_on_one_line(folder, capsys, arguments, problem):
    write_lines(folder / "mono.txt", ["one two"])
    pq.write_table(pa.table({"a": ["one"], "b": ["two"]}), "two.parquet")
    before = sorted(path for path in folder.rglob("*") if path.is_file())
    assert run("back-translate", *arguments) == 2
    assert problem in last_error(capsys)
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == before
