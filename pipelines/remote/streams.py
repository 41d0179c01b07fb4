"""A stream of messages on the workers of others: what must hold, and how it is divided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    StandardOptions,
)

from model.errors import UserError
from pipelines.remote import dataflow, flink
from pipelines.runners.beam_options import find_runner_name, is_dataflow, parse_arguments
from pipelines.storage.paths import is_local

JOB = "translate-stream"
# Of several readers of a slot, those that have nothing to read cost little; Flink puts them into
# slots by their hash, so that with one a slot some slots would have none.
_SHARES_OF_SLOT = 4
_DATAFLOW_SHARES = 100  # which has no slots: it starts workers while the job runs
_FLINK = "flinkrunner"


def is_elsewhere(arguments: Sequence[str]) -> bool:
    """Says whether Beam's flags name a runner that reads a stream with workers of its own.

    Raises:
      UserError: Beam cannot read a flag.
    """
    return find_runner_name(arguments) == _FLINK or is_dataflow(arguments)


def check_options(
    arguments: Sequence[str], *, is_kafka: bool, config: str | None, metrics: str | None
) -> list[str]:
    """Checks what a stream may ask of such a runner; returns warnings.

    Args:
      arguments: Beam's own flags.
      is_kafka: Whether its messages are those of Kafka, else those of Pub/Sub.
      config: File of settings of Kafka's client.
      metrics: The option that asks for metrics here, if one does.

    Raises:
      UserError: It may not, or Beam cannot read a flag.
    """
    if metrics is not None:
        raise UserError(
            f"`{metrics}` is for a stream that this machine translates: leave it out, and see the "
            "counters of the job on the runner's page"
        )
    if is_dataflow(arguments):
        return _check_dataflow(arguments, is_kafka=is_kafka, config=config)
    if not is_kafka:
        raise UserError(
            "Flink is offered for streams of Kafka alone: read Pub/Sub on this machine, without "
            "--runner, where several may read one subscription, or on Dataflow"
        )
    return [] if config is None else [_describe_config(config)]


def _check_dataflow(arguments: Sequence[str], *, is_kafka: bool, config: str | None) -> list[str]:
    options = parse_arguments(arguments)
    if options.view_as(GoogleCloudOptions).flexrs_goal:
        raise UserError(
            "`spot` is Dataflow's Flexible Resource Scheduling, which is for jobs that end: leave "
            "it out"
        )
    if is_kafka and not dataflow.has_tt(options):
        raise UserError(
            "the workers of Dataflow would have no client of Kafka: build deploy/Dockerfile with "
            "it, and name the image with `worker_image`"
        )
    return [] if config is None else [_describe_config(config)]


def _describe_config(config: str) -> str:
    place = (
        f"{config} must be in the image or on the machine of each" if is_local(config) else config
    )
    return f"workers read `kafka_config` themselves, and the job does not hold it: {place}"


def with_settings(arguments: Sequence[str], *, accelerator: str | None = None) -> list[str]:
    """Adds what a stream wants of its runner, where no argument says otherwise.

    Args:
      arguments: Beam's own flags.
      accelerator: GPUs of each worker of Dataflow, "nvidia-l4".

    Raises:
      UserError: Its cluster does not answer or has no slots, or Beam cannot read a flag.
    """
    if not is_dataflow(arguments):
        return flink.with_settings(arguments, job=JOB, shares_model=True, is_stream=True)
    found = dataflow.with_settings(arguments, job=JOB, shares_model=True, accelerator=accelerator)
    is_said = parse_arguments(arguments).view_as(StandardOptions).streaming
    return found if is_said else [*found, "--streaming"]


def with_hints(
    arguments: Sequence[str], *, model_bytes: Callable[[], int], accelerator: str | None
) -> list[str]:
    """Adds what Dataflow is to know of a worker, for all steps: else it would not fuse them.

    See `dataflow.translating_hints` for the arguments.

    Raises:
      UserError: Beam cannot read a flag.
    """
    hints = dataflow.translating_hints(arguments, model_bytes=model_bytes, accelerator=accelerator)
    given = {
        hint.partition("=")[0]
        for hint in parse_arguments(arguments).view_as(StandardOptions).resource_hints or []
    }
    added = [f"--resource_hint={name}={hint}" for name, hint in hints.items() if name not in given]
    return [*arguments, *added]


def count_shares(arguments: Sequence[str]) -> int:
    """Returns the most sources that are worth it, by Beam's flags with the settings of a stream."""
    if is_dataflow(arguments):
        return _DATAFLOW_SHARES
    slots: int = parse_arguments(arguments).view_as(FlinkRunnerOptions).parallelism
    return _SHARES_OF_SLOT * max(1, slots)
