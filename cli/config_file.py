"""`--config FILE.yaml`: a file that says what a command's flags and arguments would say.

Its keys are their names, with `_` or `-`; or it has a section for each command, by the command's
name, and the keys stand there. What stands on the command line wins; a list there
replaces the file's. Paths start from the current folder, as those in flags do.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import types
import typing
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import yaml

from cli.command_names import COMMANDS
from cli.errors import CONFIG_KEYS, user_errors
from cli.shared_options import local_path
from model.errors import UserError

BEAM = "beam"  # the key of Beam's own options
NULL_IS_A_CHOICE = ("on_flag",)  # keys of which "null" is a value, which YAML reads as nothing
KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def config_option(*, takes_beam: bool) -> Any:
    """Returns the type of a command's parameter `config`; with Beam, the file has a key `beam`."""

    def load(context: typer.Context, path: str | None) -> str | None:
        if path is not None and not context.resilient_parsing:
            with user_errors(context):
                _use_file(context, path, takes_beam=takes_beam)
        return path

    described = "YAML file of options, by the flags' names; flags win."
    if takes_beam:
        described += f" Beam's own are a list named {BEAM}."
    option = typer.Option("--config", help=described, is_eager=True, callback=load)
    return Annotated[str | None, option]


def _use_file(context: typer.Context, path: str, *, takes_beam: bool) -> None:
    """Makes what a file says the defaults of the command that is being parsed."""
    values = section_of(read_config(path), command=str(context.command.name), path=path)
    if takes_beam:
        beam = values.pop(BEAM, None)
        if beam is not None and not context.obj:
            context.obj = _convert(beam, list[str], key=BEAM, path=path)
    keys = _keys_of(context)
    context.default_map = resolve_config(
        values, keys=keys, path=path, also=[BEAM] if takes_beam else []
    )
    context.meta[CONFIG_KEYS] = {keys[name].parameter: f"{name} in {path}" for name in values}


class Key(NamedTuple):
    """What a key of a file stands for."""

    parameter: str  # name of the command's parameter
    hint: Any  # type of the parameter, as the command's function states it
    is_opposite: bool = False  # whether it is the flag that switches the parameter off


def _keys_of(context: typer.Context) -> dict[str, Key]:
    callback = context.command.callback
    assert callback is not None
    hints = typing.get_type_hints(callback)
    keys: dict[str, Key] = {}
    for parameter in context.command.params:
        name = str(parameter.name)
        if name == "config":
            continue
        for option in parameter.opts:
            keys[_as_key(option)] = Key(name, hints[name])
        for option in parameter.secondary_opts:
            keys[_as_key(option)] = Key(name, hints[name], is_opposite=True)
    return keys


def _as_key(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def read_config(path: str) -> dict[str, Any]:
    """Reads a file of options; the keys come out with `_` for `-`.

    Raises:
      UserError: There is no such file, or it is not a YAML mapping from names to values.
    """
    file = local_path(path)
    if not file.exists() or file.is_dir():  # a pipe will do
        raise UserError(f"no config file at {path}: check the path")
    values = _load_yaml(file, path)
    if values is None:  # nothing but comments
        return {}
    if not isinstance(values, Mapping):
        raise UserError(
            f"{path} must map options to values, a line each, as in 'seed: 1'. "
            f"Received: {_show(values)}"
        )
    return _named(values, path)


def _named(values: Mapping[Any, Any], path: str) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for given, value in values.items():
        key = _as_key(str(given))
        if key in named:
            raise UserError(f"{path} says {key} twice: leave one out")
        named[key] = value
    return named


def section_of(values: Mapping[str, Any], *, command: str, path: str) -> dict[str, Any]:
    """Returns the options for a command, of a file that may have sections.

    It has sections where a mapping stands under a command's name, as no option is one.

    Raises:
      UserError: It has sections, and none for this command, or something beside them.

    >>> section_of({"train": {"max-steps": 9}, "translate_batch": None}, command="train", path="a")
    {'max_steps': 9}
    """
    commands = {_as_key(each): each for each in COMMANDS}
    if not any(isinstance(values[name], Mapping) for name in values.keys() & commands.keys()):
        return dict(values)
    for name, value in values.items():
        if name not in commands:
            near = difflib.get_close_matches(name, commands, n=1)
            advice = f"did you mean {commands[near[0]]}?" if near else "put it into a section"
            raise UserError(
                f"{path} has sections, named as commands are. Received: {name} ({advice})"
            )
        if value is not None and not isinstance(value, Mapping):
            raise UserError(
                f"{path}: {name} must be a section, as others are. Received: {_show(value)}"
            )
    if _as_key(command) not in values:
        raise UserError(
            f"{path} has no section {command}: add one, or leave --config out. It has "
            f"{', '.join(commands[name] for name in values)}"
        )
    return _named(values[_as_key(command)] or {}, path)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which without this takes the last of equal keys in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value} stands there twice", key.start_mark
                    )
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def _load_yaml(file: Path, path: str) -> Any:
    try:
        text = file.read_text(encoding="utf-8-sig")
        return yaml.load(text, _Loader)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: not YAML that can be used: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise UserError(f"{path}: not YAML that can be used: {error}") from error


