"""`--config`: what a file says reaches the command as flags do, and its errors take one line."""

import json
from typing import Annotated

import pytest
import typer
from command_line import run as tt

from tt.cli.config_file import read_config
from tt.cli.decorators import command
from tt.cli.main import load_command
from tt.cli.shared_options import COMMANDS
from tt.model.errors import UserError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback()
def program():
    """Makes `show` a command among others, as those of `tt` are."""


@app.command("show")
@command(takes_beam=True)
def show_command(
    context: typer.Context,
    corpora: Annotated[list[str] | None, typer.Argument()] = None,
    language: Annotated[str | None, typer.Option()] = None,
    subset: Annotated[list[str] | None, typer.Option()] = None,
    seed: Annotated[int, typer.Option()] = 1,
    max_tokens: Annotated[int | None, typer.Option()] = None,
    fraction: Annotated[float, typer.Option()] = 0.5,
    download: Annotated[bool, typer.Option("--download")] = False,
    reject_equal: Annotated[bool | None, typer.Option("--reject-equal/--keep-equal")] = None,
) -> None:
    """Prints what it was given."""
    print(
        json.dumps(
            {
                "corpora": list(corpora or ()),
                "language": language,
                "subset": list(subset or ()),
                "seed": seed,
                "max_tokens": max_tokens,
                "fraction": fraction,
                "download": download,
                "reject_equal": reject_equal,
                "beam": context.obj,
            }
        )
    )


@app.command("plain")
@command()
def plain_command(
    names: Annotated[list[str], typer.Argument()],
    output_folder: Annotated[str, typer.Option("--output")] = "out",
) -> None:
    """Prints what it was given; it must be given a name."""
    print(json.dumps([names, output_folder]))


