"""The command line: what it prints, its exit codes, and each user error on one line."""

from __future__ import annotations

import gzip
import io
import re
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from toy import toy_sentences, write_dataset

from cli.evaluate import read_lines
from cli.main import main
from cli.translate import translate_lines
from model.translator import Translation


def run(*arguments):
    """Runs `tt` in this process and returns its exit code."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code or 0


def last_error(capsys):
    """Returns the one line that a user error prints."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    line = printed.err.splitlines()[-1]
    assert line.startswith("tt: error: ")
    return line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_needs_neither_tensorflow_nor_beam():
    code = (
        "import sys\nfrom cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit as stopped: assert not stopped.code\n"
        "loaded = {'tensorflow', 'apache_beam', 'pyarrow', 'keras'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("preprocess", "train", "translate-batch", "translate", "evaluate", "demo"):
        assert name in done.stdout
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "command", ["preprocess", "train", "translate-batch", "translate", "evaluate", "demo"]
)
def test_each_command_has_help(command, capsys):
    assert run(command, "--help") == 0
    assert "Usage" in capsys.readouterr().out


def test_beam_options_are_refused_where_there_is_no_beam(capsys):
    assert run("train", "--", "--runner=FlinkRunner") == 2
    assert "only `tt preprocess` and `tt translate-batch`" in last_error(capsys)


# preprocess


def write_corpus(folder, count=60):
    sources, targets = zip(*toy_sentences(count, seed=1), strict=True)
    (folder / "a.en").write_text("\n".join(sources) + "\n")
    (folder / "a.xx").write_text("\n".join(targets) + "\n")


TEXTS = ("--source", "a.en", "--target", "a.xx", "--vocabulary-size", "24")


def test_preprocess_takes_beams_options(folder, capsys):
    write_corpus(folder)
    assert run("preprocess", *TEXTS, "--", "--direct_num_workers=2",
               "--direct_running_mode=multi_threading") == 0  # fmt: skip
    printed = capsys.readouterr().err
    assert "60 pairs read" in printed
    assert (folder / "dataset/dataset.json").is_file()
    assert not (folder / "input.parquet").exists(), "only the embedded corpus leaves one"


def test_what_an_error_advises_then_works(folder, capsys):
    write_corpus(folder)
    assert run("preprocess", *TEXTS[:4], "--vocabulary-size", "800") == 2
    advised = re.search(r"pass --vocabulary-size (\d+) or less", last_error(capsys))[1]
    assert not (folder / "dataset").exists(), "nothing is left to stand in the way"
    assert run("preprocess", *TEXTS[:4], "--vocabulary-size", advised) == 0
    assert (folder / "dataset/dataset.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "x"], "no corpus is named, and --data-dir is about one"),
        ([*TEXTS, "--output", "gs://bucket/x"], "gs://bucket/x is not on this machine"),
        ([*TEXTS, "--vocabulary-size", "0"], "vocabulary size must be 8 or more"),
        ([*TEXTS, "--", "--runner=Flnk"], "--runner=Flnk"),
        (["--source", "nofs://b/x", "--target", "a.xx"], "nofs://b/x cannot be looked up"),
        (["--source", "b.en", "--target", "a.xx"], "b.en"),
        (["--source", "a.en"], "1 source .* and 0 target"),
        (["corpus.docx"], "corpus 'corpus.docx' is none of"),
        (["tfds:no_such_corpus"], "no_such_corpus"),
        (["a.parquet", "--source-column", "english"], "english.*en, xx"),
        (["--source", "a.en", "--target", "short.xx"], "60.*59|59.*60"),
        ([*TEXTS[:4], "--vocabulary-size", "8000"], "8000.*--vocabulary-size"),
        ([*TEXTS, "--vocabulary-type", "words"], "words"),
        ([*TEXTS, "--vocab", "no.spm"], "no.spm"),
        (["--validation-source", "a.en", "--validation-target", "a.xx"], "go with a corpus"),
        ([*TEXTS, "--output", "thesis"], "thesis"),
    ],
)
def test_errors_of_preprocess(folder, capsys, arguments, message):
    write_corpus(folder)
    lines = (folder / "a.xx").read_text().splitlines(keepends=True)
    (folder / "short.xx").write_text("".join(lines[:-1]))
    pq.write_table(pa.table({"en": ["a"], "xx": ["b"]}), folder / "a.parquet")
    (folder / "thesis").mkdir()
    (folder / "thesis/thesis.tex").write_text("")
    assert run("preprocess", *arguments) == 2
    error = last_error(capsys)
    assert re.search(message, error), error
    assert not (folder / "dataset/dataset.json").exists()
    assert [f.name for f in (folder / "thesis").iterdir()] == ["thesis.tex"]


