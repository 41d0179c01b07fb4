"""The help of every command, which is as quick as a mistake in its flags."""

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
from tt.pipelines.translate.options import TranslateOptions

ROOT = Path(__file__).parents[2]
ALL = "--help-all"
SLOW = ("tensorflow", "keras", "apache_beam")
ARRAYS = ("numpy", "pyarrow", "langcodes")  # a twentieth of a second each

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
    ["evaluate", "a.txt", "--reference", "a.txt", "--tokenize", "x"],
    ["demo", "--folder", __file__],
    ["demo", "--folder", "/dev/null/x"],
    ["demo", "--fold", "x"],
)


def imported_by(*commands):
    """Runs commands in a process of its own; returns which slow libraries it imported."""
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


def test_the_list_of_commands_needs_no_library():
    assert not imported_by(["--help"])


def test_the_help_of_a_command_needs_no_library():
    """So that it takes less than 0.3 seconds."""
    assert not imported_by(*([name, "--help"] for name in COMMANDS))


def test_a_mistake_in_flags_or_config_needs_neither_tensorflow_nor_beam():
    assert imported_by(*MISTAKES).isdisjoint(SLOW)


def test_the_list_says_of_each_command_what_its_help_says():
    for name, line in COMMANDS.items():
        assert load_command(name).help.splitlines()[0] == line


@pytest.mark.parametrize("arguments", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help_fits_80_columns_whole(capsys, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    if arguments:
        command = load_command(*arguments)
        texts = [command.help, *(each.help for each in command.params if each.help)]
    else:
        texts = [*COMMANDS, *COMMANDS.values()]
    assert run(*arguments, ALL if arguments and command.common else "--help") == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    letters = "".join(printed.split())  # lines are broken behind hyphens, too
    for text in texts:
        assert "".join(text.split()) in letters


def options_in(help_text):
    """Return the options that a help lists, each by its first spelling."""
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


def test_help_uses_the_width_of_the_terminal(capsys, monkeypatch):
    widths = {}
    for columns in (60, 100, 300):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run("train", "--help") == 0
        widths[columns] = max(map(len, capsys.readouterr().out.splitlines()))
    assert widths[60] <= 60
    assert 90 < widths[100] <= 100
    assert 110 < widths[300] <= 120


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_an_example_that_is_parsed(name):
    """The last lines of its help; the flags and arguments have to be there, and to suit."""
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
    """Returns what bash would offer for the last of the words."""
    text = " ".join(words)
    done = subprocess.run(
        [Path(sys.executable).with_name("tt")],
        env=os.environ | {"_TT_COMPLETE": "complete_bash", "COMP_WORDS": text,
                          "COMP_CWORD": str(len(words) - 1)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_a_shell_completes_commands_and_flags():
    assert completed(["tt", "trans"]) == ["translate-batch", "translate", "translate-stream"]
    assert completed(["tt", "train", "--pat"]) == ["--patience"]


def test_a_shell_completes_values(capsys):
    assert completed(["tt", "train", "--preset", "s"]) == ["small", "student-tiny", "student-base"]
    assert completed(["tt", "train", "--strategy", "m"]) == ["mirrored", "multi-worker"]
    assert completed(["tt", "export", "run", "--format", ""]) == list(EXPORTED)
    assert completed(["tt", "import", "m"]) == ["marian"]
    assert completed(["tt", "translate", "--flags", "no"]) == ["none"]
    assert completed(["tt", "preprocess", "--unicode-form", "NFK"]) == ["NFKC"]
    assert completed(["tt", "preprocess", "--output", ""]) == []
    assert run("average", "--help") == 0
    assert "--of [last|best]" in capsys.readouterr().out
    assert run("train", "--help") == 0
    assert "--preset [tiny|small|base|big|student-tiny|student-base]" in capsys.readouterr().out


def test_what_is_checked_against_choices_offers_them():
    """All fields that `require_one_of` checks are made by `one_of`."""
    checked = 0
    for path in (*ROOT.glob("model/**/*.py"), *ROOT.glob("pipelines/**/*.py")):
        text = path.read_text("utf-8")
        for field in re.findall(r"require_one_of\([^)]*?self\.(\w+),", text):
            checked += 1
            is_literal = re.search(rf"^    {field}: UnicodeForm", text, re.MULTILINE)
            assert is_literal or re.search(rf"^    {field}: .*= one_of\(", text, re.MULTILINE), path
    assert checked > 15


def test_the_strategies_that_are_offered_are_those_that_there_are():
    from tt.model.training import strategies

    assert strategies.STRATEGIES == STRATEGIES


@pytest.mark.parametrize("name", COMMANDS)
def test_each_line_of_help_stands_alone(name):
    for parameter in load_command(name).params:
        assert parameter.help, parameter.name
        assert not re.match(r"(Of|That|The same|Likewise|Such)\b", parameter.help), parameter.help
        assert not re.search(r"\b(ids|pieces)\b", parameter.help), parameter.help
        assert not re.search("`[a-z_]+`", parameter.help), "a field is shown as its flag"


# What comes from the dataset, is an option's own dataclass, or is made of other flags.
SIZES = {"source_vocabulary_size", "target_vocabulary_size", "shared_vocabulary"}
OF_MARIAN = {  # set by `tt import marian`
    "position_scale", "activation", "projection_bias", "output_bias", "embedding_norm",
    "zero_start", "source_bos",
}  # fmt: skip
NO_FLAGS = {
    TextOptions: ("protection",),  # whose fields are flags
    PreprocessRequest: {"options", "beam_arguments"},
    PreprocessOptions: {"filters", "normalization"},
    Filters: {"source_script", "target_script"},  # from a script or "auto"
    TrainRequest: {"model", "training", "devices", "dataset_name", "fetch_model"},
    TransformerConfig: {*SIZES, *OF_MARIAN, "layers"},  # --encoder-layers and --decoder-layers
    TranslateOptions: {"texts"},
    StreamOptions: {"texts"},
}
NOT_OF = {("preprocess", "accelerator")}  # which has no work for GPUs


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
        ),
        "translate-stream": (
            StreamOptions, TextOptions, Protection, RunnerOptions, Engine, Decoding,
        ),
        "translate": (TextOptions, Protection, Engine, Decoding),
        "evaluate": (EvaluateRequest,),
    }.items(),
    ids=str,
)  # fmt: skip
def test_each_field_is_an_option_of_its_command_with_its_help(name, kinds):
    command = load_command(name)
    helps = {parameter.name: parameter.help for parameter in command.params}
    options = command.callback.option_fields
    expected = {
        (field, text.partition("`")[0].partition('"')[0])
        for kind in kinds
        for field, text in describe_fields(kind).items()
        if field not in NO_FLAGS.get(kind, ()) and (name, field) not in NOT_OF
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