DEFAULTS = {
    "corpora": [], "language": None, "subset": [], "seed": 1, "max_tokens": None,
    "fraction": 0.5, "download": False, "reject_equal": None, "beam": [],
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a command with a file of the given text; returns what it prints, or its error."""
    monkeypatch.chdir(tmp_path)

    def run(text, *arguments, name="show", beam=()):
        (tmp_path / "c.yaml").write_text(text)
        with pytest.raises(SystemExit) as stopped:
            app([name, "--config", "c.yaml", *arguments], obj=list(beam))
        printed = capsys.readouterr()
        if stopped.value.code:
            assert stopped.value.code == 2
            [line] = printed.err.splitlines()
            return line
        return json.loads(printed.out)

    return run


EVERYTHING = """
corpora: [a.tsv, b=c.en+c.de]   # names of arguments are keys too
language: 'no'
subset:
  - train=x
  - validation=y
seed: 7
max-tokens: 100
fraction: 1e-3
download: true
reject_equal: false
beam: ["--direct_num_workers=2"]
"""


def test_a_file_says_all_that_flags_can(run):
    assert run(EVERYTHING) == {
        "corpora": ["a.tsv", "b=c.en+c.de"], "language": "no",
        "subset": ["train=x", "validation=y"], "seed": 7, "max_tokens": 100, "fraction": 0.001,
        "download": True, "reject_equal": False, "beam": ["--direct_num_workers=2"],
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "language:\nseed:\nsubset: []\n"])
def test_what_a_file_does_not_say_is_as_without_it(run, text):
    assert run(text) == DEFAULTS


def test_the_command_line_wins(run):
    found = run(
        EVERYTHING, "d.tsv", "--language", "de", "--subset", "z", "--seed", "1", "--max-tokens",
        "5", "--fraction", "0.5", "--reject-equal", beam=["--x"],
    )  # fmt: skip
    assert found == {
        "corpora": ["d.tsv"], "language": "de", "subset": ["z"], "seed": 1, "max_tokens": 5,
        "fraction": 0.5, "download": True, "reject_equal": True, "beam": ["--x"],
    }  # fmt: skip


@pytest.mark.parametrize("order", [["--seed", "3", "--config"], ["--config"]])
def test_the_place_of_the_flag_does_not_matter(run, tmp_path, capsys, order):
    (tmp_path / "c.yaml").write_text("seed: 7\nlanguage: de\n")
    after = [] if len(order) == 3 else ["--seed", "3"]
    with pytest.raises(SystemExit):
        app(["show", *order, "c.yaml", *after], obj=[])
    assert json.loads(capsys.readouterr().out) == DEFAULTS | {"seed": 3, "language": "de"}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("corpora: a.tsv", "corpora", ["a.tsv"]),
        ("language: 0", "language", "0"),
        ("subset: [1, b]", "subset", ["1", "b"]),
        ("fraction: 1", "fraction", 1.0),
        ("keep-equal: true", "reject_equal", False),
        ("keep_equal: false", "reject_equal", True),
        ("keep_equal: Yes", "reject_equal", False),
        ("keep_equal: [off]", "reject_equal", True),
        ("max-tokens: 1_000", "max_tokens", 1000),
        ("beam: --x=1", "beam", ["--x=1"]),
        ("beam:", "beam", []),
        ("language: no", "language", "no"),
        ("language: null", "language", "null"),
        ("language: 2024-13-45", "language", "2024-13-45"),
        ("language: !!python/name:os.system", "language", None),
    ],
)
def test_values_are_read_as_flags_would_read_them(run, text, key, value):
    assert run(text)[key] == value


def test_a_file_can_give_what_a_command_requires(run):
    assert run("names: [a, b]\noutput: there", name="plain") == [["a", "b"], "there"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("language: [a, b]", "c.yaml: language must be a single value. Received: ['a', 'b']"),
        ("language: {a: b}", "language must be a single value. Received: {'a': 'b'}"),
        ("corpora: {a: b}", "corpora must be a list of values. Received: {'a': 'b'}"),
        ("beam: [2]\nbeams: 3", "there is no option beams: did you mean beam?"),
        ("beam: {runner: X}", "beam must be a list of values. Received: {'runner': 'X'}"),
        ("beam: [[a]]", "beam must be a list of values. Received: [['a']]"),
        ("reject_equal: true\nkeep-equal: true", "c.yaml gives reject_equal twice"),
        ("seed: 1\nseed: 2", "c.yaml is not valid YAML: the key seed occurs twice"),
        ("train: {max-tokens: 1, max_tokens: 2}", "the key max_tokens occurs twice"),
        ("train: {seed: 1}\nseed: 2", "c.yaml has sections, but seed is no command"),
        ("max_token: 3", "there is no option max_token: did you mean max_tokens?"),
        ("config: x.yaml", "there is no option config: `--help` lists the options"),
        ("12: 3", "there is no option 12: `--help` lists the options"),
        ("seed: 3\nsubset: [a", "c.yaml is not valid YAML: while parsing a flow sequence"),
        ("language: \x00", "c.yaml is not valid YAML: unacceptable character"),
        ("- seed", "c.yaml must map options to values, one per line, as in 'seed: 1'. Received: "
                   "['seed']"),
        ("--seed 3", "c.yaml must map options to values"),
        ("train: {seed: 1}\nshow: [a]", "c.yaml: show must map options to values"),
        ("train: {seed: 1}", "c.yaml has no section show. It has train: add one"),
    ],
)  # fmt: skip
def test_errors_take_one_line(run, text, message):
    line = run(text)
    assert line.startswith("tt: error: c.yaml")
    assert message in line


def test_only_commands_with_beam_take_its_options(run):
    assert "there is no option beam:" in run("beam: [x]", name="plain")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.yaml", "no.yaml cannot be read: No such file or directory"),
        ("folder", "folder cannot be read: Is a directory"),
        ("gs://bucket/c.yaml", "gs://bucket/c.yaml is not on this machine"),
        ("latin.yaml", "latin.yaml is not valid YAML: 'utf-8' codec"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.yaml").write_bytes("language: é".encode("latin-1"))
    with pytest.raises(UserError, match=message):
        read_config(name, command="train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: five", "--seed must be a whole number. Received: five."),
        ("validation_fraction: much", "--validation-fraction must be a number. Received: much."),
        ("download: maybe", "--download must be true or false. Received: maybe."),
        ("keep_identical: maybe", "--reject-identical must be true or false. Received: maybe."),
    ],
)
def test_values_of_the_wrong_type_are_named_by_their_flags(tmp_path, capsys, text, message):
    (tmp_path / "c.yaml").write_text(text)
    assert tt("preprocess", "--config", tmp_path / "c.yaml") == 2
    assert capsys.readouterr().err.startswith(f"tt: error: {message}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_a_config_file(tmp_path, capsys, name):
    flags = [flag for each in load_command(name).params for flag in each.opts + each.secondary_opts]
    keys = {flag.strip("-").replace("-", "_") for flag in flags} - {"config"}
    file = tmp_path / "c.yaml"
    file.write_text("".join(f"{key}:\n" for key in [*sorted(keys), "no_such_key"]))
    assert tt(name, "--config", file) == 2
    said = f"tt: error: {file}: there is no option no_such_key: `--help` lists the options\n"
    assert capsys.readouterr().err == said