# train


def test_errors_of_train(folder, capsys):
    assert run("train") == 2
    assert "no dataset folder at dataset: make one with `tt preprocess`" in last_error(capsys)
    write_dataset(folder / "dataset", train=20, validation=5)
    assert run("train", "--preset", "huge") == 2
    assert "choose one of tiny, small, base, big" in last_error(capsys)
    assert run("train", "--strategy", "tpu") == 2
    assert "choose one of one-device, mirrored" in last_error(capsys)
    assert run("train", "--preset", "tiny", "--heads", "7") == 2
    assert "Received: d_model=128, heads=7" in last_error(capsys)
    assert not (folder / "run").exists()
    (folder / "dataset/dataset.json").unlink()
    assert run("train") == 2
    assert "not a finished dataset folder" in last_error(capsys)


def test_train_says_what_it_does_and_resumes(folder, capsys):
    write_dataset(folder / "dataset", train=50, validation=5)
    small = ["train", "--strategy", "mirrored", "--preset", "tiny", "--layers", "1", "--d-model",
             "16", "--heads", "2", "--d-ff", "16", "--batch-tokens", "100", "--warmup-steps", "5",
             "--save-every", "2", "--log-every", "2", "--dropout", "0"]  # fmt: skip
    assert run(*small, "--steps", "4") == 0
    printed = capsys.readouterr().err
    assert "no GPU is visible, so `mirrored` runs one CPU replica" in printed
    for word in ("step      2/4", "loss", "target tokens/s", "left 0:00:", "validation: loss"):
        assert word in printed
    assert (folder / "run/model/config.json").is_file()
    assert run(*small, "--steps", "6") == 0
    assert "Resuming at step 4" in capsys.readouterr().err
    assert run(*small, "--steps", "6", "--seed", "2") == 2
    assert "seed is 1 there and 2 here" in last_error(capsys)


# translate-batch


@pytest.fixture
def with_model(folder, trained_toy):
    (folder / "run").symlink_to(trained_toy.run)
    return folder


def test_translate_batch_keeps_rows_and_columns(with_model, capsys):
    sources = ["one two three", None, "", "four five", "  ", " ".join(["six"] * 300)]
    table = pa.table({"id": [5, 4, 3, 2, 1, 0], "text": sources})
    pq.write_table(table, "input.parquet")
    assert run("translate-batch", "input.parquet", "--beam-size", "2") == 0
    found = pq.read_table("translated/input-00000-of-00001.parquet")
    assert found.select(["id", "text"]).equals(table)
    assert found.column_names[2:] == ["translation", "translation_score", "translation_status"]
    assert found["translation_status"].to_pylist() == [
        "ok", "null", "empty", "ok", "empty", "too_long",
    ]  # fmt: skip
    translations = found["translation"].to_pylist()
    assert translations[1:3] == [None, ""]
    assert translations[4:] == ["", None]
    assert set(translations[0].split()) == {"one", "two", "three"}
    assert "6 rows of 1 file(s) in 1 unit(s): 2 ok, 1 null, 2 empty, 1 too_long" in (
        capsys.readouterr().err.replace("\n", " ")
    )
    assert run("translate-batch", "input.parquet", "--beam-size", "2") == 0
    assert "Finished already" in capsys.readouterr().err
    assert run("translate-batch", "input.parquet", "--beam-size", "3") == 2
    assert "beam_size" in last_error(capsys)


