"""`tt train`: train a model, and print the progress."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from tt.cli.decorators import command
from tt.cli.errors import say
from tt.cli.flags_of_fields import Given, options_of
from tt.cli.libraries import import_tensorflow, warn_of_unused_gpu
from tt.cli.shared_options import COMMAND, DEFAULT_DATASET, DEFAULT_RUN, local_path
from tt.model.dataset.manifest import VALIDATION
from tt.model.errors import counted
from tt.model.training.options import TrainingConfig
from tt.model.training.request import TrainJob, TrainRequest
from tt.model.transformer.config import TransformerConfig
from tt.pipelines.runners.formatting import format_seconds
from tt.pipelines.runners.status_line import StatusLine, TimeLine

if TYPE_CHECKING:
    from tt.model.training.reports import Progress, Validation
    from tt.model.training.trainer import Trainer


SIGNALLED = 128  # A process that a signal ended has this exit code plus the number of the signal.
_PLACES = "Devices and cache"
_SIZES = ("source_vocabulary_size", "target_vocabulary_size", "shared_vocabulary")
OF_OPUS = (  # set by `tt import huggingface`
    "activation", "projection_bias", "output_bias", "zero_start", "source_bos",
)  # fmt: skip


_COMMON = (
    "--dataset", "--run", "--init-from", "--describe", "--preset", "--encoder-layers",
    "--decoder-layers", "--dropout", "--steps", "--epochs", "--batch-tokens",
    "--peak-learning-rate", "--warmup-steps", "--compute-type", "--validate-every",
    "--score-every", "--best-metric", "--patience", "--keep-checkpoints", "--strategy", "--devices",
)  # fmt: skip


@command(is_resumable=True, common=_COMMON)
def train_command(
    context: typer.Context,
    asked: Annotated[
        Given,
        options_of(
            TrainRequest,
            panels={_PLACES: ["strategy", "exchange"], "Model": ["preset"]},
            defaults={"dataset": str(DEFAULT_DATASET), "run": str(DEFAULT_RUN)},
            shown={"dataset": "the run's dataset, or dataset/"},
            leave_out=("model", "training", "devices", "dataset_name", "fetch_model"),
        ),
    ],
    model: Annotated[
        Given,
        options_of(
            TransformerConfig,
            panel="Model",
            flags={"tie_embeddings": "--tie-embeddings/--untie-embeddings"},
            shown={
                **dict.fromkeys(("d_model", "heads", "d_ff"), "the preset's"),
                "dropout": "the preset's, or depends on the dataset's size",
            },
            leave_out=(*_SIZES, "layers", *OF_OPUS),
        ),
    ],
    training: Annotated[
        Given,
        options_of(
            TrainingConfig,
            panel="Batches and updates",
            panels={
                "Validation and early stopping": [
                    "validate_every", "score_every", "score_sentences", "best_metric", "patience",
                ],
                "Checkpoints and logs": [
                    "save_every", "keep_checkpoints", "keep_best", "average", "log_every",
                ],
            },
            shown={
                "steps": "depends on the dataset's size and the replicas",
                "batch_tokens": "depends on the dataset's size",
                "epochs": "",
                **dict.fromkeys(
                    ("warmup_steps", "validate_every", "save_every"), "depends on --steps"
                ),
            },
        ),
    ],
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Train on these devices, such as GPU:0,GPU:1.  [default: all GPUs, or the CPU]",
            rich_help_panel=_PLACES,
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Copy remote datasets and models to this folder.  [default: ~/.cache/tt]",
            rich_help_panel=_PLACES,
        ),
    ] = None,
    describe: Annotated[
        bool,
        typer.Option(
            "--describe", help="Print the parameters, learning rates and masks without training."
        ),
    ] = False,
) -> None:  # fmt: skip
    """Train a Transformer on a dataset, and export the model.

    Example: tt train --dataset dataset --run run --preset small
    """
    dataset = asked["dataset"]
    source = context.get_parameter_source("dataset")
    if source is not None and source.name == "DEFAULT":
        dataset = _dataset_of_run(asked["run"]) or dataset
    asked["dataset"] = _local_copy(dataset, cache, kind="dataset")
    request = TrainRequest(
        **asked,
        model=model,
        training=training,
        devices=tuple(name.strip() for name in devices.split(",")) if devices else (),
        dataset_name=dataset if "://" in dataset else "",  # The local copy has another path.
        fetch_model=lambda model: _local_copy(model, cache, kind="model"),
    )
    request.check()
    import_tensorflow(uses_onednn=True)
    job = request.plan()
    for line in [*job.notes, *(f"tt: warning: {doubt}" for doubt in job.doubts)]:
        say(line)
    if describe:
        _describe(job)
        return
    from tt.model.training.stops import StopRequest
    from tt.model.training.strategies import lost_worker_errors, make_strategy

    if not devices:
        warn_of_unused_gpu(remedy=". To make a missing GPU an error, set --devices GPU:0")
    stop = StopRequest()
    started: list[Trainer] = []
    strategy = make_strategy(
        request.strategy, devices=request.devices, exchange=request.exchange, report=say
    )
    with (
        stop.from_signals(
            on_interrupt=lambda: say("Saving, then stopping; press Ctrl-C again to stop at once"),
            on_second=lambda: _end_at_once(started),
        ),
        lost_worker_errors(strategy),
    ):
        trainer = job.start(strategy, stop=stop)
        started.append(trainer)
        workers = strategy.extended.worker_devices
        places = ", ".join(device.split("device:")[-1] for device in workers)
        replicas = counted(strategy.num_replicas_in_sync, "replica")
        say(f"Strategy {request.strategy}: {replicas} on {places}")
        _train(trainer, job)


def _describe(job: TrainJob) -> None:
    from tt.cli.commands.blocks import print_blocks
    from tt.model.inspection.masks import masks_section
    from tt.model.inspection.model import parameters_section
    from tt.model.inspection.run import schedule_section

    data, training = job.data, job.training
    sections = [
        parameters_section(job.model),
        schedule_section(training, width=job.model.d_model),
        masks_section(
            data.folder, data.manifest, data.vocabularies, batch_tokens=training.batch_tokens
        ),
    ]
    print_blocks(sections)


def _dataset_of_run(run: str) -> str | None:
    """Return the dataset of an existing run, or None.

    If the dataset no longer exists but the default dataset folder does, return None, because the
    user may have moved the dataset there.
    """
    if "://" not in run and not Path(run, "config.json").exists():
        return None
    import_tensorflow(uses_onednn=True)
    from tt.model.training.run_folder import RunFolder

    folder = RunFolder(run).dataset_folder()
    is_missing = folder is not None and "://" not in folder and not Path(folder).exists()
    return None if is_missing and DEFAULT_DATASET.exists() else folder


def _local_copy(folder: str, cache: str | None, *, kind: Literal["dataset", "model"]) -> Path:
    """Return a folder, or a local copy of a folder on another file system."""
    if "://" not in folder:
        return Path(folder)
    from tt.model.folders import default_cache
    from tt.pipelines.runners.staging import stage_dataset, stage_model

    stage = stage_dataset if kind == "dataset" else stage_model
    with TimeLine(f"staging the {kind}", stream=sys.stderr) as line:
        place = local_path(cache) if cache else default_cache()
        return stage(folder, cache=place, report=line.say)


def _train(trainer: Trainer, job: TrainJob) -> None:
    from tt.model.training.stops import Terminated

    for note in trainer.notes:
        say(f"tt: warning: {note}")
    training, run = job.training, str(job.request.run)
    epoch = job.updates_an_epoch(trainer.workers.replicas)
    say(
        f"{trainer.model.count_params():,} parameters, {training.steps:,} steps "
        f"({training.steps / epoch:.1f} epochs of about {epoch:,} steps)"
    )
    if trainer.is_done:
        say(f"{run} is already trained to step {trainer.state.step:,}; only writing the model")
    elif trainer.state.step:
        say(f"Resuming at step {trainer.state.step:,} from {run}")
    start = time.monotonic()
    line = StatusLine(
        lambda: (
            f"at step {trainer.state.step:,} of {training.steps:,}, "
            f"{format_seconds(time.monotonic() - start)} since the start"
        ),
        stream=sys.stderr,
        is_shown_on_terminals=False,  # The line would separate the reports there.
    )

    def tell(report: Progress | Validation) -> None:
        say(describe_report(report))
        line.note_line()

    try:
        with line:
            model = trainer.train(tell, command=COMMAND.get())
    except Terminated:
        number = trainer.stop.signal or signal.SIGTERM  # None if another worker received it
        verb = "interrupted" if number == signal.SIGINT else "terminated"
        step = trainer.state.step
        say(f"tt: {verb} at step {step:,}; run the same command again to resume")
        raise typer.Exit(SIGNALLED + number) from None
    if trainer.state.step < training.steps:
        say(
            f"Stopped early at step {trainer.state.step:,}: {training.best_metric} has not "
            f"improved in {trainer.state.since_best} validations"
        )
    if seconds := trainer.scoring_seconds:
        pairs = job.data.manifest.splits[VALIDATION].records
        say(
            f"BLEU and chrF of {min(pairs, training.score_sentences):,} of {pairs:,} validation "
            f"sentences took {seconds / (time.monotonic() - start):.0%} of the time"
        )
    if trainer.workers.is_chief:
        say(f"Model: {model} (TensorBoard: tensorboard --logdir {shlex.quote(run)})")


def _end_at_once(started: list[Trainer]) -> NoReturn:
    ending = " to resume" if not started else " to resume from the last checkpoint"
    if started and not started[0].has_checkpoint:
        ending = ", which starts at step 0, because this run has no checkpoint yet"
    say(f"tt: stopped at once; run the same command again{ending}")
    os._exit(SIGNALLED + signal.SIGINT)  # Incomplete files are ignored when the run resumes.


def describe_report(report: Progress | Validation) -> str:
    """Return the line to print for a report."""
    from tt.model.training.reports import Validation

    if isinstance(report, Validation):
        scores = ""
        if report.bleu is not None:
            scores = f"  BLEU {report.bleu:.2f}  chrF {report.chrf:.2f}"
        return (
            f"step {report.step:>6,}  validation: loss {report.loss:.3f}  nll {report.nll:.3f}  "
            f"perplexity {report.perplexity:.2f}  accuracy {report.accuracy:.1%}{scores}"
            f"{'  (best)' if report.is_best else ''}"
        )
    return (
        f"step {report.step:>6,}/{report.steps:,}  loss {report.loss:.3f}  nll {report.nll:.3f}  "
        f"perplexity {report.perplexity:.2f}  accuracy {report.accuracy:.1%}  rate "
        f"{report.learning_rate:.2e}  gradient norm {report.gradient_norm:.2f}  "
        f"{report.source_tokens_per_second:,.0f} + {report.target_tokens_per_second:,.0f} source + "
        f"target tokens/s  padding {report.padding:.0%}  left {format_seconds(report.seconds_left)}"
    )
