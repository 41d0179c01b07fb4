"""`tt train`: options to a model and a training, and their progress to lines."""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cli.config import config_option
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
)
from model.config import (
    AVERAGES,
    COMPUTE_TYPES,
    METRICS,
    NORMS,
    PRESETS,
    SCHEDULES,
    TrainingConfig,
    TransformerConfig,
)

if TYPE_CHECKING:
    from model.artifacts import DatasetManifest
    from model.reporting import Progress, Validation
    from model.training import Trainer
    from model.transformer import Transformer

TRAINING = TrainingConfig()
# The embedded corpus has short sentences of few words: a few minutes of two cores are enough.
EMBEDDED_PRESET = "tiny"
EMBEDDED_TRAINING = TrainingConfig(
    steps=700, batch_tokens=2048, peak_learning_rate=0.002, warmup_steps=200,
    validate_every=200, score_every=1000, save_every=200,
)  # fmt: skip

SIGNALLED = 128  # and the number of a signal: what a shell gives for a process that it ended

_where = functools.partial(typer.Option, rich_help_panel="Where it is trained")
_model = functools.partial(typer.Option, rich_help_panel="Model")
_batches = functools.partial(typer.Option, rich_help_panel="Batches and updates")
_validation = functools.partial(typer.Option, rich_help_panel="Validation and early stopping")
_kept = functools.partial(typer.Option, rich_help_panel="What is kept and shown")


