"""`tt evaluate`: scores with signatures, and the sources of translations and references."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run
from damage import damage
from fakes import reverse
from translation_jobs import manifest, translate, write

from tt.model.text.scores import bleu
from tt.pipelines.reports.evaluate import read_translations


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_evaluate_prints_scores_and_signatures(folder, capsys):
    reference = "The quick brown fox jumps over the lazy dog .\nA second line of the text .\n"
    (folder / "a.txt").write_text(reference)
    (folder / "r.txt.gz").write_bytes(gzip.compress(reference.encode()))
    assert run("evaluate", "a.txt", "--reference", "r.txt.gz", "--reference", "a.txt") == 0
    bleu, chrf = capsys.readouterr().out.splitlines()
    assert bleu.startswith("BLEU|nrefs:2|case:mixed|")
    assert "tok:13a" in bleu
    assert " = 100.0" in bleu
    assert chrf.startswith("chrF2|nrefs:2|")
    lines = reference.splitlines()
    table = pa.table({"translation": [lines[0], None], "mine": lines})
    (folder / "out").mkdir()
    pq.write_table(table, folder / "out/part-0.parquet")
    assert run("evaluate", "out", "--reference", "a.txt", "--column", "mine") == 0
    assert " = 100.0" in capsys.readouterr().out
    assert run("evaluate", "out", "--reference", "a.txt", "--lowercase", "--tokenize", "char") == 0
    bleu = capsys.readouterr().out.splitlines()[0]
    assert "case:lc" in bleu
    assert "tok:char" in bleu
    assert " = 100.0" not in bleu


def test_errors_of_evaluate(folder, capsys):
    (folder / "two.txt").write_text("a\nb\n")
    (folder / "three.txt").write_text("a\nb\nc\n")
    assert run("evaluate", "two.txt", "--reference", "three.txt") == 2
    received = "Received: 2 translations in two.txt and 3 references in three.txt. Choose"
    assert received in last_error(capsys)
    (folder / "cut.gz").write_bytes(gzip.compress(b"a\nb\n" * 999)[:-20])
    assert run("evaluate", "two.txt", "--reference", "cut.gz") == 2
    assert "cut.gz cannot be read: " in last_error(capsys)
    (folder / "latin.txt").write_bytes(b"\xe4\n\xf6\n")
    assert run("evaluate", "latin.txt", "--reference", "two.txt") == 2
    assert last_error(capsys) == (
        "tt: error: latin.txt is not UTF-8 in line 1. Convert the file first, for example with "
        "iconv -f latin-1 -t utf-8"
    )
    (folder / "wide.txt").write_text("a\nb\n", encoding="utf-16")
    assert run("evaluate", "two.txt", "--reference", "wide.txt") == 2
    assert "wide.txt is not UTF-8 in line 1. Convert the file" in last_error(capsys)
    assert run("evaluate", "two.txt", "--reference", ".") == 2
    assert ". cannot be read: Is a directory. Choose a text file" in last_error(capsys)
    for pipe in ("two.txt", "-", "/dev/fd/0"):  # nothing is read from it
        assert run("evaluate", pipe, "--reference", "two.txt", "--column", "nosuch") == 2
        message = f"--column is only for Parquet, but {pipe} is a text file. Remove the option"
        assert message in last_error(capsys)
    pq.write_table(pa.table({"a": [1]}), folder / "p.parquet")
    assert run("evaluate", "p.parquet", "--reference", "two.txt", "--column", "a") == 2
    assert "p.parquet must have exactly one column 'a' of strings" in last_error(capsys)
    assert run("evaluate", "p.parquet", "--reference", "two.txt") == 2
    message = "must have exactly one column 'translation' of strings. Choose one of a"
    assert message in last_error(capsys)
    (folder / "empty.txt").write_text("")
    assert run("evaluate", "empty.txt", "--reference", "empty.txt") == 2
    assert "is empty" in last_error(capsys)


@contextlib.contextmanager
def pipe_of(content):
    """Yield the path of a pipe with this content, which supports no seeking."""
    reading, writing = os.pipe()

    def write_all():
        with contextlib.suppress(BrokenPipeError), open(writing, "wb") as file:  # noqa: PTH123
            file.write(content)

    thread = threading.Thread(target=write_all)
    thread.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        thread.join()


REFERENCE = "".join(f"line {i} of a text that is long enough.\n" for i in range(5000)).encode()


@pytest.mark.parametrize("encode", [bytes, gzip.compress])
def test_pipes_can_be_read(folder, capsys, encode):
    with pipe_of(encode(REFERENCE)) as hypotheses, pipe_of(encode(REFERENCE)) as reference:
        assert run("evaluate", hypotheses, "--reference", reference) == 0
    assert " = 100.0" in capsys.readouterr().out
    with pipe_of(encode(REFERENCE)) as hypotheses, pipe_of(encode(b"one\n")) as reference:
        assert run("evaluate", hypotheses, "--reference", reference) == 2
    assert (
        f"Received: 5,000 translations in {hypotheses} and 1 reference in {reference}."
        in last_error(capsys)
    )


def test_stdin_can_be_read(folder, capsys, monkeypatch):
    name = "-"
    (folder / "r.txt").write_bytes(REFERENCE)
    for arguments in ((name, "--reference", "r.txt"), ("r.txt", "--reference", name)):
        content = io.BytesIO(gzip.compress(REFERENCE))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content))
        assert run("evaluate", *arguments) == 0
        assert " = 100.0" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", None)
    assert run("evaluate", name, "--reference", "r.txt") == 2
    assert "stdin is closed" in last_error(capsys)
    monkeypatch.setattr("sys.stdout", None)
    assert run("evaluate", "r.txt", "--reference", "r.txt") == 2
    assert last_error(capsys) == "tt: error: stdout is closed. Redirect it, such as > scores.txt"


def test_references_can_be_columns_of_the_translations_table(folder, capsys):
    lines = ["The cat sat on the mat today .", "It is raining a lot in here ."]
    table = {"translation": lines, "human": lines, "other": ["none of it", "at all"]}
    pq.write_table(pa.table(table), folder / "t.parquet")
    (folder / "human.txt").write_text("\n".join(lines) + "\n")
    (folder / "other.txt").write_text("none of it\nat all\n")
    for columns, texts in ((["human"], 1), (["other"], 0), (["other", "human"], 1)):
        flags = [flag for name in columns for flag in ("--reference-column", name)]
        assert run("evaluate", "t.parquet", *flags) == 0
        found = capsys.readouterr()
        flags = [flag for name in columns for flag in ("--reference", f"{name}.txt")]
        assert run("evaluate", "t.parquet", *flags) == 0
        assert capsys.readouterr() == found, "files with the same texts must have the same scores"
        assert (" = 100.0" in found.out) == texts
    both = ("--reference", "other.txt", "--reference-column", "human")
    assert run("evaluate", "t.parquet", *both) == 0
    assert "nrefs:2|" in capsys.readouterr().out


def test_reference_columns_of_a_job_have_the_order_of_its_input(folder, capsys):
    for name in ("b", "a"):
        rows = [f"{name} {i} of a text" for i in range(5)]
        write(folder / f"{name}.parquet", {"text": rows, "back": [reverse(row) for row in rows]})
    inputs = [folder / f"{name}.parquet" for name in ("b", "a")]
    translate(inputs, folder / "out", unit_rows=2, text_columns=("text",))
    assert run("evaluate", "out", "--reference-column", "back") == 0
    assert " = 100.0" in capsys.readouterr().out
    flags = ("--reference", "a.parquet", "--reference-column", "back")
    assert run("evaluate", "out", *flags) == 2
    received = "Received: 10 translations in out and 5 references in a.parquet. Choose"
    assert received in last_error(capsys)
    assert run("evaluate", "out", "--reference", "out", "--reference-column", "back") == 0
    assert " = 100.0" in capsys.readouterr().out


def test_errors_of_reference_columns(folder, capsys):
    (folder / "r.txt").write_text("x\n")
    pq.write_table(pa.table({"translation": ["x"] * 3, "n": [1] * 3}), folder / "t.parquet")
    pq.write_table(pa.table({"human": ["a", None, "c"]}), folder / "gap.parquet")
    for arguments, message in (
        (["t.parquet"], "there are no references. Choose a text file with --reference, or"),
        (["t.parquet", "--reference-column", "m"], "t.parquet must have exactly one column 'm' of "
         "strings. Choose one of translation, n with --reference-column"),
        (["t.parquet", "--reference-column", "n"], "t.parquet must have exactly one column 'n' of"),
        (["r.txt", "--reference-column", "n"], "is only for Parquet, but r.txt is a text file"),
        (["t.parquet", "--reference", "gap.parquet"], "gap.parquet is Parquet. Choose the column "
         "of its references with --reference-column"),
        (["t.parquet", "--reference", "gap.parquet", "--reference-column", "human"],
         "each row needs a reference, but column 'human' of gap.parquet is null in row 2. "),
    ):  # fmt: skip
        assert run("evaluate", *arguments) == 2
        assert message in last_error(capsys)


def test_sentence_can_match_any_of_several_references(folder, capsys):
    first = ["The cat sat on the mat today .", "It is raining a lot in here ."]
    second = ["A cat was sitting on a mat .", "It pours down in this place now ."]
    (folder / "1.txt").write_text("\n".join(first) + "\n")
    (folder / "2.txt").write_text("\n".join(second) + "\n")
    (folder / "mixed.txt").write_text(f"{first[0]}\n{second[1]}\n")
    scores = {}
    for references in (["1.txt"], ["2.txt"], ["1.txt", "2.txt"]):
        flags = [flag for name in references for flag in ("--reference", name)]
        assert run("evaluate", "mixed.txt", *flags) == 0
        line = capsys.readouterr().out.splitlines()[0]
        assert f"nrefs:{len(references)}|" in line
        scores[tuple(references)] = float(line.split(" = ")[1].split()[0])
    assert scores["1.txt", "2.txt"] == 100
    assert max(scores["1.txt",], scores["2.txt",]) < 100
    one = bleu([first[0], second[1]], first).value
    assert scores["1.txt",] == pytest.approx(one, abs=0.06), (
        "the output has one digit after the point"
    )
    (folder / "short.txt").write_text("one\n")
    flags = ("--reference", "1.txt", "--reference", "short.txt")
    assert run("evaluate", "mixed.txt", *flags) == 2
    assert "Received: 2 translations in mixed.txt and 1 reference in short.txt." in last_error(
        capsys
    )


def test_null_translations_are_counted(folder, capsys):
    (folder / "r.txt").write_text("a b c d e\nf g h i j\n\n")
    pq.write_table(pa.table({"translation": ["a b c d e", None, ""]}), folder / "t.parquet")
    assert run("evaluate", "t.parquet", "--reference", "r.txt") == 0
    printed = capsys.readouterr()
    assert printed.err == "tt: 1 of 3 translations is null and counts as empty\n"
    (folder / "t.txt").write_text("a b c d e\n\n\n")
    assert run("evaluate", "t.txt", "--reference", "r.txt") == 0
    assert capsys.readouterr() == (printed.out, ""), "empty lines must have the same scores"


def test_folder_of_a_job_is_read_in_the_order_of_its_input(folder, capsys):
    for name, text in {"b": "x", "c": "y", "a": "z"}.items():
        write(folder / f"{name}.parquet", {"text": [text, f"{text}'"]})
    table = {"text": [f"row {i:03d}" for i in range(6)]}
    bad = write(
        folder / "bad.parquet", table, write_page_checksum=True, use_dictionary=False,
        compression="none", row_group_size=3,
    )  # fmt: skip
    # The statistics of the second row group contain the texts of rows 3 and 5.
    damage(bad, row=4)
    inputs = [folder / f"{name}.parquet" for name in ("b", "c", "bad", "a")]
    translate(inputs, folder / "out", unit_rows=3, on_bad_file="skip")
    write(folder / "out/mine.parquet", {"translation": ["of no job"]})
    assert len(manifest(folder / "out")["skipped_units"]) == 1
    found = read_translations(str(folder / "out"), column="translation")
    assert found == ["x", "'x", "y", "'y", "000 wor", "001 wor", "002 wor", "z", "'z"]
    (folder / "out/c-00000-of-00001.parquet").unlink()
    (folder / "r.txt").write_text("x\n")
    assert run("evaluate", "out", "--reference", "r.txt") == 2
    assert "out is not finished: out/c-00000-of-00001.parquet is missing." in last_error(capsys)


def test_folder_of_another_format_than_parquet_is_an_error(folder, capsys):
    (folder / "r.txt").write_text("x\n")
    plan = {"format": 1, "input": {}, "bad_files": {}, "options": {"format": "jsonl"}}
    (folder / "out/_tt").mkdir(parents=True)
    (folder / "out/_tt/plan.json").write_text(json.dumps(plan))
    assert run("evaluate", "out", "--reference", "r.txt") == 2
    message = "out contains .jsonl files, but the translations of a folder must be Parquet."
    assert message in last_error(capsys)


def test_folder_without_parquet_is_an_error(folder, capsys):
    (folder / "out/_tt").mkdir(parents=True)
    pq.write_table(pa.table({"translation": ["x"]}), folder / "out/_tt/x.parquet")
    (folder / "r.txt").write_text("x\n")
    assert run("evaluate", "out", "--reference", "r.txt") == 2
    assert "out contains no *.parquet files. Choose the output" in last_error(capsys)
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    assert run("evaluate", "broken.parquet", "--reference", "r.txt") == 2
    assert "broken.parquet cannot be read as Parquet" in last_error(capsys)
