"""The help of every command, which imports no slow library, and shell completion."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

from tt.cli.main import load_command
from tt.cli.shared_options import COMMANDS
from tt.model.training.exporting import FORMATS as EXPORTED

ALL = "--help-all"
LONGEST_HELP = 90  # characters
SLOW = ("tensorflow", "keras", "apache_beam")
ARRAYS = ("numpy", "pyarrow", "langcodes")  # each takes 0.05 seconds

MISTAKES = (
    ["preprocess", "--seed", "x"],
    ["preprocess", "--config", "no.yaml"],
    ["preprocess", "--min-letters", "3"],
    ["train", "--dataset", "nowhere"],
    ["average", "--run", "nowhere"],
    ["export", "nowhere", "--output", "out", "--checkpoint", "best"],
    ["translate-batch", "in.parquet", "--unit-rows", "0"],
    ["translate-stream", "in", "out", "--group", "g"],
    ["translate", "--protect-regex", "("],
    ["evaluate", "nowhere", "--reference", "nothing"],
    ["memory", "edit"],
    ["demo", "--folder", __file__],
)


def imported_by(*commands):
    """Run commands in a new process, and return the slow libraries that it imported."""
    code = f"""
import sys
from tt.cli.main import main
for arguments in {commands!r}:
    try:
        main(arguments)
    except SystemExit as stopped:
        expected = 0 if arguments[-1] == "--help" else 2
        assert (stopped.code or 0) == expected, (arguments, stopped.code)
    print(*(name for name in {(*SLOW, *ARRAYS)!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_help_of_a_command_imports_no_slow_library():
    """The help therefore takes less than 0.3 seconds."""
    assert not imported_by(["--help"], *([name, "--help"] for name in COMMANDS))


def test_wrong_options_import_neither_tensorflow_nor_beam():
    assert imported_by(*MISTAKES).isdisjoint(SLOW)


def test_list_of_commands_has_the_first_line_of_each_help():
    for name, line in COMMANDS.items():
        assert load_command(name).help.splitlines()[0] == line


@pytest.mark.parametrize("arguments", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help_is_complete_in_80_columns(capsys, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    if arguments:
        command = load_command(*arguments)
        texts = [command.help, *(each.help for each in command.params if each.help)]
    else:
        texts = [*COMMANDS, *COMMANDS.values()]
    assert run(*arguments, ALL if arguments and command.common else "--help") == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    letters = "".join(printed.split())  # lines are also broken after hyphens
    for text in texts:
        assert "".join(text.split()) in letters


def options_in(help_text):
    """Return the first spelling of each option in a help text."""
    return [found[1] for found in re.finditer(r"^  (?:-\w, )?(--[\w-]+)", help_text, re.MULTILINE)]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_at_most_25_options_and_help_all_lists_all(capsys, name):
    command = load_command(name)
    assert run(name, "--help") == 0
    short = options_in(capsys.readouterr().out)
    assert len(short) <= 25
    expected = {option for each in command.params for option in each.opts if option[:2] == "--"}
    expected.add("--help")
    if not command.common:
        assert set(short) == expected
        return
    assert set(short) == {*command.common}
    assert run(name, ALL) == 0
    everything = options_in(capsys.readouterr().out)
    assert set(everything) == expected
    assert len(everything) == len(expected)


@pytest.mark.parametrize("name", COMMANDS)
def test_example_in_the_help_is_a_valid_command_line(name):
    command = load_command(name)
    example = command.help.rpartition("\n\nExample: ")[2]
    words = shlex.split(example)
    assert words[:2] == ["tt", name]
    arguments = words[2 : words.index("<")] if "<" in words else words[2:]
    context = command.make_context(f"tt {name}", list(arguments))
    given = [p for p in command.params if context.get_parameter_source(p.name).name != "DEFAULT"]
    flags = {word for word in arguments if word.startswith("-")}
    assert flags == {p.opts[0] for p in given if p.param_type_name == "option"}


def completed(words):
    """Return the completions that bash would offer for the last word."""
    text = " ".join(words)
    done = subprocess.run(
        [Path(sys.executable).with_name("tt")],
        env=os.environ | {"_TT_COMPLETE": "complete_bash", "COMP_WORDS": text,
                          "COMP_CWORD": str(len(words) - 1)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_shell_completes_commands_and_flags():
    assert completed(["tt", "trans"]) == ["translate-batch", "translate", "translate-stream"]
    assert completed(["tt", "train", "--pat"]) == ["--patience"]


def test_shell_completes_values(capsys):
    assert completed(["tt", "train", "--preset", "s"]) == ["small", "student-tiny", "student-base"]
    assert completed(["tt", "export", "run", "--format", ""]) == list(EXPORTED)
    assert completed(["tt", "preprocess", "--output", ""]) == []
    assert run("average", "--help") == 0
    assert "--of [last|best]" in capsys.readouterr().out
    assert run("train", "--help") == 0
    assert "--preset [tiny|small|base|big|student-tiny|student-base]" in capsys.readouterr().out


def test_help_of_each_option_is_one_short_sentence():
    for name in COMMANDS:
        for parameter in load_command(name).params:
            text = parameter.help.partition("  [")[0]  # without [repeatable] and [default: ...]
            assert len(text) <= LONGEST_HELP, text
            assert re.fullmatch(r"[A-Z].*[^.]\.", text), f"no capital letter or period: {text}"
            assert not re.search(r"[.?!]\s", text), f"more than one sentence: {text}"
