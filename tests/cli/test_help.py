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

from tt.cli.flags_of_fields import describe_fields
from tt.cli.main import load_command
from tt.cli.shared_options import COMMANDS
from tt.model.engines.translator import Engine
from tt.model.text.normalization import TextNormalization
from tt.model.text.spans import Protection
from tt.model.training.exporting import FORMATS as EXPORTED
from tt.model.training.exporting import AverageRequest
from tt.model.training.options import STRATEGIES, TrainingConfig
from tt.model.training.request import TrainRequest
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.search_options import Decoding
from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest
from tt.pipelines.reports.requests import EvaluateRequest
from tt.pipelines.runners.options import RunnerOptions
from tt.pipelines.streams.options import StreamOptions
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.translate.options import TranslateOptions, WatchOptions

ROOT = Path(__file__).parents[2]
ALL = "--help-all"
LONGEST_HELP = 90  # characters
SLOW = ("tensorflow", "keras", "apache_beam")
ARRAYS = ("numpy", "pyarrow", "langcodes")  # each takes 0.05 seconds

MISTAKES = (
    ["preprocess", "--seed", "x"],
    ["preprocess", "--config", "no.yaml"],
    ["preprocess", "--shards", "-1"],
    ["preprocess", "--min-letters", "3"],
    ["train", "--steps", "x"],
    ["train", "--dataset", "nowhere"],
    ["average", "--of", "newest"],
    ["average", "--run", "nowhere"],
    ["export", "model", "--output", "gs://bucket/model"],
    ["export", "model", "--output", "out", "--format", "onnx"],
    ["export", "nowhere", "--output", "out"],
    ["export", "nowhere", "--output", "out", "--checkpoint", "best"],
    ["translate-batch"],
    ["translate-batch", "in.parquet", "--unit-rows", "0"],
    ["translate-stream", "in", "out", "--group", "g"],
    ["translate-stream", "kafka://a:1/t", "kafka://a:1/u", "--group", "g", "--max-batch", "0"],
    ["translate", "--beam-size", "0"],
    ["translate", "--protect-regex", "("],
    ["translate-batch", "in.parquet", "--protect-regex", "x*"],
    ["translate", "--placeholders", "9"],
    ["translate", "--model", "nowhere"],
    ["evaluate", "nowhere", "--reference", "nothing"],
    ["memory", "edit"],
    ["memory", "show", "--output", "x"],
    ["evaluate", "a.txt", "--reference", "a.txt", "--tokenize", "x"],
    ["demo", "--folder", __file__],
    ["demo", "--folder", "/dev/null/x"],
    ["demo", "--fold", "x"],
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


def test_list_of_commands_imports_no_slow_library():
    assert not imported_by(["--help"])


def test_help_of_a_command_imports_no_slow_library():
    """The help therefore takes less than 0.3 seconds."""
    assert not imported_by(*([name, "--help"] for name in COMMANDS))


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
def test_help_names_values_by_metavars_and_not_by_python_types(capsys, name):
    assert run(name, ALL if load_command(name).common else "--help") == 0
    assert not re.search(r"<(str|int|float|path|list)\b", capsys.readouterr().out)


def test_help_uses_the_width_of_the_terminal(capsys, monkeypatch):
    widths = {}
    for columns in (70, 100, 300):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run("train", "--help") == 0
        widths[columns] = max(map(len, capsys.readouterr().out.splitlines()))
    assert widths[70] <= 70
    assert 90 < widths[100] <= 100
    assert 110 < widths[300] <= 120


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
    assert completed(["tt", "train", "--strategy", "m"]) == ["mirrored", "multi-worker"]
    assert completed(["tt", "export", "run", "--format", ""]) == list(EXPORTED)
    assert completed(["tt", "import", "h"]) == ["huggingface"]
    assert completed(["tt", "translate", "--flags", "no"]) == ["none"]
    assert completed(["tt", "preprocess", "--unicode-form", "NFK"]) == ["NFKC"]
    assert completed(["tt", "preprocess", "--output", ""]) == []
    assert run("average", "--help") == 0
    assert "--of [last|best]" in capsys.readouterr().out
    assert run("train", "--help") == 0
    assert "--preset [tiny|small|base|big|student-tiny|student-base]" in capsys.readouterr().out


def test_fields_with_choices_complete_them():
    """All fields that `require_one_of` checks are defined with `one_of`."""
    checked = 0
    for path in (*ROOT.glob("model/**/*.py"), *ROOT.glob("pipelines/**/*.py")):
        text = path.read_text("utf-8")
        for field in re.findall(r"require_one_of\([^)]*?self\.(\w+),", text):
            checked += 1
            is_literal = re.search(rf"^    {field}: UnicodeForm", text, re.MULTILINE)
            assert is_literal or re.search(rf"^    {field}: .*= one_of\(", text, re.MULTILINE), path
    assert checked > 15


def test_strategies_in_the_help_are_the_implemented_ones():
    from tt.model.training import strategies

    assert strategies.STRATEGIES == STRATEGIES


@pytest.mark.parametrize("name", COMMANDS)
def test_help_texts_are_self_contained(name):
    for parameter in load_command(name).params:
        assert parameter.help, parameter.name
        assert not re.match(r"(Of|That|The same|Likewise|Such)\b", parameter.help), parameter.help
        own = parameter.help.partition("[default")[0]  # a flag has the name "pieces"
        assert not re.search(r"\b(ids|pieces)\b", own), parameter.help
        assert not re.search("`[a-z_]+`", parameter.help), (
            "the help must show flags instead of fields"
        )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_option_is_one_short_sentence(name):
    for parameter in load_command(name).params:
        text = parameter.help.partition("  [")[0]  # without [repeatable] and [default: ...]
        assert len(text) <= LONGEST_HELP, text
        assert re.fullmatch(r"[A-Z].*[^.]\.", text), f"no capital letter or period: {text}"
        assert not re.search(r"[.?!]\s", text), f"more than one sentence: {text}"


# Fields without flags: the dataset or other flags set them, or they are nested dataclasses.
SIZES = {"source_vocabulary_size", "target_vocabulary_size", "shared_vocabulary"}
# Set by `tt import huggingface`.
OF_OPUS = {"activation", "projection_bias", "output_bias", "zero_start", "source_bos"}
NO_FLAGS = {
    TextOptions: ("protection",),  # The fields of this dataclass are flags.
    PreprocessRequest: {"options", "beam_arguments"},
    PreprocessOptions: {"filters", "normalization"},
    Filters: {"source_script", "target_script"},  # from a script or "auto"
    TrainRequest: {"model", "training", "devices", "dataset_name", "fetch_model"},
    TransformerConfig: {*SIZES, *OF_OPUS, "layers"},  # --encoder-layers and --decoder-layers
    TranslateOptions: {"texts", "corpus"},  # `tt back-translate` sets corpus
    StreamOptions: {"texts"},
}
# Preprocessing does not use GPUs, and lines have no columns.
NO_FLAG_OF = {("preprocess", "accelerator"), ("translate", "detect_language")}


@pytest.mark.parametrize(
    ("name", "kinds"),
    {
        "preprocess": (
            PreprocessRequest, PreprocessOptions, Filters, TextNormalization, RunnerOptions,
        ),
        "train": (TrainRequest, TransformerConfig, TrainingConfig),
        "average": (AverageRequest,),
        "translate-batch": (
            TranslateOptions, TextOptions, Protection, Engine, Decoding, RunnerOptions,
            WatchOptions,
        ),
        "translate-stream": (
            StreamOptions, TextOptions, Protection, RunnerOptions, Engine, Decoding,
        ),
        "translate": (TextOptions, Protection, Engine, Decoding),
        "evaluate": (EvaluateRequest,),
    }.items(),
    ids=str,
)  # fmt: skip
def test_each_field_is_an_option_with_its_description(name, kinds):
    command = load_command(name)
    helps = {parameter.name: parameter.help for parameter in command.params}
    options = command.callback.option_fields
    expected = {
        (field, re.split('[`"]|; repeatable| By default', text)[0])
        for kind in kinds
        for field, text in describe_fields(kind).items()
        if field not in NO_FLAGS.get(kind, ()) and (name, field) not in NO_FLAG_OF
    }
    fields = {field for field, _ in expected}
    found = {option.rpartition(".")[2]: parameter for option, parameter in options.items()}
    assert set(found) == fields
    for field, begin in expected:
        assert any(
            helps[parameter].startswith(begin)
            for option, parameter in options.items()
            if option.rpartition(".")[2] == field
        ), field
