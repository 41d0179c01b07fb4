"""Options that several commands share, and what every command does first and last."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand

from cli.paths import plain_path, plain_paths
from model.errors import UserError
from model.transformer.config import BATCH_TOKENS, GPU_BATCH_TOKENS, Engine
from pipelines.runners.foreign_errors import explain

DEFAULT_DATASET = Path("dataset")
DEFAULT_RUN = Path("run")
DEFAULT_INPUT = Path("input.parquet")
DEFAULT_TRANSLATED = Path("translated")
EMBEDDED = "embedded"  # the corpus that comes with tt, by its name in the manifest

# Options that need not be given: None is the library's default.
Text = str | None
Count = int | None
Number = float | None
Switch = bool | None
Texts = list[str] | None

DatasetFolder = Annotated[
    str, typer.Option("--dataset", help="Dataset folder, from `tt preprocess`.")
]
ModelFolder = Annotated[
    str,
    typer.Option(
        "--model",
        help="Exported model folder, or the run folder it lies in.",
        rich_help_panel="Model",
    ),
]
BeamSize = Annotated[
    int,
    typer.Option(help="Hypotheses kept a sentence; 1 is greedy search.", rich_help_panel="Search"),
]
LengthPenalty = Annotated[
    float,
    typer.Option(
        help="alpha, 0 to 10: hypotheses rank by log p / ((5 + length) / 6)^alpha.",
        rich_help_panel="Search",
    ),
]
NBest = Annotated[
    int,
    typer.Option(
        help="Hypotheses returned of each source, best first; at most --beam-size.",
        rich_help_panel="Search",
    ),
]
WithScores = Annotated[
    bool, typer.Option("--with-scores", help="Print `score ||| text`, as --n-best does.")
]
MaxLengthRatio = Annotated[
    float,
    typer.Option(
        help="Ids of a translation at most, for each of the source; 50 more are free.",
        rich_help_panel="Search",
    ),
]
MaxDecodingLength = Annotated[
    int,
    typer.Option(
        help="Ids of a translation at most, whatever the source.", rich_help_panel="Search"
    ),
]
NoRepeatNgramSize = Annotated[
    int,
    typer.Option(
        help="No n-gram of ids of this size occurs twice in a translation; 0: any.",
        rich_help_panel="Search",
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="What computes: tensorflow, or ctranslate2 where that extra is installed.",
        rich_help_panel="Model",
    ),
]
ComputeType = Annotated[
    str,
    typer.Option(
        help="Of the matrix products: float32, bfloat16 or float16, for GPUs (tensorflow); float32 "
        "or int8 (ctranslate2).",
        rich_help_panel="Model",
    ),
]
BatchTokens = Annotated[
    Count,
    typer.Option(
        help="Padded source tokens of a batch times --beam-size, at the most; halved where memory "
        f"runs out. [default: {BATCH_TOKENS}; on a GPU {GPU_BATCH_TOKENS}; ctranslate2 4096]",
        show_default=False,
        rich_help_panel="Model",
    ),
]
ModelCopies = Annotated[
    Count,
    typer.Option(
        "--model-copies",
        help="Translations that this machine computes at once, at most one a core; they share "
        "its cores. [default: one a core, or one a GPU]",
        show_default=False,
        rich_help_panel="Model",
    ),
]
MaxSourceTokens = Annotated[
    int,
    typer.Option(
        help="Ids that the model is given at once, BOS and EOS counted.", rich_help_panel="Texts"
    ),
]
OnTooLong = Annotated[
    str,
    typer.Option(
        help="Texts of more ids: split translates them in pieces, truncate their beginning, "
        "skip nothing of them.",
        rich_help_panel="Texts",
    ),
]
TextLanguage = Annotated[
    str,
    typer.Option(
        "--source-language",
        help="Code of the texts' language: its rules cut too long ones into sentences, or those of "
        "English where it has none.",
        show_default=False,
        rich_help_panel="Texts",
    ),
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Wraps a command: a `UserError` becomes one line on stderr and exit code 2."""
    return _wrap(function, interrupted="tt: interrupted")


def resumable_command(function: Callable[..., None]) -> Callable[..., None]:
    """Wraps a command that keeps what it has finished for the next time; see `command`."""
    return _wrap(
        function, interrupted="tt: interrupted; the same command goes on from what is finished"
    )