def test_errors_of_translate_batch(with_model, capsys):
    assert run("translate-batch", "nowhere.parquet") == 2
    assert "nowhere.parquet" in last_error(capsys)
    pq.write_table(pa.table({"a": ["x"], "b": ["y"], "n": [1]}), "two.parquet")
    assert run("translate-batch", "two.parquet") == 2
    error = last_error(capsys)
    assert "a" in error
    assert "b" in error
    assert "--text-column" in error
    assert run("translate-batch", "two.parquet", "--text-column", "c") == 2
    assert "'c'" in last_error(capsys)
    assert run("translate-batch", "two.parquet", "--text-column", "n") == 2
    assert "int64" in last_error(capsys)
    assert run("translate-batch", "two.parquet", "--text-column", "a", "--model", "no") == 2
    assert "no model folder at no" in last_error(capsys)
    assert run("translate-batch", "two.parquet", "--text-column", "a", "--output", "run") == 2
    assert "run" in last_error(capsys)
    (with_model / "text.parquet").write_text("not Parquet")
    assert run("translate-batch", "text.parquet") == 2
    assert "text.parquet" in last_error(capsys)
    assert not (with_model / "translated").exists()


# translate and evaluate


class Reversing:
    """A translator of letters; a text has two ids more than letters."""

    def encode(self, texts):
        return [[2, *map(ord, text), 3] for text in texts]

    def translate_ids(self, ids):
        return [Translation("".join(map(chr, row[-2:0:-1])), -1.0) for row in ids]


def translated(data, **options):
    output = io.BytesIO()
    too_long = translate_lines(Reversing(), io.BytesIO(data), output, max_source_tokens=8,
                               **options)  # fmt: skip
    return output.getvalue(), too_long


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_translate_gives_a_line_for_a_line(chunk):
    data = "ab\n\ncd\u2028e\r\n\nmuch too long\nlast".encode()
    found, too_long = translated(data, chunk=chunk)
    assert found.decode() == "ba\n\ne\u2028dc\n\n\ntsal\n"
    assert too_long == [5]


def test_translate_of_nothing_is_nothing():
    assert translated(b"") == (b"", [])
    assert translated(b"\xff\n")[0].decode() == "\ufffd\n"


def test_translate_uses_the_model(with_model):
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "translate", "--beam-size", "1"],
        input="three two one\n\nfive\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert len(lines) == 4
    assert lines[1:] == ["", "five", ""]
    assert done.stderr == "", "no notices of libraries"


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
    assert "two.txt has 2 translations and three.txt has 3 lines" in last_error(capsys)
    assert run("evaluate", "two.txt", "--reference", "no.txt") == 2
    assert "no file no.txt" in last_error(capsys)
    assert run("evaluate", "two.txt", "--reference", "two.txt", "--tokenize", "x") == 2
    assert "choose one of" in last_error(capsys)
    (folder / "cut.gz").write_bytes(gzip.compress(b"a\nb\n" * 999)[:-20])
    assert run("evaluate", "two.txt", "--reference", "cut.gz") == 2
    assert "cut.gz is not a UTF-8 text" in last_error(capsys)
    pq.write_table(pa.table({"a": [1]}), folder / "p.parquet")
    assert run("evaluate", "p.parquet", "--reference", "two.txt", "--column", "a") == 2
    assert "must hold strings. Received: int64" in last_error(capsys)
    assert run("evaluate", "p.parquet", "--reference", "two.txt") == 2
    assert "has no column 'translation': choose one of a" in last_error(capsys)
    (folder / "empty.txt").write_text("")
    assert run("evaluate", "empty.txt", "--reference", "empty.txt") == 2
    assert "is empty" in last_error(capsys)


def test_lines_end_at_line_feeds_alone(folder):
    (folder / "a.txt").write_bytes("a\u2028b\r\nc\x0bd".encode())
    assert read_lines(folder / "a.txt") == ["a\u2028b", "c\x0bd"]
