"""`tt train`: options to a model and a training, and their progress to lines."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import (
    DEFAULT_DATASET,
    DEFAULT_RUN,
    EMBEDDED,
    DatasetFolder,
    command,
    import_tensorflow,
    local_path,
    say,
)
from model.config import PRESETS, TrainingConfig, TransformerConfig

if TYPE_CHECKING:
    from model.training import Progress

TRAINING = TrainingConfig()
# The embedded corpus has short sentences of few words: a few minutes of two cores are enough.
EMBEDDED_PRESET = "tiny"
EMBEDDED_TRAINING = TrainingConfig(
    steps=700, batch_tokens=2048, peak_learning_rate=0.002, warmup_steps=200,
    validate_every=200, save_every=200,
)  # fmt: skip


@command
def train_command(
    dataset: DatasetFolder = str(DEFAULT_DATASET),
    run: Annotated[
        str, typer.Option(help="Run folder to write; the same command again resumes it.")
    ] = str(DEFAULT_RUN),
    strategy: Annotated[
        str, typer.Option(help="mirrored (all GPUs of this machine) or one-device.")
    ] = "mirrored",
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(PRESETS)}. [default: base; tiny if embedded]",
            show_default=False,
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers a side.")] = None,
    d_model: Annotated[int | None, typer.Option(help="Width of the model.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.")] = None,
    d_ff: Annotated[int | None, typer.Option(help="Inner width of the feed-forward.")] = None,
    dropout: Annotated[float | None, typer.Option(help="After sub-layers and embeddings.")] = None,
    attention_dropout: Annotated[float | None, typer.Option(help="Of attention weights.")] = None,
    position_base: Annotated[float | None, typer.Option(help="Of the sinusoids.")] = None,
    untie_embeddings: Annotated[
        bool, typer.Option("--untie-embeddings", help="A projection of its own to the logits.")
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(help=f"Updates in all. [default: {TRAINING.steps}]", show_default=False),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(help="Padded tokens a side, a batch and a replica. [default: 4096]"),
    ] = None,
    peak_learning_rate: Annotated[
        float | None, typer.Option(help="At the end of the warm-up. [default: the paper's]")
    ] = None,
    warmup_steps: Annotated[
        int | None, typer.Option(help="Updates with a rising rate. [default: 4000]")
    ] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="[default: 0.1]")] = None,
    seed: Annotated[int | None, typer.Option(help="[default: 1]")] = None,
    validate_every: Annotated[int | None, typer.Option(help="Updates. [default: 500]")] = None,
    save_every: Annotated[int | None, typer.Option(help="Updates. [default: 500]")] = None,
    keep_checkpoints: Annotated[
        int | None, typer.Option(help="Last checkpoints that stay. [default: 3]")
    ] = None,
    log_every: Annotated[int | None, typer.Option(help="Updates. [default: 50]")] = None,
) -> None:
    """Train a Transformer on a dataset folder, and export it."""
    from model.artifacts import DatasetManifest

    dataset_folder, run_folder = local_path(dataset), local_path(run)
    manifest = DatasetManifest.load(dataset_folder)
    is_embedded = manifest.corpus == EMBEDDED
    chosen = preset or (EMBEDDED_PRESET if is_embedded else "base")
    config = TransformerConfig.from_preset(
        chosen,
        source_vocabulary_size=manifest.source_vocabulary_size,
        target_vocabulary_size=manifest.target_vocabulary_size,
        shared_vocabulary=manifest.shared_vocabulary,
        tie_embeddings=not untie_embeddings,
        **_given(
            layers=layers,
            d_model=d_model,
            heads=heads,
            d_ff=d_ff,
            dropout=dropout,
            attention_dropout=attention_dropout,
            position_base=position_base,
        ),
    )
    training = dataclasses.replace(
        EMBEDDED_TRAINING if is_embedded else TRAINING,
        **_given(
            steps=steps,
            batch_tokens=batch_tokens,
            peak_learning_rate=peak_learning_rate,
            warmup_steps=warmup_steps,
            label_smoothing=label_smoothing,
            seed=seed,
            validate_every=validate_every,
            save_every=save_every,
            keep_checkpoints=keep_checkpoints,
            log_every=log_every,
        ),
    )
    if is_embedded:
        say(
            f"Embedded corpus: preset {chosen} and {training.steps} steps, with settings for it "
            "where no option says otherwise."
        )
    import_tensorflow()
    from model.training import Trainer, make_strategy

    where = make_strategy(strategy)
    trainer = Trainer(
        dataset=dataset_folder,
        run=run_folder,
        model_config=config,
        training=training,
        strategy=where,
    )
    say(_describe_strategy(strategy, where))
    say(f"{trainer.model.count_params():,} parameters, {training.steps:,} steps")
    if trainer.step:
        say(f"Resuming at step {trainer.step:,} from {run}")
    model = trainer.train(lambda progress: say(_describe_progress(progress)))
    say(f"Model: {model} (TensorBoard: tensorboard --logdir {shlex.quote(run)})")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _describe_strategy(name: str, strategy: Any) -> str:
    replicas = strategy.num_replicas_in_sync
    devices = ", ".join(device.split("device:")[-1] for device in strategy.extended.worker_devices)
    note = ""
    if name == "mirrored" and "GPU" not in devices:
        note = " (no GPU is visible, so `mirrored` runs one CPU replica)"
    return f"Strategy {name}: {replicas} replica(s) on {devices}{note}"


def _describe_progress(progress: Progress) -> str:
    if progress.validation:
        return (
            f"step {progress.step:>6,}  validation: loss {progress.loss:.3f}  "
            f"perplexity {progress.perplexity:.2f}  accuracy {progress.accuracy:.1%}"
        )
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"step {progress.step:>6,}/{progress.steps:,}  loss {progress.loss:.3f}  "
        f"accuracy {progress.accuracy:.1%}  rate {progress.learning_rate:.2e}  "
        f"{progress.tokens_per_second:,.0f} target tokens/s  padding {progress.padding:.0%}  "
        f"left {hours}:{minutes:02}:{seconds:02}"
    )
