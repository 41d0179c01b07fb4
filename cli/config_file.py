"""`--config FILE.yaml`: a file with the values of a command's flags and arguments.

The keys are their names, with `_` or `-`. A file for several commands has a section for each, by
the command's name. Values are read as the same text on the command line; an empty one is the
default. The command line wins, and a list there replaces the file's. Paths start from the current
folder, as those in flags do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
import yaml

from tt.cli.errors import user_errors
from tt.cli.shared_options import COMMANDS, local_path
from tt.model.errors import UserError

BEAM = "beam"  # the key of Beam's own options
_TRUE, _FALSE = ("true", "yes", "on", "1", "t", "y"), ("false", "no", "off", "0", "f", "n")
_OPPOSITES = dict(zip(_TRUE + _FALSE, _FALSE + _TRUE, strict=True))


class _Loader(yaml.BaseLoader):
    """Leave all values as texts: `no` is Norwegian, and 1e-3 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = [_as_key(str(key.value)) for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise ValueError(f"the key {min(twice)} occurs twice")
        return super().construct_mapping(node, deep)


def config_option(*, takes_beam: bool) -> Any:
    """Return the type of a command's parameter `config`; with Beam, the file has a key `beam`."""

    def load(context: typer.Context, path: str | None) -> str | None:
        if path is not None and not context.resilient_parsing:
            with user_errors(context):
                values = read_config(path, command=str(context.command.name))
                beam = (values.pop(BEAM, "") if takes_beam else "") or []
                options = [beam] if isinstance(beam, str) else beam
                if not isinstance(options, list) or not all(isinstance(o, str) for o in options):
                    raise UserError(f"{path}: {BEAM} must be a list of values. Received: {beam}")
                context.obj = context.obj or options
                context.default_map = _resolve(values, context.command.params, path=path)
        return path

    described = "YAML file of options, by the flags' names; flags win."
    if takes_beam:
        described += f" Beam's own are a list named {BEAM}."
    option = typer.Option("--config", help=described, is_eager=True, callback=load)
    return Annotated[str | None, option]


def read_config(path: str, *, command: str) -> dict[str, Any]:
    """Read the options for a command from a file; the keys come out with `_` for `-`.

    The file has sections if a mapping stands under a command's name, because no option is one.

    Raises:
      UserError: The file cannot be read, is not a YAML mapping, or has sections, but none for this
        command.
    """
    try:
        values = yaml.load(local_path(path).read_text("utf-8-sig"), _Loader)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is not valid YAML: {error}") from error
    options = _named(values, path)
    commands = {_as_key(each) for each in COMMANDS}
    if not any(isinstance(options[name], Mapping) for name in commands & options.keys()):
        return options
    if unknown := options.keys() - commands:
        raise UserError(
            f"{path} has sections, but {min(unknown)} is no command: move it into a section, or "
            "correct its name"
        )
    if _as_key(command) not in options:
        raise UserError(
            f"{path} has no section {command}. It has {', '.join(options)}: add one, or leave "
            "--config out"
        )
    return _named(options[_as_key(command)], f"{path}: {command}")


def _named(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values or {}, Mapping):
        raise UserError(
            f"{where} must map options to values, one per line, as in 'seed: 1'. Received: {values}"
        )
    return {_as_key(name): value for name, value in (values or {}).items()}


def _as_key(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _resolve(values: Mapping[str, Any], parameters: Iterable[Any], *, path: str) -> dict[str, Any]:
    """Return the defaults of a command's parameters that a file gives.

    Raises:
      UserError: A key is unknown, or a list stands where a single value belongs.
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
            advice = f"did you mean {near[0]}?" if near else "`--help` lists the options"
            raise UserError(f"{path}: there is no option {name}: {advice}")
        parameter, is_opposite = keys[name]
        repeats = parameter.nargs == -1 or getattr(parameter, "multiple", False)
        given = value if isinstance(value, list) else [value]
        if (len(given) > 1 and not repeats) or not all(isinstance(each, str) for each in given):
            kind = "a list of values" if repeats else "a single value"
            raise UserError(f"{path}: {name} must be {kind}. Received: {value}")
        if value and value != [""]:
            if parameter.name in resolved:
                raise UserError(f"{path} gives {parameter.name} twice: delete {name}")
            if is_opposite:
                given = [_OPPOSITES.get(given[0].lower(), given[0])]
            resolved[parameter.name] = given if repeats else given[0]
    return resolved
