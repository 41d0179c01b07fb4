"""`--config`: commands receive a file's values like flags, and errors have one line."""

import json
from textwrap import indent
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
    """Make `show` a subcommand, like the commands of `tt`."""


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
    """Print all values."""
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
    """Print all values; at least one name is required."""
    print(json.dumps([names, output_folder]))


DEFAULTS = {
    "corpora": [], "language": None, "subset": [], "seed": 1, "max_tokens": None,
    "fraction": 0.5, "download": False, "reject_equal": None, "beam": [],
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command with a file, and returns its output or its error."""
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
corpora: [a.tsv, b=c.en+c.de]   # keys can be names of arguments
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


def test_file_can_set_all_options(run):
    assert run(EVERYTHING) == {
        "corpora": ["a.tsv", "b=c.en+c.de"], "language": "no",
        "subset": ["train=x", "validation=y"], "seed": 7, "max_tokens": 100, "fraction": 0.001,
        "download": True, "reject_equal": False, "beam": ["--direct_num_workers=2"],
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "language:\nseed:\nsubset: []\n"])
def test_missing_and_empty_keys_mean_defaults(run, text):
    assert run(text) == DEFAULTS


def test_command_line_takes_precedence(run):
    found = run(
        EVERYTHING, "d.tsv", "--language", "de", "--subset", "z", "--seed", "1", "--max-tokens",
        "5", "--fraction", "0.5", "--reject-equal", beam=["--x"],
    )  # fmt: skip
    assert found == {
        "corpora": ["d.tsv"], "language": "de", "subset": ["z"], "seed": 1, "max_tokens": 5,
        "fraction": 0.5, "download": True, "reject_equal": True, "beam": ["--x"],
    }  # fmt: skip


@pytest.mark.parametrize("order", [["--seed", "3", "--config"], ["--config"]])
def test_position_of_the_flag_does_not_matter(run, tmp_path, capsys, order):
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
        ("fraction: 1", "fraction", 1.0),
        ("keep-equal: true", "reject_equal", False),
        ("keep_equal: false", "reject_equal", True),
        ("max-tokens: 1_000", "max_tokens", 1000),
        ("beam: --x=1", "beam", ["--x=1"]),
        ("beam:", "beam", []),
        ("language: no", "language", "no"),
        ("language: null", "language", "null"),
        ("language: !!python/name:os.system", "language", None),
    ],
)
def test_values_are_parsed_like_flags(run, text, key, value):
    assert run(text)[key] == value


def test_file_can_set_required_values(run):
    assert run("names: [a, b]\noutput: there", name="plain") == [["a", "b"], "there"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("language: [a, b]", "c.yaml: language must be a single value. Received: ['a', 'b']"),
        ("corpora: {a: b}", "corpora must be a list of values. Received: {'a': 'b'}"),
        ("beam: [2]\nbeams: 3", "there is no option beams. Did you mean beam?"),
        ("reject_equal: true\nkeep-equal: true", "c.yaml sets reject_equal twice"),
        ("seed: 1\nseed: 2", "c.yaml is not valid YAML: the key seed occurs twice"),
        ("train: {max-tokens: 1, max_tokens: 2}", "the key max_tokens occurs twice"),
        ("train: {seed: 1}\nseed: 2", "c.yaml has sections, but seed is not a command"),
        ("max_token: 3", "there is no option max_token. Did you mean max_tokens?"),
        ("seed: 3\nsubset: [a", "c.yaml is not valid YAML: while parsing a flow sequence"),
        ("- seed", "c.yaml must map options to values, one per line, as in 'seed: 1'. Received: "
                   "['seed']"),
        ("train: {seed: 1}\nshow: [a]", "c.yaml: show must map options to values"),
        ("train: {seed: 1}", "c.yaml has no section show, only train. Add"),
    ],
)  # fmt: skip
def test_errors_have_one_line(run, text, message):
    line = run(text)
    assert line.startswith("tt: error: c.yaml")
    assert message in line


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{BOMB}language: *a11", "there is no option a0."),
        (f"language:\n{indent(BOMB, ' ')}", "language must be a single value. Received: {"),
        (f"beam:\n{indent(BOMB, ' ')}", "beam must be a list of options. Received: {"),
        (f"- &s [x]\n{indent(BOMB.replace(': &', ' : &'), '- ')}", "c.yaml must map options to"),
        (f"train:\n{indent(BOMB, ' ')}? [*a11]\n: 1", "not valid YAML: a key is a list or a"),
        ("language: &a [*a]", "c.yaml is not valid YAML: found unconstructable recursive node"),
        (f"subset: {'[' * 5_000}{']' * 5_000}", "c.yaml is nested too deeply. Remove brackets"),
    ],
)
def test_files_with_huge_values_get_one_short_line(run, text, message):
    line = run(text)
    assert message in line
    assert len(line) < 2_500


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.yaml", "no.yaml cannot be read: No such file or directory"),
        ("folder", "folder cannot be read: Is a directory"),
        ("latin.yaml", "latin.yaml is not valid YAML: 'utf-8' codec"),
    ],
)
def test_unreadable_files_are_errors(tmp_path, monkeypatch, name, message):
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
    ],
)
def test_errors_about_types_name_the_flags(tmp_path, capsys, text, message):
    (tmp_path / "c.yaml").write_text(text)
    assert tt("preprocess", "--config", tmp_path / "c.yaml") == 2
    assert capsys.readouterr().err.startswith(f"tt: error: {message}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_accepts_a_config_file(tmp_path, capsys, name):
    flags = [flag for each in load_command(name).params for flag in each.opts + each.secondary_opts]
    keys = {flag.strip("-").replace("-", "_") for flag in flags} - {"config"}
    file = tmp_path / "c.yaml"
    file.write_text("".join(f"{key}:\n" for key in [*sorted(keys), "no_such_key"]))
    assert tt(name, "--config", file) == 2
    said = f"tt: error: {file}: there is no option no_such_key. See `--help`\n"
    assert capsys.readouterr().err == said
