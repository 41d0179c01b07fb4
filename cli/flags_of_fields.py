"""Flags from dataclasses: a field's name, type, default and description stand there alone.

    @command()
    def translate_command(
        decoding: Annotated[Decoding, options_of(Decoding, panel="Search")],
        model: ModelFolder = str(DEFAULT_RUN),
    ) -> None:

gives `tt translate` a flag for each field of `Decoding`: `beam_size: int = 4` becomes `--beam-size
<int>  [default: 4]`, and its help is the field's text under `Attributes:`, up to the first blank
line in it. That text must be true in Python and on the command line. It names fields in backticks,
`beam_size` or `beam_size=4`, of which the help makes flags, as `cli.errors` does in messages;
choices in double quotes, which the help drops; and what None stands for by "By default". A field
made by `one_of` has the values that a shell completes.

The function gets an instance; annotated `Annotated[Given, options_of(Decoding)]`, it gets a dict of
the fields that a flag or `--config` gave. A tuple becomes a flag that repeats, a bool `--x`, or
`--x/--no-x` if it is on by default, and a nested dataclass the flags of its own fields, named with
dots.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from model.errors import CHOICES

Given = dict[str, Any]  # fields by name, as far as a flag or a file gives them

_ENTRY = re.compile(r"(\w+): +(.*)")
FIELD = re.compile(r"`([a-z_][\w.]*)(?:=([^`]*))?`")  # as texts and messages name it
_LONGEST_CHOICES = 50  # characters in a help of 80 columns, beside a flag
_REQUIRED: Any = ...  # Typer's word for it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """A flag, or an argument, that stands for a field."""

    field: str  # the field's name, with dots where it is one of a nested dataclass
    parameter: str  # name of the command's parameter
    hint: Any  # type of the value; a list where it repeats
    default: Any  # default of the command itself, or of a required field; else None
    info: Any

    def signature(self) -> inspect.Parameter:
        """Returns the parameter that Typer reads."""
        return inspect.Parameter(
            self.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.default is _REQUIRED else self.default,
            annotation=Annotated[self.hint, self.info],
        )


@dataclasses.dataclass(frozen=True)
class OptionFields:
    """The options that stand for the fields of a dataclass."""

    kind: type[Any]
    options: tuple[Option, ...]  # in the order of the fields

    def given(self, values: Mapping[str, Any]) -> Given:
        """Returns the fields that were given, so not None; of nested dataclasses, instances."""
        return _given(
            self.kind,
            {
                option.field: value
                for option in self.options
                if (value := values[option.parameter]) is not None
            },
        )


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
    """Makes options of the fields of a dataclass; see above.

    Args:
      kind: The dataclass.
      panel: Heading of the options in the help.
      panels: Fields under other headings.
      flags: Spellings of fields that are not just the field's name: `{"columns": "--column",
        "is_shared": "--shared/--separate", "input": "INPUT"}`, without dashes an argument.
      defaults: Defaults of the command itself, by field.
      shown: What the help says of the default, by field; "" says nothing.
      leave_out: Fields without an option: "filters.source_script", or "filters" for all in it.

    Raises:
      TypeError: There is no such field, or one has no description.
    """
    headings = {name: heading for heading, names in (panels or {}).items() for name in names}
    stated = (headings, flags or {}, defaults or {}, shown or {}, leave_out)
    fields = {field.name: field for field in _fields_of(kind)}
    known = {part for name in fields for part in _with_parents(name)}
    if unknown := {name for names in stated for name in names} - known:
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    spellings = {name: _spelling(field, (flags or {}).get(name)) for name, field in fields.items()}
    options = []
    for name, field in fields.items():
        if any(part in leave_out for part in _with_parents(name)):
            continue
        heading = next((headings[p] for p in _with_parents(name) if p in headings), panel)
        options.append(
            _option(
                field,
                spellings,
                heading=heading,
                default=(defaults or {}).get(name),
                shown=(shown or {}).get(name),
            )
        )
    return OptionFields(kind, tuple(options))


class _Field(typing.NamedTuple):
    name: str  # with dots
    hint: Any  # without None
    default: Any  # MISSING where it is required
    described: str
    choices: tuple[str, ...]  # all of its values; none where any will do


def _fields_of(kind: type[Any], prefix: str = "") -> Iterator[_Field]:
    hints = typing.get_type_hints(kind)
    described = describe_fields(kind)
    for field in dataclasses.fields(kind):
        hint = without_none(hints[field.name])
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from _fields_of(hint, f"{prefix}{field.name}.")
            continue
        if field.name not in described:
            raise TypeError(f"{kind.__name__}.{field.name} has no line under Attributes")
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        choices = field.metadata.get(CHOICES, ())
        if typing.get_origin(hint) is typing.Literal:
            choices = typing.get_args(hint)
        yield _Field(f"{prefix}{field.name}", hint, default, described[field.name], choices)


def describe_fields(kind: type[Any]) -> dict[str, str]:
    """Returns the text of each field under `Attributes:`, up to its first blank line.

    Inherited fields are described where they are declared.
    """
    texts: dict[str, list[str]] = {}
    for declaring in reversed(kind.__mro__[:-1]):
        _, _, section = inspect.cleandoc(declaring.__doc__ or "").partition("\nAttributes:\n")
        name = ""
        for line in section.splitlines():
            if line and not line.startswith(" "):
                break  # the next section
            entry = _ENTRY.fullmatch(line.strip()) if re.match(r" {2}\w", line) else None
            if entry:
                name = entry[1]
                texts[name] = [entry[2]]
            elif not line.strip():
                name = ""
            elif name:
                texts[name].append(line.strip())
    return {name: " ".join(lines) for name, lines in texts.items()}


def without_none(hint: Any) -> Any:
    """Returns a type without None.

    >>> without_none(int | None)
    <class 'int'>
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kept = [each for each in typing.get_args(hint) if each is not types.NoneType]
        return str if Path in kept else kept[0]
    return hint


def _with_parents(name: str) -> list[str]:
    """Returns a field and the dataclasses it lies in, from the inside.

    >>> _with_parents("filters.min_letters")
    ['filters.min_letters', 'filters']
    """
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _spelling(field: _Field, stated: str | None) -> str:
    if stated is not None:
        return stated
    name = field.name.rpartition(".")[2].replace("_", "-")
    has_opposite = field.hint is bool and field.default is True
    return f"--{name}/--no-{name}" if has_opposite else f"--{name}"


def _parameter_name(spelling: str) -> str:
    """Returns the name of a parameter by its first spelling.

    >>> _parameter_name("--text-column"), _parameter_name("--shared/--separate")
    ('text_column', 'shared')
    """
    return spelling.partition("/")[0].lstrip("-").replace("-", "_").lower()


def _option(
    field: _Field,
    spellings: Mapping[str, str],
    *,
    heading: str | None,
    default: Any,
    shown: str | None,
) -> Option:
    spelling, hint = spellings[field.name], _value_hint(field.hint)
    repeated = typing.get_args(hint)
    text = _show_default(field, spelling, default) if shown is None else shown
    described = _help(field.described, spellings, inside=field.name)
    made: dict[str, Any] = {
        "help": f"{described}  [default: {text}]" if text else described,
        "show_default": False,
        "rich_help_panel": heading,
    }
    if field.choices:
        made["autocompletion"] = _completing(field.choices)
    if spelling.startswith("-"):
        metavar = f"<{repeated[0].__name__}>..." if repeated else _show_choices(field.choices)
        info = typer.Option(spelling, metavar=metavar, **made)
    else:
        info = typer.Argument(metavar=spelling, **made)
    if default is None and field.default is dataclasses.MISSING:
        default = _REQUIRED
    return Option(
        field=field.name,
        parameter=_parameter_name(spelling),
        hint=hint if default is _REQUIRED else hint | None,
        default=default,
        info=info,
    )


def _completing(choices: Sequence[str]) -> Callable[[str], list[str]]:
    """Returns what a shell calls for the values that begin as the user does."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def _show_choices(choices: Sequence[str]) -> str | None:
    """Returns the place of a value in the help, where there is room for all values.

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
    """Returns what the help says of the default; nothing of None and what is empty."""
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
    """Returns a flag as it is written, with the value that a text gives its field, if any.

    >>> spell("--beam-size", None), spell("--beam-size", "4"), spell("--join/--split", "False")
    ('--beam-size', '--beam-size 4', '--split')
    """
    on, _, off = spelling.partition("/")
    if value in (None, "True"):
        return on
    return off if value == "False" and off else f"{on} {value}"


def _help(text: str, spellings: Mapping[str, str], *, inside: str) -> str:
    """Returns a description for the shell: fields as flags, and words without quotes."""
    prefix, dot, _ = inside.rpartition(".")

    def flag(found: re.Match[str]) -> str:
        for name in (f"{prefix}{dot}{found[1]}", found[1]):
            if name in spellings:
                return spell(spellings[name], found[2])
        return found[0]

    return re.sub(r'"([\w.-]+)"', r"\1", FIELD.sub(flag, text))


def _given(kind: type[Any], values: Mapping[str, Any]) -> Given:
    hints = typing.get_type_hints(kind)
    given: Given = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        outer, dot, rest = name.partition(".")
        if dot:
            inner.setdefault(outer, {})[rest] = value
        else:
            is_tuple = typing.get_origin(without_none(hints[name])) is tuple
            given[name] = tuple(value) if is_tuple else value
    for name, parts in inner.items():
        nested = without_none(hints[name])
        given[name] = nested(**_given(nested, parts))
    return given


class Signature(typing.NamedTuple):
    """A command's parameters, those that Typer sees and those that its function takes."""

    parameters: list[inspect.Parameter]  # those that Typer sees
    groups: Mapping[str, OptionFields]  # by name of the function's parameter, what it is made of
    instances: frozenset[str]  # names of those that are an instance of their dataclass

    @property
    def fields(self) -> dict[str, str]:
        """Names of Typer's parameters by the fields that they stand for."""
        return {
            option.field: option.parameter
            for group in self.groups.values()
            for option in group.options
        }

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what the function takes, of Typer's parameters.

        Raises:
          UserError: A dataclass refuses a value.
        """
        made = {option.parameter for group in self.groups.values() for option in group.options}
        arguments = {name: value for name, value in values.items() if name not in made}
        for name, group in self.groups.items():
            given = group.given(values)
            arguments[name] = group.kind(**given) if name in self.instances else given
        return arguments


def read_signature(function: Callable[..., Any]) -> Signature:
    """Reads the parameters of a command's function.

    Raises:
      TypeError: Two options have one name.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, OptionFields] = {}
    instances = set()
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        found = [each for each in getattr(hint, "__metadata__", ()) if type(each) is OptionFields]
        if found:
            [groups[name]] = found
            parameters += [option.signature() for option in groups[name].options]
            if typing.get_args(hint)[0] is groups[name].kind:
                instances.add(name)
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(kind=kind, annotation=hint))
    if twice := _find_twice(parameter.name for parameter in parameters):
        raise TypeError(f"{function.__name__} has several options {', '.join(twice)}")
    return Signature(parameters, groups, frozenset(instances))


def _find_twice(names: Iterable[str]) -> list[str]:
    every = list(names)
    return sorted({name for name in every if every.count(name) > 1})