def _wrap(function: Callable[..., None], *, interrupted: str) -> Callable[..., None]:

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        quiet_libraries()
        try:
            with user_errors():
                kwargs = plain_paths(kwargs)
                if context := kwargs.get("context"):
                    context.params.update(plain_paths(context.params))
                function(*args, **kwargs)
        except KeyboardInterrupt:
            say(interrupted)
            raise typer.Exit(130) from None

    return wrapped


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns a `UserError` into one line on stderr and exit code 2.

    So does what libraries raise of rights, networks and services, wherever it comes from.
    """
    try:
        yield
    except Exception as error:
        found = error if isinstance(error, UserError) else explain(error)
        if found is None:
            raise
        say(f"tt: error: {' '.join(str(found).split())}")
        raise typer.Exit(2) from None


class GroupedCommand(TyperCommand):
    """A command whose plain help lists its options under their `rich_help_panel`s."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the parameters, group by group in the order in which the groups begin."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                heading = getattr(parameter, "rich_help_panel", None)
                groups.setdefault(
                    heading or ("Arguments" if is_argument else "Options"), []
                ).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def warn_of_language(code: str) -> None:
    """Warns of a `--source-language` for which the rules may be those of English."""
    from model.text.languages import OF_TWO_SCRIPTS, find_language

    known = find_language(code)
    if known and not known.script and known.primary not in OF_TWO_SCRIPTS:
        say(
            f"tt: warning: little is known here of the language {code}: where texts are cut into "
            "sentences, it may be by the rules of English"
        )


def local_path(given: str) -> Path:
    """Returns the path of a folder that must lie on this machine.

    Raises:
      UserError: It names another file system.
    """
    given = plain_path(given)
    if "://" in given:
        raise UserError(f"{given} is not on this machine: name a local folder")
    return Path(given)


def say(message: str) -> None:
    """Prints a line on stderr: stdout is for results."""
    typer.echo(message, err=True)


def warn_of_missing_digests(folder: Path, *, name: str) -> None:
    """Warns of a model that was written before models had digests of their files."""
    from model.formats.model_folder import describe_missing_digests

    for line in describe_missing_digests(folder, name=name):
        say(f"tt: warning: {line}")


def say_what_is_awaited(stream: TextIO) -> None:
    """Says what a terminal is expected to give; of files and pipes nothing."""
    if stream.isatty():
        say("tt: reading lines from the terminal; end with Ctrl-D")


def import_tensorflow(*, uses_onednn: bool | None = None) -> None:
    """Imports TensorFlow without what its C++ prints about missing GPUs; errors are printed.

    Those notices come before TensorFlow's own log level holds, so the file descriptor itself
    is turned away from the screen for the while.

    Args:
      uses_onednn: Whether oneDNN computes; None leaves it to TensorFlow, which leaves it off
        without AVX-512 VNNI. A training step is up to 1.4 times faster with it; a search, in
        which each step has a shape of its own, is slower. The user's own choice stands.
    """
    if uses_onednn is not None:
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(uses_onednn)))
    sys.stderr.flush()
    screen = os.dup(2)
    with tempfile.TemporaryFile() as notices:
        os.dup2(notices.fileno(), 2)
        try:
            from model.engines.gpus import let_memory_grow

            let_memory_grow()  # looks at the devices
        except Exception:  # not an interrupt: there the notices are no help
            notices.seek(0)
            os.write(screen, notices.read())
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)


def prepare_engine(folder: Path, engine: Engine) -> None:
    """Imports TensorFlow without its notices, if need be, and converts the model for CTranslate2.

    Here and not where it is loaded: that may be in a worker, whose thread would turn all others'
    messages away.

    Raises:
      UserError: The cache for what is converted cannot be written.
    """
    if engine.name == "tensorflow":
        from model.engines.loading import uses_onednn

        import_tensorflow(uses_onednn=uses_onednn(engine))
        warn_of_unused_gpu()
    else:
        from model.engines.ctranslate2_engine import convert

        convert(folder, prepare=import_tensorflow)


def warn_of_unused_gpu(*, remedy: str = "") -> None:
    """Warns of a GPU that TensorFlow, which is imported, does not find: the CPU computes.

    Args:
      remedy: How to insist on the GPU.
    """
    from model.engines.gpus import explain_missing_gpu

    reason = explain_missing_gpu()
    if reason:
        say(f"tt: warning: {reason}. The CPU computes{remedy}")


def quiet_libraries() -> None:
    """Keeps the libraries' notices about themselves off the user's screen."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    for name in ("apache_beam", "absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
