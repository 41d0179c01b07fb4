"""`tt train`: options to a model and a training, and their progress to lines."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cli.commands.training_options import EMBEDDED_PRESET, configure, describe_choices
from cli.config_file import config_option
from cli.options import (
    DEFAULT_DATASET,
    DEFAULT_RUN,
    EMBEDDED,
    Count,
    Number,
    Switch,
    Text,
    import_tensorflow,
    local_path,
    resumable_command,
    say,
    warn_of_unused_gpu,
)
from model.training.choices import DatasetSize, doubts, updates_an_epoch
from model.transformer.config import (
    AVERAGES,
    COMPUTE_TYPES,
    METRICS,
    NORMS,
    PRESETS,
    SCHEDULES,
    TransformerConfig,
)
from pipelines.runners.status_line import PLAIN_SECONDS, StatusLine, format_seconds

if TYPE_CHECKING:
    from model.dataset.manifest import DatasetManifest
    from model.runs.reports import Progress, Validation
    from model.training.trainer import Trainer
    from model.transformer.transformer import Transformer

SIGNALLED = 128  # and the number of a signal: what a shell gives for a process that it ended

_where = functools.partial(typer.Option, rich_help_panel="Where it is trained")
_model = functools.partial(typer.Option, rich_help_panel="Model")
_batches = functools.partial(typer.Option, rich_help_panel="Batches and updates")
_validation = functools.partial(typer.Option, rich_help_panel="Validation and early stopping")
_kept = functools.partial(typer.Option, rich_help_panel="What is kept and shown")


# Where a parameter's default is None, `configure` finds it: in a run that was begun, by the size of
# the dataset, or in the library, which has the same name in TransformerConfig or TrainingConfig;
# the help repeats the library's, and a test compares them.
@resumable_command
def train_command(
    context: typer.Context,
    config: Annotated[Text, config_option(takes_beam=False)] = None,
    dataset: Annotated[
        str,
        typer.Option(
            help="Dataset folder, from `tt preprocess`; one on another file system is copied "
            "into --cache first."
        ),
    ] = str(DEFAULT_DATASET),
    run: Annotated[
        str,
        typer.Option(
            help="Run folder to write, local or gs://; the same command again resumes it."
        ),
    ] = str(DEFAULT_RUN),
    restart_from_model: Annotated[
        bool,
        typer.Option(
            "--restart-from-model",
            help="Where the checkpoints of the run are gone, go on from the weights of its model/, "
            "or else of its best_model/, with an optimizer that begins anew.",
        ),
    ] = False,
    describe: Annotated[
        bool, typer.Option("--describe", help="Print the model's parameters by part, and stop.")
    ] = False,
    strategy: Annotated[
        str,
        _where(
            help="auto, one-device, mirrored (all GPUs of this machine) or multi-worker (by "
            "TF_CONFIG). Tested on CPUs alone: no GPU has run tt yet."
        ),
    ] = "auto",
    devices: Annotated[
        Text,
        _where(help="Such as GPU:0,GPU:1 or 0,1 or CPU:0. [default: all GPUs, or the CPU]"),
    ] = None,
    cache: Annotated[
        Text, _where(help="Folder for copies of remote datasets. [default: ~/.cache/tt]")
    ] = None,
    preset: Annotated[
        Text, _model(help=f"{', '.join(PRESETS)}. [default: by the dataset's size]")
    ] = None,
    layers: Annotated[Count, _model(help="Layers a side.")] = None,
    d_model: Annotated[Count, _model(help="Width of the model.")] = None,
    heads: Annotated[Count, _model(help="Attention heads.")] = None,
    d_ff: Annotated[Count, _model(help="Inner width of the feed-forward layers.")] = None,
    dropout: Annotated[
        Number,
        _model(
            help="After sub-layers and embeddings; rates are rounded to 1/256, at least one. "
            "[default: the preset's, or by the dataset's size]"
        ),
    ] = None,
    attention_dropout: Annotated[Number, _model(help="Of attention weights. [default: 0]")] = None,
    norm: Annotated[
        Text, _model(help=f"{' or '.join(NORMS)}: where layers are normalised. [default: post]")
    ] = None,
    tie_embeddings: Annotated[
        Switch,
        _model(
            "--tie-embeddings/--untie-embeddings",
            help="One matrix for target embedding and logits. [default: --tie-embeddings]",
        ),
    ] = None,
    position_base: Annotated[
        Number, _model(help="Of the sinusoids' wavelengths. [default: 10000]")
    ] = None,
    steps: Annotated[
        Count, _batches(help="Updates in all. [default: by the dataset's size]")
    ] = None,
    batch_tokens: Annotated[
        Count,
        _batches(
            help="A replica's rows times the longer side's length in a batch, at the most. "
            "[default: by the dataset's size]"
        ),
    ] = None,
    effective_batch_size: Annotated[
        Count,
        _batches(
            help="Such tokens an update, over all replicas; batches are accumulated. "
            "[default: one batch a replica]"
        ),
    ] = None,
    peak_learning_rate: Annotated[
        Number, _batches(help="At the end of the warm-up. [default: by the width]")
    ] = None,
    warmup_steps: Annotated[
        Count, _batches(help="Updates with a rising rate. [default: by the steps]")
    ] = None,
    schedule: Annotated[
        Text,
        _batches(help=f"After the warm-up: {' or '.join(SCHEDULES)}. [default: inverse-sqrt]"),
    ] = None,
    label_smoothing: Annotated[Number, _batches(help="[default: 0.1]")] = None,
    subword_dropout: Annotated[
        Number,
        _batches(
            help="Probability that a piece of the training text is split in two, and its parts "
            "likewise: other segmentations in each epoch, for small corpora. [default: 0]"
        ),
    ] = None,
    clip_norm: Annotated[
        Number, _batches(help="Greatest global norm of the gradients. [default: any]")
    ] = None,
    compute_type: Annotated[
        Text,
        _batches(
            help=f"{', '.join(COMPUTE_TYPES[:-1])} or {COMPUTE_TYPES[-1]}, for GPUs. "
            "[default: float32]"
        ),
    ] = None,
    jit: Annotated[
        Switch,
        _batches(
            "--jit/--no-jit",
            help="Compile the model by XLA, anew for each shape of a batch: pays on GPUs, if at "
            "all. [default: --no-jit]",
        ),
    ] = None,
    seed: Annotated[
        Count, _batches(help="Of weights, order of batches and dropout. [default: 1]")
    ] = None,
    validate_every: Annotated[Count, _validation(help="Updates. [default: by the steps]")] = None,
    score_every: Annotated[
        Count,
        _validation(
            help="Updates between greedy translations of the validation split, for BLEU and "
            "chrF; 0: never. [default: with every validation]"
        ),
    ] = None,
    score_sentences: Annotated[
        Count, _validation(help="Of them, at the most. [default: 2000]")
    ] = None,
    best_metric: Annotated[
        Text,
        _validation(
            help=f"What makes a validation the best: {', '.join(METRICS)}. [default: loss]"
        ),
    ] = None,
    patience: Annotated[
        Count,
        _validation(help="Validations without a new best until it stops. [default: never]"),
    ] = None,
    save_every: Annotated[Count, _kept(help="Updates. [default: by the steps]")] = None,
    keep_checkpoints: Annotated[
        Count, _kept(help="Last checkpoints that stay. [default: 3]")
    ] = None,
    keep_best: Annotated[
        Count, _kept(help="Weights of the best validations that stay. [default: 1]")
    ] = None,
    average: Annotated[
        Text,
        _kept(
            help=f"{', '.join(AVERAGES)}: which kept weights the exported model is the mean of. "
            "[default: none]"
        ),
    ] = None,
    log_every: Annotated[Count, _kept(help="Updates between two reports. [default: 50]")] = None,
) -> None:
    """Train a Transformer on a dataset folder, and export it."""
    from model.dataset.manifest import DatasetManifest

    folder = _local_dataset(dataset, cache)
    manifest = DatasetManifest.load(folder)
    size = DatasetSize.of(manifest.splits["train"])
    given = {name: value for name, value in context.params.items() if value is not None}
    begun = _begun(run, manifest)
    model_config, training = configure(given, manifest=manifest, begun=begun)
    import_tensorflow(uses_onednn=True)
    if begun is None and manifest.corpus != EMBEDDED:
        for line in describe_choices(given, model=model_config, training=training, size=size):
            say(line)
    for doubt in doubts(training, width=model_config.d_model):
        say(f"tt: warning: {doubt}")
    if describe:
        _describe_model(model_config)
        return
    if begun is None and manifest.corpus == EMBEDDED:
        say(
            f"Embedded corpus: preset {preset or EMBEDDED_PRESET}, {training.steps} steps, batches "
            f"of {training.batch_tokens} tokens, a peak rate of {training.peak_learning_rate} "
            f"after {training.warmup_steps} steps, validated every {training.validate_every} steps "
            f"and saved every {training.save_every}, where no option says otherwise."
        )
    from model.training.stops import StopRequest
    from model.training.trainer import Trainer
    from model.updates.strategies import lost_worker_errors, make_strategy

    if not devices:
        warn_of_unused_gpu(remedy="; with --devices GPU:0, nothing but a GPU would")
    stop = StopRequest()
    where = make_strategy(
        strategy, devices=[d.strip() for d in devices.split(",")] if devices else [], report=say
    )
    with (
        stop.from_signals(on_interrupt=_say_stopping, on_second=_end_at_once),
        lost_worker_errors(where),
    ):
        trainer = Trainer(
            dataset=folder,
            run=run,
            model_config=model_config,
            training=training,
            strategy=where,
            stop=stop,
            restart_from_model=restart_from_model,
            dataset_name=dataset if "://" in dataset else "",  # not that of its copy
        )
        say(_describe_strategy(strategy, where))
        _train(trainer, run)


def _local_dataset(dataset: str, cache: str | None) -> Path:
    """Returns the dataset folder, or a copy of it where it is on another file system."""
    if "://" not in dataset:
        return Path(dataset)
    from pipelines.runners.runner import set_file_system_options  # imports Beam, for seconds
    from pipelines.runners.staging import default_cache, stage_dataset

    set_file_system_options([])
    return stage_dataset(dataset, cache=local_path(cache) if cache else default_cache(), report=say)


def _begun(run: str, manifest: DatasetManifest) -> dict[str, Any] | None:
    """Returns the configuration of the run that the command goes on with, if there is one."""
    if "://" not in run and not (Path(run) / "config.json").exists():
        return None
    import_tensorflow(uses_onednn=True)
    from model.runs.run_folder import RunFolder

    return RunFolder(run).begun(dataset=manifest.fingerprint)


def _train(trainer: Trainer, run: str) -> None:
    from cli.commands.training_reports import Teller  # imports TensorFlow
    from model.training.stops import Terminated

    for note in trainer.notes:
        say(f"tt: warning: {note}")
    training = trainer.training
    epoch = updates_an_epoch(
        DatasetSize.of(trainer.manifest.splits["train"]),
        training,
        replicas=trainer.strategy.num_replicas_in_sync,
    )
    say(
        f"{trainer.model.count_params():,} parameters, {training.steps:,} steps; an epoch has "
        f"about {epoch:,} updates, so that is {training.steps / epoch:.1f} epochs"
    )
    if trainer.state.step:
        say(f"Resuming at step {trainer.state.step:,} from {run}")
    start = time.monotonic()
    line = StatusLine(
        lambda: (
            f"at step {trainer.state.step:,} of {training.steps:,}, "
            f"{format_seconds(time.monotonic() - start)} since the start"
        ),
        interval=PLAIN_SECONDS,
        stream=sys.stderr,
        is_shown_on_terminals=False,  # between the reports it would be in the way
    )
    teller = Teller(trainer.state.step)

    def tell(report: Progress | Validation) -> None:
        teller(report)
        line.note_line()

    try:
        with line:
            model = trainer.train(tell)
    except Terminated:
        number = trainer.stop.signal or signal.SIGTERM  # none: another worker was told
        verb = "interrupted" if number == signal.SIGINT else "terminated"
        if trainer.state.batches:
            say(
                f"tt: {verb}, and saved at step {trainer.state.step:,}: the same command goes on "
                "from there"
            )
        else:
            say(f"tt: {verb} before the first update: the same command begins at step 0")
        raise typer.Exit(SIGNALLED + number) from None
    if trainer.state.step < training.steps:
        say(
            f"Stopped early at step {trainer.state.step:,}: {training.best_metric} has not got "
            f"better in {trainer.state.since_best} validations"
        )
    if trainer.is_chief:
        say(f"Model: {model} (TensorBoard: tensorboard --logdir {shlex.quote(run)})")


def _say_stopping() -> None:
    say("Saving, then stopping; Ctrl-C again ends at once")


def _end_at_once() -> NoReturn:
    say(
        "tt: interrupted twice, so ended at once: the same command goes on from the last checkpoint"
    )
    os._exit(SIGNALLED + signal.SIGINT)  # what is being written counts only when it is whole


def _describe_strategy(name: str, strategy: Any) -> str:
    replicas = strategy.num_replicas_in_sync
    devices = ", ".join(device.split("device:")[-1] for device in strategy.extended.worker_devices)
    note = ""
    if name == "mirrored" and "GPU" not in devices and replicas == 1:
        note = " (no GPU is visible, so `mirrored` runs one CPU replica)"
    return f"Strategy {name}: {replicas} replica(s) on {devices}{note}"


def _describe_model(config: TransformerConfig) -> None:
    from model.transformer.transformer import Transformer

    model = Transformer(config)
    rows = parameters_by_part(model)
    rows.append(("all", sum(count for _, count in rows)))
    width = max(len(name) for name, _ in rows)
    for name, count in rows:
        typer.echo(f"{name:<{width}}  {count:>13,}")


def parameters_by_part(model: Transformer) -> list[tuple[str, int]]:
    """Returns the number of trained parameters of each part, in the order of the model.

    A part is a layer's sub-layer, such as "encoder_0/attention", or what stands alone, such as
    "embedding".
    """
    counts: dict[str, int] = {}
    for variable in model.trainable_variables:
        # The last two names are those of a matrix and what it belongs to.
        *part, _ = variable.path.split("/")
        name = "/".join(part[:2])
        counts[name] = counts.get(name, 0) + int(variable.value.shape.num_elements())
    return list(counts.items())
