"""`tt translate-stream`: translate messages."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from tt.cli.decorators import command
from tt.cli.errors import say, spelled
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import freeze_loaded_objects, prepare_engine
from tt.cli.shared_options import DEFAULT_RUN, ModelFolder
from tt.cli.signals import draining_on_signals
from tt.model.engines.translator import Engine
from tt.model.errors import require
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.options import RunnerOptions
from tt.pipelines.runners.status_line import StatusLine, TimeLine
from tt.pipelines.streams.options import StreamOptions

_PANELS = {
    "Messages": ("fields", "dead_letter", "max_latency", "max_batch"),
    "Kafka": ("group", "delivery", "instance_id", "kafka_config"),
    "Metrics": ("metrics_port", "metrics_address", "metrics_file"),
    "Texts": ("texts",),
}


_COMMON = (
    "--model", "--group", "--delivery", "--kafka-config", "--instance-id", "--field",
    "--dead-letter", "--max-latency", "--max-batch", "--metrics-port", "--metrics-file",
    "--source-language", "--target-language", "--glossary", "--on-flag", "--engine",
    "--compute-type", "--beam-size", "--runner", "--detach",
)  # fmt: skip


@command(is_resumable=True, takes_beam=True, common=_COMMON)
def translate_stream_command(
    context: typer.Context,
    options: Annotated[
        StreamOptions,
        options_of(
            StreamOptions,
            panels=_PANELS,
            flags={"input": "INPUT", "output": "OUTPUT", "fields": "--field"},
        ),
    ],
    engine: Annotated[Engine, options_of(Engine, panel="Model", flags={"name": "--engine"})],
    decoding: Annotated[
        Decoding, options_of(Decoding, panel="Search", panels={"Model": ("batch_tokens",)})
    ],
    runner: Annotated[RunnerOptions, options_of(RunnerOptions, panel="Runner")],
    model: ModelFolder = str(DEFAULT_RUN),
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="Submit the stream and exit; a second command starts a second stream."
        ),
    ] = False,
) -> None:
    """Translate Kafka or Pub/Sub messages.

    To share the partitions of a Kafka topic or the messages of a Pub/Sub subscription, start the
    same command several times, on one or more machines. By default, the command writes the
    translation of each Kafka message exactly once. It writes the translation of each Pub/Sub
    message at least once.

    A translated message keeps the key, the headers (attributes) and the other JSON fields of its
    source message. The header tt-source identifies the source message. The added fields have the
    same names as the added columns of translate-batch.

    After Ctrl-C or SIGTERM, the command finishes and commits the batch in progress, and exits with
    code 0. With --runner dataflow, Dataflow workers read and write the messages.

    Example: tt translate-stream kafka://localhost:9092/in kafka://localhost:9092/out --group tt
    """
    from tt.pipelines.streams.job import StreamRequest
    from tt.pipelines.streams.metrics import describe, describe_end

    request = StreamRequest(
        options=options,
        model=model,
        decoding=decoding,
        engine=engine,
        beam=runner.arguments(context.obj or ()),
        accelerator=runner.accelerator,
    )
    with TimeLine("preparing", stream=sys.stderr) as preparing:
        job = request.plan(spelled(preparing.say))
    for notice in job.notices:
        say(f"tt: warning: {notice}")
    for line in job.lines:
        say(line)
    if job.request.is_elsewhere:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        job.submit(say, detach=detach)
        return
    require(
        not detach, "`detach` needs a `runner` on other machines. Set `runner`, or remove `detach`"
    )
    if job.model.folder is not None:
        prepare_engine(job.model.folder, job.request.engine)
    freeze_loaded_objects()
    try:
        with (
            draining_on_signals(job.stop.set),
            StatusLine(lambda: describe(job.metrics.snapshot()), stream=sys.stderr) as status_line,
        ):
            done = job.run(spelled(status_line.say))
    except KeyboardInterrupt:
        say("tt: stopped at once; run the same command again to resume after the last commit")
        os._exit(130)  # The interpreter would wait for the threads that translate.
    say(describe_end(done))