# Where a parameter's default is None, that of the library holds, which has the same name in
# TransformerConfig or TrainingConfig; the help repeats it, and a test compares them.
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
    describe: Annotated[
        bool, typer.Option("--describe", help="Print the model's parameters by part, and stop.")
    ] = False,
    strategy: Annotated[
        str,
        _where(
            help="auto, one-device, mirrored (all GPUs of this machine) or multi-worker (by "
            "TF_CONFIG)."
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
        Text, _model(help=f"{', '.join(PRESETS)}. [default: base; tiny if embedded]")
    ] = None,
    layers: Annotated[Count, _model(help="Layers a side.")] = None,
    d_model: Annotated[Count, _model(help="Width of the model.")] = None,
    heads: Annotated[Count, _model(help="Attention heads.")] = None,
    d_ff: Annotated[Count, _model(help="Inner width of the feed-forward layers.")] = None,
    dropout: Annotated[
        Number,
        _model(help="After sub-layers and embeddings; rates are rounded to 1/256, at least one."),
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
    steps: Annotated[Count, _batches(help="Updates in all. [default: 100000]")] = None,
    batch_tokens: Annotated[
        Count,
        _batches(
            help="A replica's rows times the longer side's length in a batch, at the most. "
            "[default: 4096]"
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
        Number, _batches(help="At the end of the warm-up. [default: the paper's]")
    ] = None,
    warmup_steps: Annotated[
        Count, _batches(help="Updates with a rising rate. [default: 4000]")
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
        Text, _batches(help=f"{' or '.join(COMPUTE_TYPES)}. [default: float32]")
    ] = None,
    seed: Annotated[
        Count, _batches(help="Of weights, order of batches and dropout. [default: 1]")
    ] = None,
    validate_every: Annotated[Count, _validation(help="Updates. [default: 500]")] = None,
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
    save_every: Annotated[Count, _kept(help="Updates. [default: 500]")] = None,
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
    from model.artifacts import DatasetManifest

    folder = _local_dataset(dataset, cache)
    manifest = DatasetManifest.load(folder)
    given = {name: value for name, value in context.params.items() if value is not None}
    model_config, training = configure(given, manifest=manifest)
    import_tensorflow(uses_onednn=True)
    if describe:
        _describe_model(model_config)
        return
    if manifest.corpus == EMBEDDED:
        say(
            f"Embedded corpus: preset {preset or EMBEDDED_PRESET}, {training.steps} steps, batches "
            f"of {training.batch_tokens} tokens, a peak rate of {training.peak_learning_rate} "
            f"after {training.warmup_steps} steps, validated every {training.validate_every} steps "
            f"and saved every {training.save_every}, where no option says otherwise."
        )
    from model.stopping import StopRequest
    from model.strategies import lost_worker_errors, make_strategy
    from model.training import Trainer

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
        )
        say(_describe_strategy(strategy, where))
        _train(trainer, run)


def _local_dataset(dataset: str, cache: str | None) -> Path:
    """Returns the dataset folder, or a copy of it where it is on another file system."""
    if "://" not in dataset:
        return Path(dataset)
    from pipelines.runner import set_file_system_options  # imports Beam, for seconds
    from pipelines.staging import default_cache, stage_dataset

    set_file_system_options([])
    return stage_dataset(dataset, cache=local_path(cache) if cache else default_cache(), report=say)


def configure(
    given: Mapping[str, Any], *, manifest: DatasetManifest
) -> tuple[TransformerConfig, TrainingConfig]:
    """Returns the model and the training for a dataset.

    Args:
      given: Option values by name; those that neither has a field for are left out.
      manifest: Of the dataset.
    """
    is_embedded = manifest.corpus == EMBEDDED
    model_config = TransformerConfig.from_preset(
        given.get("preset") or (EMBEDDED_PRESET if is_embedded else "base"),
        source_vocabulary_size=manifest.source_vocabulary_size,
        target_vocabulary_size=manifest.target_vocabulary_size,
        shared_vocabulary=manifest.shared_vocabulary,
        **_fields_of(TransformerConfig, given),
    )
    values = _fields_of(TrainingConfig, given)
    defaults = EMBEDDED_TRAINING if is_embedded else TRAINING
    if values.keys() & {"validate_every", "best_metric"}:
        defaults = dataclasses.replace(defaults, score_every=None)  # with every validation
    return model_config, dataclasses.replace(defaults, **values)


def _fields_of(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}


def _train(trainer: Trainer, run: str) -> None:
    from model.stopping import Terminated

    for note in trainer.notes:
        say(f"tt: warning: {note}")
    training = trainer.training
    say(f"{trainer.model.count_params():,} parameters, {training.steps:,} steps")
    if trainer.state.step:
        say(f"Resuming at step {trainer.state.step:,} from {run}")
    try:
        model = trainer.train(lambda report: say(describe_report(report)))
    except Terminated:
        number = trainer.stop.signal or signal.SIGTERM  # none: another worker was told
        verb = "interrupted" if number == signal.SIGINT else "terminated"
        if trainer.state.batches:
            say(
                f"tt: {verb}, and saved at step {trainer.state.step:,}: the same command goes on "
                "from there"
            )
        else:
            say(f"tt: {verb} before the first batch: the same command begins at step 0")
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


def describe_report(report: Progress | Validation) -> str:
    """Returns the line that is printed for a report."""
    from model.reporting import Validation

    if isinstance(report, Validation):
        scores = ""
        if report.bleu is not None:
            scores = f"  BLEU {report.bleu:.2f}  chrF {report.chrf:.2f}"
        return (
            f"step {report.step:>6,}  validation: loss {report.loss:.3f}  nll {report.nll:.3f}  "
            f"perplexity {report.perplexity:.2f}  accuracy {report.accuracy:.1%}{scores}"
            f"{'  (best)' if report.is_best else ''}"
        )
    minutes, seconds = divmod(round(report.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"step {report.step:>6,}/{report.steps:,}  loss {report.loss:.3f}  nll {report.nll:.3f}  "
        f"perplexity {report.perplexity:.2f}  accuracy {report.accuracy:.1%}  rate "
        f"{report.learning_rate:.2e}  gradient norm {report.gradient_norm:.2f}  "
        f"{report.source_tokens_per_second:,.0f} + {report.target_tokens_per_second:,.0f} source + "
        f"target tokens/s  padding {report.padding:.0%}  left {hours}:{minutes:02}:{seconds:02}"
    )


def _describe_model(config: TransformerConfig) -> None:
    from model.transformer import Transformer

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
