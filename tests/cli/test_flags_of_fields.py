"""Options generated from dataclasses: their help, and the values that commands receive."""

import dataclasses
import json
from typing import Annotated, Literal

import pytest
import typer

from tt.cli.decorators import command
from tt.cli.flags_of_fields import Given, describe_fields, options_of
from tt.cli.shared_options import GroupedCommand
from tt.model.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters of pairs.

    Attributes:
      min_letters: Least share of letters.
      reject_equal: Reject pairs with two equal sides.
    """

    min_letters: float = 0.25
    reject_equal: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command.

    Attributes:
      names: Names of datasets: "all", or at most `count`
        names.

        Only the documentation of Python shows this paragraph.
      output: Folder to write.
      count: Number of names.
      form: Normal form, by default: NFC.
      limit: Read at most N rows. By default, all rows.
      columns: Columns to read; repeatable.
      jit: Compile the model.
      filters: Filters of pairs.

    Raises:
      UserError: A value is wrong: this section is not part of the help.
    """

    names: tuple[str, ...]
    output: str
    count: int = 3
    form: Literal["NFC", "none"] = "NFC"
    limit: int | None = None
    columns: tuple[str, ...] = ()
    jit: bool = False
    filters: Filters = dataclasses.field(default_factory=Filters)

    def __post_init__(self):
        require(self.count > 0, f"`count` must be positive. Received: {self.count}")


OPTIONS = options_of(
    Options,
    panel="All",
    panels={"Filters": ("filters",), "Output": ("output", "count")},
    flags={
        "names": "NAMES",
        "columns": "--column",
        "filters.reject_equal": "--reject-equal/--keep-equal",
    },
    defaults={"output": "out"},
    shown={"form": "as it is"},
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("whole", cls=GroupedCommand)
@command()
def whole_command(options: Annotated[Options, OPTIONS], own: int = 1) -> None:
    """Print the options."""
    print(json.dumps([dataclasses.asdict(options), own]))


@app.command("given")
@command()
def given_command(options: Annotated[Given, OPTIONS]) -> None:
    """Print the given fields."""
    print(json.dumps({**options, "filters": repr(options.get("filters"))}))


@pytest.fixture
def run(capsys):
    def run(*arguments, code=0):
        with pytest.raises(SystemExit) as stopped:
            app([*arguments])
        assert stopped.value.code == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


def test_command_receives_an_instance_of_the_dataclass(run):
    assert json.loads(run("whole", "a", "b")) == [
        dataclasses.asdict(Options(names=["a", "b"], output="out", columns=[])),
        1,
    ]
    found = run(
        "whole", "a", "--output", "o", "--count", "4", "--form", "none", "--limit", "5", "--column",
        "x", "--column", "y", "--jit", "--keep-equal", "--min-letters", "0", "--own", "2",
    )  # fmt: skip
    filters = Filters(min_letters=0, reject_equal=False)
    assert json.loads(found) == [
        dataclasses.asdict(Options(names=["a"], output="o", count=4, form="none", limit=5,
                                   columns=["x", "y"], jit=True, filters=filters)),
        2,
    ]  # fmt: skip


def test_lists_become_tuples():
    values = {parameter.name: None for parameter in OPTIONS.parameters.values()}
    assert OPTIONS.given({**values, "names": ["a"]}) == {"names": ("a",)}


def test_command_receives_only_the_given_fields(run, tmp_path):
    assert json.loads(run("given", "a")) == {"names": ["a"], "output": "out", "filters": "None"}
    file = tmp_path / "c.yaml"
    file.write_text("count: 3\nkeep_equal: false\njit: false\ncolumn: z\n")
    assert json.loads(run("given", "a", "--config", str(file), "--jit")) == {
        "names": ["a"], "output": "out", "count": 3, "jit": True, "columns": ["z"],
        "filters": "Filters(min_letters=0.25, reject_equal=True)",
    }  # fmt: skip


def test_help_shows_the_descriptions_of_the_dataclass(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = " ".join(run("whole", "--help").split())
    for text in (
        "NAMES Names of datasets: all, or at most --count names. [repeatable]",
        "Output: --output PATH Folder to write. [default: out] "
        "--count N Number of names. [default: 3]",
        "--form [NFC|none] Normal form, by default: NFC. [default: as it is]",
        "--limit N Read at most N rows. [default: all rows] --column",
        "--column COLUMN Columns to read. [repeatable] --jit Compile the model. Output:",
        "Filters: --min-letters NUMBER Least share of letters. [default: 0.25] "
        "--reject-equal / --keep-equal Reject pairs with two equal sides. "
        "[default: --reject-equal]",
        "--own <int> [default: 1]",
    ):
        assert text in printed
    assert "documentation" not in printed


def test_missing_argument_is_an_error(run):
    assert "Missing argument 'NAMES'" in run("whole", code=2)


def test_fields_and_nested_dataclasses_can_be_left_out():
    left = options_of(Options, leave_out=("filters.min_letters", "count")).parameters
    assert {"filters.reject_equal", "limit"} <= left.keys()
    assert not {"filters.min_letters", "count"} & left.keys()
    left = options_of(Options, leave_out=("filters",)).parameters
    assert not any(field.startswith("filters") for field in left)


def test_two_options_with_the_same_name_are_an_error():
    with pytest.raises(ValueError, match="duplicate parameter name: 'own'"):

        @command()
        def twice(
            options: Annotated[Options, options_of(Options, flags={"jit": "--own"})], own: int
        ) -> None: ...


def test_field_without_description_is_an_error():
    @dataclasses.dataclass
    class Bare:
        """A dataclass without descriptions."""

        field: int = 1

    assert describe_fields(Bare) == {}
    with pytest.raises(KeyError, match="field"):
        options_of(Bare)
