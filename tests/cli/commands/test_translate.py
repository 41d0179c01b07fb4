"""`tt translate`: each input line has one output line, and failed lines are reported."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import last_error, run
from commands import NO_READER, run_command
from fakes import Reverser

from tt.cli.commands.translate import BROKEN_PIPE
from tt.model.engines import loading
from tt.model.engines.translator import Engine, Hypothesis
from tt.model.formats.model_card import About
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.lines import LineReport, explain_lines, format_line, translate_lines
from tt.pipelines.inference.text_model import TextModel
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import TranslatedText


def translated(data, *, translator=None, scored=0, chunk=1000, **options):
    """Translate lines, and return the output and the lines of the report."""
    output = io.BytesIO()
    report = LineReport()
    options = TextOptions(**{"max_source_tokens": 8, **options})
    model = TextModel(translator=translator or Reverser(), options=options)
    translate_lines(
        io.BytesIO(data), output, model=model, report=report, scored=scored, chunk=chunk
    )
    assert report.done == len(io.BytesIO(data).readlines())
    return output.getvalue().decode(), report.lines()


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_each_line_has_one_translation(chunk):
    data = "ab\n\ncd\u2028e\r\n\nFar. Too long.\nlast".encode()
    found, said = translated(data, chunk=chunk)
    assert found == "ba\n\ne dc\n\n.raF ooT .gnol\ntsal\n"
    assert said == ["1 line with status 'split' (at 5)"]


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_report_has_the_numbers_of_failed_lines(chunk):
    lines = [b"x", b"\xff", b"much too long", b"q", b"and much too long", b""]
    found, said = translated(
        b"\n".join(lines), translator=Reverser(poison="q"), on_too_long="skip", chunk=chunk
    )
    assert found == "x\n\n\n\n\n"
    assert said == [
        "2 lines with status 'failed' (at 2: not UTF-8: invalid start byte, 4: ValueError: bad)",
        "2 lines with status 'too_long' (at 3: a sentence has 15 tokens; at most 8 are allowed, "
        "5: a sentence has 19 tokens; at most 8 are allowed)",
    ]
    found, said = translated(lines[2], on_too_long="truncate")
    assert found == "t hcum\n"
    assert said == ["1 line with status 'too_long' (at 1)"]


def test_report_has_the_numbers_for_each_flag():
    report = LineReport()
    made = [("ok", ()), ("ok", ("copy", "short")), ("incomplete", ("incomplete", "short"))]
    for number, (status, flags) in enumerate(made, 1):
        report.add(TranslatedText(translation="a", status=status, flags=flags), number=number)
    assert report.lines() == [
        "1 line flagged as 'copy' (at 2)",
        "2 lines flagged as 'short' (at 2, 3)",
        "1 line with status 'incomplete' (at 3)",
    ]


def test_hypotheses_are_lines_with_score_and_text():
    data = b"ab\n\nmuch too long\n\xff\nc\n1.5"
    found, _ = translated(data, translator=Reverser(n_best=2), scored=3)
    assert found.splitlines() == [
        "-2.000000 ||| ba",
        "-3.000000 ||| ba'",
        "-inf ||| ",
        "0.000000 ||| ",  # an empty line
        "-inf ||| ",
        "-inf ||| ",
        "-11.000000 ||| hcum oot gnol",
        "-12.000000 ||| hcum' oot gnol",
        "-inf ||| ",
        *["-inf ||| "] * 3,  # a line that failed
        "-1.000000 ||| c",
        "-2.000000 ||| c'",
        "-inf ||| ",
        "0.000000 ||| 1.5",  # a line that is copied
        "-inf ||| ",
        "-inf ||| ",
    ]
    for line in found.splitlines():
        float(line.split(" ||| ")[0])
    assert translated(data, scored=1)[0].splitlines()[::4] == [
        "-2.000000 ||| ba",
        "-1.000000 ||| c",
    ]


def test_each_line_is_explained():
    output = io.BytesIO()
    model = TextModel(translator=Reverser(), options=TextOptions())
    explain_lines(io.BytesIO("abé\n".encode() + b"\xff\n"), output, model=model)
    first, second, rest = output.getvalue().decode().split("\n\n")
    assert first.splitlines()[0] == "line 1: 'abé'"
    assert first.splitlines()[-3:] == ["translation: 'éba'", "status: ok", "flags: none"]
    assert second.splitlines()[0] == r"line 2: '\\xff'"
    assert second.splitlines()[-2].startswith("status: failed (not UTF-8")
    assert rest == ""


def test_line_breaks_in_a_translation_become_spaces():
    cell = TranslatedText(
        translation="a\nb", score=-1.0, status="ok", n_best=(Hypothesis("a\nb", -1.0),)
    )
    assert format_line(cell, 0) == ["a b"]
    assert format_line(cell, 1) == ["-1.000000 ||| a b"]


@pytest.mark.parametrize("options", [(), ("--explain",)])
def test_full_disk_is_an_error_on_one_line(trained_toy, tmp_path, options):
    command = ("translate", "--model", trained_toy.run, *options)
    ended = run_command(*command, folder=tmp_path, text="a b\n", stdout="/dev/full")
    assert (ended.returncode, ended.stderr) == (
        2,
        "tt: error: the translations cannot be written to stdout: No space left on device. Free "
        "some space, or redirect stdout to another disk\n",
    )


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_closed_stream_is_an_error_on_one_line(trained_toy, monkeypatch, capsys, stream):
    monkeypatch.setattr(sys, stream, None)
    assert run("translate", "--model", trained_toy.run) == 2
    assert capsys.readouterr().err.startswith("tt: error: stdin or stdout is closed. ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n-best", "5"], "--n-best must be at most --beam-size, 4. Received: 5"),
        (
            ["--source-language", "english"],
            "--source-language must be the code of one language, such as en, de or zh-Hant. "
            "Received: english",
        ),
        (
            ["--explain", "--with-scores"],
            "`--explain` already prints all scores. Remove `--with-scores`",
        ),
        (["--model", "nowhere"], "no model folder at nowhere"),
    ],
)
def test_errors_of_translate(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert run("translate", *arguments) == 2
    assert message in last_error(capsys)


def stand_in_for_a_model(monkeypatch, load):
    """Let `tt translate` load its translator with `load`, and skip the checks of the folder."""
    names = "tt.pipelines.inference.model_loading"
    monkeypatch.setattr(f"{names}.stage_model", lambda model, **options: Path(model))
    monkeypatch.setattr(loading, "load_translator", load)
    monkeypatch.setattr("tt.cli.commands.translate.prepare_engine", lambda *_: None)
    monkeypatch.setattr(f"{names}.check_engine", lambda *_, **__: None)
    monkeypatch.setattr(f"{names}.load_about", lambda *_: About())


def test_each_flag_reaches_the_translator(monkeypatch, capfdbinary):
    loaded = {}

    def load(folder, *, decoding, engine):
        loaded[folder] = decoding, engine
        return Reverser(n_best=2)

    stand_in_for_a_model(monkeypatch, load)
    long = "Am 3. Oktober kam er. Sie ging.\n"  # In German, "3." does not end a sentence.
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"x\n{long}".encode())))
    assert run(
        "translate", "--model", "m", "--beam-size", "5", "--length-penalty", "0.2", "--n-best", "2",
        "--max-length-ratio", "1.5", "--max-decoding-length", "99", "--no-repeat-ngram-size", "3",
        "--max-source-tokens", "25", "--split", "long", "--source-language", "de",
        "--engine", "ctranslate2", "--compute-type", "int8",
    ) == 0  # fmt: skip
    assert loaded == {
        "m": (
            Decoding(beam_size=5, length_penalty=0.2, n_best=2, max_length_ratio=1.5,
                     max_decoding_length=99, no_repeat_ngram_size=3),
            Engine(name="ctranslate2", compute_type="int8"),
        )
    }  # fmt: skip
    printed = capfdbinary.readouterr()
    assert printed.out.decode().splitlines() == [
        "-1.000000 ||| x",
        "-2.000000 ||| x'",
        "-30.000000 ||| .re mak rebotkO .3 mA .gnig eiS",
        "-31.000000 ||| .re mak rebotkO .3 mA' .gnig eiS",
    ]
    assert printed.err == b""


def test_terminal_shows_once_that_lines_are_read(monkeypatch, capfdbinary):
    stand_in_for_a_model(monkeypatch, lambda *_, **__: Reverser())
    typed, terminal = pty.openpty()
    os.write(typed, b"ab\ncd\n\x04")  # Ctrl-D
    with open(terminal, encoding="utf-8") as stdin:  # noqa: PTH123 -- of a descriptor
        monkeypatch.setattr("sys.stdin", stdin)
        assert run("translate", "--model", "m") == 0
    os.close(typed)
    assert capfdbinary.readouterr() == (
        b"ba\ndc\n",
        b"tt: reading lines from the terminal; press Ctrl-D to finish\n",
    )


def test_failed_lines_give_exit_code_1(monkeypatch, capfdbinary):
    stand_in_for_a_model(monkeypatch, lambda *_, **__: Reverser())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\n\xff\ncd\n")))
    assert run("translate", "--model", "m", "--engine", "ctranslate2") == 1
    printed = capfdbinary.readouterr()
    assert printed.out == b"ba\n\ndc\n"
    assert printed.err == b"tt: 1 line with status 'failed' (at 2: not UTF-8: invalid start byte)\n"


def test_model_is_converted_without_messages_of_tensorflow(trained_toy, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "tt.cli.main", "translate", "--model", str(trained_toy.run),
         "--engine", "ctranslate2"],
        input="five\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "five\n", "")
    assert len(list(tmp_path.glob("tt/*-ctranslate2-*"))) == 1


def test_trained_model_translates(trained_toy, tmp_path):
    options = ("--beam-size", "2", "--with-scores", "--max-source-tokens", "6")
    done = subprocess.run(
        [sys.executable, "-m", "tt.cli.main", "translate", "--model", str(trained_toy.run),
         *options],
        input="three two one\n\nfive\none two three four five six\n", capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ||| ") for line in done.stdout.split("\n")]
    assert [len(line) for line in lines] == [2, 2, 2, 2, 1]
    assert lines[1:3] == [["0.000000", ""], [lines[2][0], "five"]]
    assert float(lines[2][0]) < 0
    said = "tt: 1 line with status 'split' (at 4)\n"
    assert done.stderr == said, "libraries must print nothing"


def test_command_ends_silently_if_head_closes_the_pipe(trained_toy, tmp_path):
    command = ("translate", "--model", trained_toy.run, "--beam-size", 1)
    ended = run_command(*command, folder=tmp_path, text="one\n" * 5000, stdout=NO_READER)
    assert (ended.returncode, ended.stderr) == (BROKEN_PIPE, "")