def resolve_config(
    values: Mapping[str, Any], *, keys: Mapping[str, Key], path: str, also: Sequence[str] = ()
) -> dict[str, Any]:
    """Turns the values of a file, by key with `_`, into values of a command's parameters.

    `null` means the default, but where it may be meant as a choice. `also` are keys that were taken
    out of the file before.

    Raises:
      UserError: A key is not known, a value has the wrong type, or two keys contradict.
    """
    resolved: dict[str, Any] = {}
    for name, value in values.items():
        if name not in keys:
            near = difflib.get_close_matches(name, [*keys, *also], n=1)
            advice = f"did you mean {near[0]}?" if near else "`--help` lists the options"
            raise UserError(f"{path}: there is no option {name}: {advice}")
        key = keys[name]
        if value is None:
            continue
        converted = _convert(value, key.hint, key=name, path=path)
        if key.parameter in resolved:
            raise UserError(f"{path} says {key.parameter} in two ways: leave one out")
        resolved[key.parameter] = not converted if key.is_opposite else converted
    for name in NULL_IS_A_CHOICE:
        if name in values and values[name] is None:
            raise UserError(
                f"{path}: {name} must be a text. Received: nothing (YAML reads null so: put the "
                "word in quotes)"
            )
    return resolved


def _convert(value: Any, hint: Any, *, key: str, path: str) -> Any:
    kind, is_list = _kind_of(hint)
    if not is_list:
        return _convert_one(value, kind, key=key, path=path)
    # One value is a list of one, as a repeatable flag may be given once.
    every = value if isinstance(value, list) else [value]
    return [_convert_one(each, kind, key=f"each of {key}", path=path) for each in every]


def _kind_of(hint: Any) -> tuple[type, bool]:
    """Returns the type of one value, and whether there may be several.

    >>> _kind_of(list[str] | None), _kind_of(int)
    ((<class 'str'>, True), (<class 'int'>, False))
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        [hint] = [each for each in typing.get_args(hint) if each is not types.NoneType]
    if typing.get_origin(hint) is list:
        [hint] = typing.get_args(hint)
        return hint, True
    return hint, False


def _convert_one(value: Any, kind: type, *, key: str, path: str) -> Any:
    kind = str if kind is Path else kind
    if type(value) is kind:
        return value
    if kind is str and type(value) is int:
        return str(value)  # the number of a column
    if kind is float and type(value) in (int, str):
        with contextlib.suppress(ValueError):
            return float(value)  # a text: YAML 1.1 takes 1e-3, which has no point, for one
    remedy = ""
    if kind is str and isinstance(value, bool):
        remedy = " (YAML reads no, yes, on and off so: put the word in quotes)"
    elif kind is str and isinstance(value, float | datetime.date):
        remedy = " (put it in quotes)"
    raise UserError(f"{path}: {key} must be {KINDS[kind]}. Received: {_show(value)}{remedy}")


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    kind = {"list": "the list ", "dict": "the mapping ", "str": "the text "}
    return f"{kind.get(type(value).__name__, '')}{value!r}"
