"""`--config FILE.yaml`: a file with values for a command's flags and arguments.

The keys are the names of flags and arguments, with `_` or `-`. A file for several commands has one
section per command. Values are parsed like values on the command line, and an empty value means
the default. The command line takes precedence over the file; a list on the command line replaces
the file's list. Relative paths start from the current folder, as they do on the command line.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
import yaml

from tt.cli.errors import user_errors
from tt.cli.shared_options import COMMANDS, local_path
from tt.model.errors import UserError

BEAM = "beam"  # the key for Beam's own options
_TRUE, _FALSE = ("true", "yes", "on", "1", "t", "y"), ("false", "no", "off", "0", "f", "n")
_OPPOSITES = dict(zip(_TRUE + _FALSE, _FALSE + _TRUE, strict=True))
_show = reprlib.repr  # because a value with aliases may be huge


class _Loader(yaml.BaseLoader):
    """Loads all values as strings, so that `no` can be Norwegian and 1e-3 can be a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        if not all(isinstance(key, yaml.ScalarNode) for key, _ in node.value):
            raise ValueError("a key is a list or a mapping")
        keys = [_as_key(str(key.value)) for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise ValueError(f"the key {min(twice)} occurs twice")
        return super().construct_mapping(node, deep)


def config_option(*, takes_beam: bool) -> Any:
    """Return the type hint of a command's parameter `config`.

    Args:
      takes_beam: Whether the file may contain Beam's own options under the key `beam`.
    """

    def load(context: typer.Context, path: str | None) -> str | None:
        if path is not None and not context.resilient_parsing:
            with user_errors(context):
                values = read_config(path, command=str(context.command.name))
                beam = (values.pop(BEAM, "") if takes_beam else "") or []
                options = [beam] if isinstance(beam, str) else beam
                if not isinstance(options, list) or not all(isinstance(o, str) for o in options):
                    raise UserError(
                        f"{path}: {BEAM} must be a list of options. Received: {_show(beam)}"
                    )
                context.obj = context.obj or options
                context.default_map = _resolve(values, context.command.params, path=path)
        return path

    option = typer.Option(
        "--config",
        metavar="PATH",
        help="Read options from this YAML file; the command line takes precedence.",
        is_eager=True,
        callback=load,
    )
    return Annotated[str | None, option]


def read_config(path: str, *, command: str) -> dict[str, Any]:
    """Read a command's options from a file, and return them with `_` instead of `-` in the keys.

    The file has sections if a command's name is a key whose value is a mapping, because no option
    takes a mapping.

    Raises:
      UserError: The file cannot be read, is not a YAML mapping, or has sections but none for this
        command.
    """
    try:
        values = yaml.load(local_path(path).read_text("utf-8-sig"), _Loader)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}. Choose a YAML file with --config"
        ) from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply. Remove brackets from the file") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is not valid YAML: {error}. Check the file") from error
    options = _named(values, path)
    commands = {_as_key(each) for each in COMMANDS}
    if not any(isinstance(options[name], Mapping) for name in commands & options.keys()):
        return options
    if unknown := options.keys() - commands:
        raise UserError(
            f"{path} has sections, but {min(unknown)} is not a command. Move {min(unknown)} into a "
            "section, or check its name"
        )
    if _as_key(command) not in options:
        raise UserError(
            f"{path} has no section {command}, only {', '.join(options)}. Add the section, or "
            "remove --config"
        )
    return _named(options[_as_key(command)], f"{path}: {command}")


def _named(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values or {}, Mapping):
        raise UserError(
            f"{where} must map options to values, one per line, as in 'seed: 1'. "
            f"Received: {_show(values)}"
        )
    return {_as_key(name): value for name, value in (values or {}).items()}


def _as_key(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _resolve(values: Mapping[str, Any], parameters: Iterable[Any], *, path: str) -> dict[str, Any]:
    """Return the defaults that a file sets for a command's parameters.

    Raises:
      UserError: A key is unknown, two keys set the same parameter, or a value has the wrong form,
        such as a list for an option that takes a single value.
    """
    keys = {
        _as_key(option): (parameter, option in parameter.secondary_opts)
        for parameter in parameters
        for option in (*parameter.opts, *parameter.secondary_opts)
        if parameter.name != "config"
    }
    resolved: dict[str, Any] = {}
    for name, value in values.items():
        if name not in keys:
            near = difflib.get_close_matches(name, [*keys, BEAM], n=1)
            advice = f"Did you mean {near[0]}?" if near else "See `--help`"
            raise UserError(f"{path}: there is no option {name}. {advice}")
        parameter, is_opposite = keys[name]
        repeats = parameter.nargs == -1 or getattr(parameter, "multiple", False)
        given = value if isinstance(value, list) else [value]
        if (len(given) > 1 and not repeats) or not all(isinstance(each, str) for each in given):
            kind = "a list of values" if repeats else "a single value"
            raise UserError(f"{path}: {name} must be {kind}. Received: {_show(value)}")
        if value and value != [""]:
            if parameter.name in resolved:
                raise UserError(f"{path} sets {parameter.name} twice. Remove {name}")
            if is_opposite:
                given = [_OPPOSITES.get(given[0].lower(), given[0])]
            resolved[parameter.name] = given if repeats else given[0]
    return resolved
