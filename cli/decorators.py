"""What every command does first and last: options read, errors on one line, interrupts told."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from cli.config_file import config_option
from cli.errors import library_notices, say, user_errors
from cli.flags_of_fields import read_signature
from cli.paths import plain_paths
from pipelines.runners.remote_jobs import JobHandedOver

_INTERRUPTED = "tt: interrupted"
_GOES_ON = "; the same command goes on from what is finished"

_VERBOSE = Annotated[
    bool, typer.Option("-v", "--verbose", help="Show what TensorFlow and Beam say of their work.")
]

Command = Callable[..., None]


def command(
    *, is_resumable: bool = False, takes_beam: bool = False
) -> Callable[[Command], Command]:
    """Makes a command of a function; a `UserError` becomes one line on stderr and exit code 2.

    It takes `--config FILE.yaml` and `--verbose`; parameters with `options_of` become the options
    of a dataclass.
    If it `is_resumable`, it keeps what it has finished when it is interrupted; if it `takes_beam`,
    Beam's own options are `context.obj`.
    """
    goes_on = _GOES_ON if is_resumable else ""

    def decorate(function: Command) -> Command:
        signature = read_signature(function)
        takes_context = "context" in inspect.signature(function).parameters

        @functools.wraps(function)
        def run(
            *, context: typer.Context, config: str | None, verbose: bool, **values: Any
        ) -> None:
            try:
                with library_notices(are_shown=verbose), user_errors(context):
                    context.params.update(plain_paths(context.params))
                    if takes_context:
                        values["context"] = context
                    function(**signature.arguments(plain_paths(values)))
            except JobHandedOver as handed_over:
                say(f"tt: {handed_over}")
            except KeyboardInterrupt as interrupt:
                say(", and ".join(filter(None, [_INTERRUPTED, str(interrupt)])) + goes_on)
                raise typer.Exit(130) from None

        own = [each for each in signature.parameters if each.name != "context"]
        parameters = [_keyword("context", typer.Context), *own]
        config = config_option(takes_beam=takes_beam)
        parameters.append(_keyword("config", config).replace(default=None))
        parameters.append(_keyword("verbose", _VERBOSE).replace(default=False))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.option_fields = signature.fields  # type: ignore[attr-defined]
        return run

    return decorate


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
