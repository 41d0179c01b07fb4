"""A stream of messages on the workers of others: what must hold, and how it is divided."""

from __future__ import annotations

from collections.abc import Sequence

from apache_beam.options.pipeline_options import FlinkRunnerOptions

from model.errors import UserError
from pipelines.remote import flink
from pipelines.runners.beam_options import find_runner_name, parse_arguments

JOB = "translate-stream"
# Of several readers of a slot, those that have nothing to read cost little; Flink puts them into
# slots by their hash, so that with one a slot some slots would have none.
_SHARES_OF_SLOT = 4
_FLINK = "flinkrunner"


def is_elsewhere(arguments: Sequence[str]) -> bool:
    """Says whether Beam's flags name a runner that reads a stream with workers of its own.

    Raises:
      UserError: Beam cannot read a flag.
    """
    return find_runner_name(arguments) == _FLINK


def check_options(arguments: Sequence[str], *, is_kafka: bool, metrics: str | None) -> None:
    """Checks what a stream may ask of such a runner.

    Args:
      arguments: Beam's own flags.
      is_kafka: Whether its messages are those of Kafka.
      metrics: The option that asks for metrics here, if one does.

    Raises:
      UserError: It may not, or Beam cannot read a flag.
    """
    if metrics is not None:
        raise UserError(
            f"`{metrics}` is for a stream that this machine translates: leave it out, and see the "
            "counters of the job on the runner's page"
        )
    if not is_kafka:
        raise UserError(
            "Flink is offered for streams of Kafka alone: read Pub/Sub on this machine, without "
            "--runner; several may read one subscription"
        )


def with_settings(arguments: Sequence[str]) -> list[str]:
    """Adds what a stream wants of its runner, where no argument says otherwise.

    Raises:
      UserError: Its cluster does not answer or has no slots, or Beam cannot read a flag.
    """
    return flink.with_settings(arguments, job=JOB, shares_model=True, is_stream=True)


def count_shares(arguments: Sequence[str]) -> int:
    """Returns the most sources that are worth it, by Beam's flags with the settings of a stream."""
    slots: int = parse_arguments(arguments).view_as(FlinkRunnerOptions).parallelism
    return _SHARES_OF_SLOT * max(1, slots)
