"""The decorator of all commands, which reads options and reports errors and interrupts."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from tt.cli.config_file import config_option
from tt.cli.errors import library_notices, say, user_errors
from tt.cli.flags_of_fields import Given, OptionFields
from tt.cli.shared_options import HELP_ALL, HelpAll, plain_paths
from tt.pipelines.runners.remote_jobs import JobHandedOver

_INTERRUPTED = "tt: interrupted"
_RESUME = "; run the same command again to resume"

_VERBOSE = Annotated[
    bool, typer.Option("-v", "--verbose", help="Show log messages and the tracebacks of errors.")
]
_ALWAYS_COMMON = ("--config", "--verbose", "--help", HELP_ALL)  # last in each help

Command = Callable[..., None]


def command(
    *, is_resumable: bool = False, takes_beam: bool = False, common: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Return a decorator that turns a function into a command.

    The command takes `--config FILE.yaml` and `--verbose`. A parameter annotated with `options_of`
    becomes one option per field of its dataclass. A `UserError` becomes one line on stderr, and
    sets the exit code.

    Args:
      is_resumable: Whether the command keeps its finished work when it is interrupted.
      takes_beam: Whether the command takes Beam's own options, which it finds in `context.obj`.
      common: The flags that `--help` shows, in this order; `--help-all` shows all flags. Without
        common flags, `--help` shows all flags.
    """

    def decorate(function: Command) -> Command:
        hints = typing.get_type_hints(function, include_extras=True)
        groups = {
            name: group
            for name, hint in hints.items()
            for group in getattr(hint, "__metadata__", ())
            if isinstance(group, OptionFields)
        }
        options = [pair for group in groups.values() for pair in group.parameters.items()]
        fields = {field: parameter.name for field, parameter in options}
        own = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[each.name])
            for each in inspect.signature(function).parameters.values()
            if each.name not in {"context", *groups}
        ]

        @functools.wraps(function)
        def run(
            *,
            context: typer.Context,
            config: str | None,
            verbose: bool,
            help_all: bool = False,
            **values: Any,
        ) -> None:
            try:
                with library_notices(are_shown=verbose), user_errors(context):
                    values = plain_paths(values)
                    arguments = {k: v for k, v in values.items() if k not in fields.values()}
                    for name, group in groups.items():
                        given = group.given(values)
                        is_given = typing.get_args(hints[name])[0] == Given
                        arguments[name] = given if is_given else group.kind(**given)
                    if "context" in hints:
                        arguments["context"] = context
                    function(**arguments)
            except JobHandedOver as handed_over:
                say(f"tt: {handed_over}")
            except KeyboardInterrupt as interrupt:
                resume = _RESUME if is_resumable else ""
                say(", and ".join(filter(None, [_INTERRUPTED, str(interrupt)])) + resume)
                raise typer.Exit(130) from None

        parameters = [
            _keyword("context", typer.Context),
            *(parameter for _, parameter in options),
            *own,
            _keyword("config", config_option(takes_beam=takes_beam)).replace(default=None),
            _keyword("verbose", _VERBOSE).replace(default=False),
        ]
        if common:
            parameters.append(_keyword("help_all", HelpAll).replace(default=False))
            run.common_flags = (*common, *_ALWAYS_COMMON)  # type: ignore[attr-defined]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.option_fields = fields  # type: ignore[attr-defined]
        return run

    return decorate


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
