"""Messages of the library name flags instead of fields on the command line."""

import dataclasses
from typing import Annotated

import pytest
import typer

from tt.cli.decorators import command
from tt.cli.errors import say
from tt.cli.flags_of_fields import Given, options_of
from tt.model.errors import UserError, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    """Limits.

    Attributes:
      name: Name.
      most: Upper limit.
      least: Lower limit.
    """

    name: str = "a"
    most: int = 5
    least: int = 1

    def __post_init__(self):
        require(self.least > 0, f"`least` must be positive. Received: {self.least}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    """Options.

    Attributes:
      texts: Texts.
      keep_case: Keep upper case.
      inner: Limits.
      other: More limits.
    """

    texts: tuple[str, ...] = ()
    keep_case: bool = False
    inner: Inner = dataclasses.field(default_factory=Inner)
    other: Inner = dataclasses.field(default_factory=Inner)


FLAGS = {"texts": "--text", "keep_case": "--keep-case/--lowercase", "inner.name": "--engine",
         "other.most": "--others"}  # fmt: skip

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@command()
def main_command(
    message: Annotated[str, typer.Argument(metavar="WHAT")],
    given: Annotated[
        Given, options_of(Outer, flags=FLAGS, leave_out=("other.name", "other.least"))
    ],
    beam_size: int = 4,
) -> None:
    """Print the message, and raise it as an error."""
    say(f"note: {message}")
    raise UserError(message)


def printed(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        app([*arguments])
    assert stopped.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("`beam_size` must be at least 1", "--beam-size must be at least 1"),
        ("`texts` must differ: `texts=a`", "--text must differ: --text a"),
        ("`inner.most` and `other.most`", "--most and --others"),
        ("`name` must be known", "--engine must be known"),
        ("`keep_case=True`, `keep_case=False`", "--keep-case, --lowercase"),
        ("`message` is empty", "WHAT is empty"),
        ("`tt export`, `no_option`, `other.name`", "`tt export`, `no_option`, `other.name`"),
        ("`a.yaml`: beam_size", "`a.yaml`: beam_size"),
        ("`table_columns` was not set and is now 3", "table columns was not set and is now 3"),
    ],
)
def test_fields_in_messages_become_flags(capsys, message, expected):
    assert printed(capsys, message) == [f"note: {expected}", f"tt: error: {expected}"]


def test_error_of_a_dataclass_names_the_flag(capsys, tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("least: 0\n")
    for given in (["--least", "0"], ["--config", str(file)]):
        with pytest.raises(SystemExit):
            app(["message", *given])
        message = "tt: error: --least must be positive. Received: 0\n"
        assert capsys.readouterr().err == message
