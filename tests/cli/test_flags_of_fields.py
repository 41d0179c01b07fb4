"""Options made of dataclasses: what Typer gets of a field, and what the command gets back."""

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
    """What is left out.

    Attributes:
      min_letters: Least share of letters.
      reject_equal: Reject pairs with two equal sides.
    """

    min_letters: float = 0.25
    reject_equal: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is made, and how.

    Attributes:
      names: Names of what is made: "all", or at most `count`
        of them.

        Only Python's readers see this.
      output: Folder to write.
      count: Number of them.
      form: Form, as it was: NFC.
      limit: At most so many; by default all.
      columns: Columns to read.
      jit: Compile it.
      filters: What is left out.

    Raises:
      UserError: One is wrong: always.
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
    """Prints the options."""
    print(json.dumps([dataclasses.asdict(options), own]))


@app.command("given")
@command()
def given_command(options: Annotated[Given, OPTIONS]) -> None:
    """Prints what is given."""
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


def test_a_command_gets_the_dataclass(run):
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


def test_lists_arrive_as_the_tuples_of_the_dataclass():
    values = {option.parameter: None for option in OPTIONS.options}
    assert OPTIONS.given({**values, "names": ["a"]}) == {"names": ("a",)}


def test_a_command_gets_what_was_given_alone(run, tmp_path):
    assert json.loads(run("given", "a")) == {"names": ["a"], "output": "out", "filters": "None"}
    file = tmp_path / "c.yaml"
    file.write_text("count: 3\nkeep_equal: false\njit: false\ncolumn: z\n")
    assert json.loads(run("given", "a", "--config", str(file), "--jit")) == {
        "names": ["a"], "output": "out", "count": 3, "jit": True, "columns": ["z"],
        "filters": "Filters(min_letters=0.25, reject_equal=True)",
    }  # fmt: skip


def test_the_help_is_what_the_dataclass_says(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = " ".join(run("whole", "--help").split())
    for text in (
        "NAMES <list[str]> Names of what is made: all, or at most --count of them. ",
        "Output: --output <str> Folder to write. [default: out] "
        "--count <int> Number of them. [default: 3]",
        "--form [NFC|none] Form, as it was: NFC. [default: as it is]",
        "--limit <int> At most so many; by default all. --column",
        "--column <str>... Columns to read. --jit Compile it. Output:",
        "Filters: --min-letters <float> Least share of letters. [default: 0.25] "
        "--reject-equal / --keep-equal Reject pairs with two equal sides. "
        "[default: --reject-equal]",
        "--own <int> [default: 1]",
    ):
        assert text in printed
    assert "Python" not in printed


def test_what_is_required_is_asked_for(run):
    assert "Missing argument 'NAMES'" in run("whole", code=2)


def test_fields_are_left_out_alone_or_with_all_that_they_hold():
    left = options_of(Options, leave_out=("filters.min_letters", "count")).options
    assert {"filters.reject_equal", "limit"} <= {option.field for option in left}
    assert not {"filters.min_letters", "count"} & {option.field for option in left}
    left = options_of(Options, leave_out=("filters",)).options
    assert not any(option.field.startswith("filters") for option in left)


def test_two_options_of_one_name_are_an_error():
    with pytest.raises(ValueError, match="duplicate parameter name: 'own'"):

        @command()
        def twice(
            options: Annotated[Options, options_of(Options, flags={"jit": "--own"})], own: int
        ) -> None: ...


def test_a_field_without_a_description_is_an_error():
    @dataclasses.dataclass
    class Bare:
        """Something."""

        field: int = 1

    assert describe_fields(Bare) == {}
    with pytest.raises(KeyError, match="field"):
        options_of(Bare)
