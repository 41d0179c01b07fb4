"""Flags generated from dataclasses, so that each option is defined in one place.

    @command()
    def translate_command(
        decoding: Annotated[Decoding, options_of(Decoding, panel="Search")],
        model: ModelFolder = str(DEFAULT_RUN),
    ) -> None:

gives `tt translate` one flag per field of `Decoding`: `beam_size: int = 4` becomes `--beam-size N
[default: 4]`. The type of the field determines the form of the flag:

- A tuple becomes a repeatable flag.
- A bool becomes `--x`, or `--x/--no-x` if its default is true.
- A nested dataclass contributes the flags of its own fields, whose names contain dots.
- The shell completes the choices of a field that `one_of` creates.

The help of a flag is the field's text under `Attributes:`, up to the first blank line. This text
must be right in Python and on the command line. The help shows some parts of the text differently:

- Other fields in backticks, such as `beam_size` or `beam_size=4`, become flags. `tt.cli.errors`
  does the same in messages.
- Choices lose their double quotes.
- A last sentence "By default ..." becomes `[default: ...]`.
- "; repeatable" becomes `[repeatable]`.

The function receives an instance of the dataclass. If its parameter is annotated with
`Annotated[Given, options_of(Decoding)]`, it receives a dict of the fields that a flag or `--config`
sets.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from tt.model.errors import CHOICES

Given = dict[str, Any]  # the fields that a flag or a file sets, by name

_ENTRY = re.compile(r"  (\w+): +(.*)")
FIELD = re.compile(r"`([a-z_][\w.]*)(?:=([^`]*))?`")  # in texts and messages
_LONGEST_CHOICES = 50  # characters that fit next to a flag in a help of 80 columns
_DEFAULT = re.compile(r" By default,? ([^.]*(?:\.\d[^.]*)*)\.$")  # the last sentence of a text
_REPEATABLE = re.compile(r"; repeatable\b")

# The name of a flag's value in the help, by the last word of the field.
_METAVARS = {
    **dict.fromkeys(
        (
            "against", "config", "dataset", "dir", "exclude", "file", "from", "glossary", "memory",
            "model", "of", "output", "references", "run", "source", "staging", "target", "vocab",
            "vocabulary",
        ),
        "PATH",
    ),
    "address": "ADDRESS",
    **dict.fromkeys(("column", "columns", "fields"), "COLUMN"),
    "language": "LANG",
    "filter": "SHARE|COSINE",
    "key": "COLUMN",
    "letter": "TOPIC",
    "master": "HOST:PORT",
    "pair": "SOURCE-TARGET",
    "regex": "REGEX",
    "scorer": "COMMAND",
    "script": "SCRIPT",
    "subsets": "SPLIT=NAME",
    "type": "TYPE",
    "validation": "CORPUS",
    "watch": "INTERVAL",
    "weights": "NAME=SHARE",
    "where": "CONDITION",
    **dict.fromkeys(("prefix", "reference", "sentences", "suffix", "symbols", "tag"), "TEXT"),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class OptionFields:
    """The options for the fields of a dataclass, in the order of the fields.

    Attributes:
      kind: The dataclass.
      parameters: The command's parameters by field, for the signature that Typer inspects. A field
        in a nested dataclass has a name with dots.
    """

    kind: type[Any]
    parameters: Mapping[str, inspect.Parameter]

    def given(self, values: Mapping[str, Any]) -> Given:
        """Return the fields whose values are not None, with instances of nested dataclasses."""
        found = {field: values[each.name] for field, each in self.parameters.items()}
        return _given(self.kind, {k: v for k, v in found.items() if v is not None})


def _given(kind: type[Any], values: Mapping[str, Any]) -> Given:
    hints = typing.get_type_hints(kind)
    given: Given = {}
    for name in dict.fromkeys(field.partition(".")[0] for field in values):
        hint = without_none(hints[name])
        if name in values:
            is_tuple = typing.get_origin(hint) is tuple
            given[name] = tuple(values[name]) if is_tuple else values[name]
        else:
            begin = f"{name}."
            inner = {k.removeprefix(begin): v for k, v in values.items() if k.startswith(begin)}
            given[name] = hint(**_given(hint, inner))
    return given


def options_of(
    kind: type[Any],
    *,
    panel: str | None = None,
    panels: Mapping[str, Sequence[str]] | None = None,
    flags: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    shown: Mapping[str, str] | None = None,
    leave_out: Sequence[str] = (),
) -> OptionFields:
    """Generate options for the fields of a dataclass; see the module's docstring.

    Args:
      kind: The dataclass.
      panel: Heading of the options in the help.
      panels: Fields below other headings, by heading.
      flags: Spellings that differ from the field's name, by field: `{"columns": "--column",
        "is_shared": "--shared/--separate", "input": "INPUT"}`. A spelling without dashes makes an
        argument.
      defaults: The command's own defaults, by field.
      shown: The default that the help shows, by field; "" shows none.
      leave_out: Fields without an option, such as "filters.source_script", or "filters" for all
        fields of this dataclass.

    Raises:
      KeyError: A field has no description.
    """
    headings = {name: heading for heading, names in (panels or {}).items() for name in names}
    fields = list(_fields_of(kind))
    spellings = {each.name: (flags or {}).get(each.name) or _spelling(each) for each in fields}
    parameters = {}
    for field in fields:
        parents = _with_parents(field.name)
        if any(part in leave_out for part in parents):
            continue
        spelling = spellings[field.name]
        default = (defaults or {}).get(field.name)
        text = _show_default(field, spelling, default)
        text = (shown or {}).get(field.name, text)
        described = _help(field.described, spellings, inside=field.name)
        info = _info(
            field,
            spelling,
            help=_with_notes(described, default=text, repeats=_repeats(field)),
            rich_help_panel=next((headings[p] for p in parents if p in headings), panel),
        )
        if default is None and field.default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        parameters[field.name] = inspect.Parameter(
            _parameter_name(spelling),
            inspect.Parameter.KEYWORD_ONLY,
            default=default,  # None means the field's default
            annotation=Annotated[_value_hint(field.hint) | None, info],
        )
    return OptionFields(kind, parameters)


class _Field(NamedTuple):
    name: str  # with dots
    hint: Any  # without None
    default: Any  # MISSING if the field is required
    described: str
    choices: tuple[str, ...]  # the allowed values; empty if any value is allowed


def _fields_of(kind: type[Any], prefix: str = "") -> Iterator[_Field]:
    hints = typing.get_type_hints(kind)
    described = describe_fields(kind)
    for field in dataclasses.fields(kind):
        hint = without_none(hints[field.name])
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from _fields_of(hint, f"{prefix}{field.name}.")
            continue
        is_literal = typing.get_origin(hint) is typing.Literal
        choices = typing.get_args(hint) if is_literal else field.metadata.get(CHOICES, ())
        yield _Field(f"{prefix}{field.name}", hint, field.default, described[field.name], choices)


def describe_fields(kind: type[Any]) -> dict[str, str]:
    """Return the text of each field under `Attributes:`, up to its first blank line.

    Inherited fields have the text of the class that declares them.
    """
    texts: dict[str, list[str]] = {}
    for declaring in reversed(kind.__mro__[:-1]):
        _, _, section = inspect.cleandoc(declaring.__doc__ or "").partition("\nAttributes:\n")
        lines: list[str] | None = None
        for line in section.splitlines():
            if line and not line.startswith(" "):
                break  # the next section
            if entry := _ENTRY.fullmatch(line):
                lines = texts[entry[1]] = [entry[2]]
            elif not line.strip():
                lines = None
            elif lines is not None:
                lines.append(line.strip())
    return {name: " ".join(lines) for name, lines in texts.items()}


def without_none(hint: Any) -> Any:
    """Return a type without None.

    >>> without_none(int | None)
    <class 'int'>
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kept = [each for each in typing.get_args(hint) if each is not types.NoneType]
        return str if Path in kept else kept[0]
    return hint


def _with_parents(name: str) -> list[str]:
    """Return a field and the fields of the dataclasses that contain it, innermost first.

    >>> _with_parents("filters.min_letters")
    ['filters.min_letters', 'filters']
    """
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _spelling(field: _Field) -> str:
    name = field.name.rpartition(".")[2].replace("_", "-")
    has_opposite = field.hint is bool and field.default is True
    return f"--{name}/--no-{name}" if has_opposite else f"--{name}"


def _parameter_name(spelling: str) -> str:
    """Return the name of a command's parameter from the spelling of its flag.

    >>> _parameter_name("--text-column"), _parameter_name("--shared/--separate")
    ('text_column', 'shared')
    """
    return spelling.partition("/")[0].lstrip("-").replace("-", "_").lower()


def _info(field: _Field, spelling: str, **made: Any) -> Any:
    """Return Typer's description of an option or an argument."""
    made["show_default"] = False
    if field.choices:
        choices = field.choices
        made["autocompletion"] = lambda incomplete: [c for c in choices if c.startswith(incomplete)]
    if not spelling.startswith("-"):
        return typer.Argument(metavar=spelling, **made)
    return typer.Option(spelling, metavar=_metavar(field), **made)


def _repeats(field: _Field) -> bool:
    return bool(typing.get_args(_value_hint(field.hint)))


def _metavar(field: _Field) -> str | None:
    """Return the name of a flag's value in the help: its choices, or a word such as PATH."""
    hint = typing.get_args(field.hint)[0] if _repeats(field) else field.hint
    if hint is bool:
        return None
    if hint in (int, float):
        return "N" if hint is int else "NUMBER"
    word = re.split("[._]", field.name)[-1]
    return _show_choices(field.choices) or _METAVARS.get(word, "NAME")


def _with_notes(text: str, *, default: str, repeats: bool) -> str:
    """Return a help text, followed by `[repeatable]` and `[default: ...]` if they apply.

    >>> _with_notes("Beams; repeatable. By default 4.", default="", repeats=True)
    'Beams.  [repeatable] [default: 4]'
    """
    found = _DEFAULT.search(text)
    if found and not default:
        text, default = text[: found.start()], found[1]
    notes = ["[repeatable]"] * repeats + [f"[default: {default}]"] * bool(default)
    return "  ".join([_REPEATABLE.sub("", text), *[" ".join(notes)] * bool(notes)])


def _show_choices(choices: Sequence[str]) -> str | None:
    """Return a metavar that lists all choices, or None if there are none or they are too long.

    >>> _show_choices(("last", "best")), _show_choices(())
    ('[last|best]', None)
    """
    shown = f"[{'|'.join(choices)}]"
    return shown if choices and len(shown) <= _LONGEST_CHOICES else None


def _value_hint(hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (tuple, list):
        return list[typing.get_args(hint)[0]]  # type: ignore[misc]
    if origin is typing.Literal or hint is Path:
        return str
    return hint


def _show_default(field: _Field, spelling: str, own: Any) -> str:
    """Return the default in the spelling of the help; "" for None and empty values."""
    value = field.default if own is None else own
    if value is dataclasses.MISSING or value in (None, (), ""):
        return ""
    if isinstance(value, bool):
        on, _, off = spelling.partition("/")
        return on if value else off
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return str(value).removesuffix(".0")


def spell(spelling: str, value: str | None) -> str:
    """Return a flag as users write it, followed by its value if there is one.

    >>> spell("--beam-size", None), spell("--beam-size", "4"), spell("--join/--split", "False")
    ('--beam-size', '--beam-size 4', '--split')
    """
    on, _, off = spelling.partition("/")
    if value in (None, "True"):
        return on
    return off if value == "False" and off else f"{on} {value}"


def _help(text: str, spellings: Mapping[str, str], *, inside: str) -> str:
    """Return a description for the help, with flags for fields and without quotes."""
    prefix, dot, _ = inside.rpartition(".")

    def flag(found: re.Match[str]) -> str:
        for name in (f"{prefix}{dot}{found[1]}", found[1]):
            if name in spellings:
                return spell(spellings[name], found[2])
        return found[0]

    return re.sub(r'"([\w.-]+)"', r"\1", FIELD.sub(flag, text))
