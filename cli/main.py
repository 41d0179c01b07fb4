"""The commands of `tt`: each parses its options, calls `pipelines` or `model`, and prints.

TensorFlow and Beam take seconds to import, so each command imports what it needs itself.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import (
    DEFAULT_DATASET,
    DEFAULT_INPUT,
    DEFAULT_RUN,
    DEFAULT_TRANSLATED,
    BeamSize,
    DatasetFolder,
    LengthPenalty,
    MaxSourceTokens,
    ModelFolder,
    Texts,
    command,
    import_tensorflow,
    say,
)
from model.config import PRESETS, Decoding, TrainingConfig, TransformerConfig
from model.errors import UserError

if TYPE_CHECKING:
    from model.training import Progress
    from pipelines.sources import Source

app = typer.Typer(
    name="tt",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="From a parallel corpus to a trained Transformer to translated Parquet tables.",
)

_DECODING = Decoding()
_TRAINING = TrainingConfig()
_EMBEDDED = "embedded"
# The embedded corpus has short sentences of few words: a few minutes of two cores are enough.
_EMBEDDED_VOCABULARY = 1000
_EMBEDDED_PRESET = "tiny"
_EMBEDDED_TRAINING = TrainingConfig(
    steps=1200, batch_tokens=2048, peak_learning_rate=0.002, warmup_steps=300,
    validate_every=300, save_every=300,
)  # fmt: skip


@app.command("preprocess")
@command
def preprocess_command(
    context: typer.Context,
    corpora: Annotated[
        Texts,
        typer.Argument(
            help="*.tsv, *.tsv.gz, *.parquet (globs too) or tfds:NAME[/CONFIG]. Without any "
            "corpus: the embedded English-Spanish one.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        Texts, typer.Option(help="Text (.gz too), a source sentence a line; repeatable.")
    ] = None,
    target: Annotated[Texts, typer.Option(help="Its translations, line for line.")] = None,
    validation: Annotated[
        Texts, typer.Option(help="Held-out corpus, named as CORPORA are; repeatable.")
    ] = None,
    validation_source: Annotated[Texts, typer.Option(help="Held-out source text.")] = None,
    validation_target: Annotated[Texts, typer.Option(help="Held-out target text.")] = None,
    output: Annotated[Path, typer.Option(help="Dataset folder to write.")] = DEFAULT_DATASET,
    source_column: Annotated[
        str | None, typer.Option(help="Of the source: a number from 0 (TSV), a name (Parquet).")
    ] = None,
    target_column: Annotated[str | None, typer.Option(help="Of the target, likewise.")] = None,
    source_language: Annotated[
        str | None, typer.Option(help="Language code; chooses the direction of a TFDS corpus.")
    ] = None,
    target_language: Annotated[str | None, typer.Option(help="Language code.")] = None,
    split: Annotated[
        str, typer.Option(help="Split of TFDS corpora, in TFDS's syntax: 'train[:70%]'.")
    ] = "train",
    validation_split: Annotated[
        str, typer.Option(help="Split of TFDS corpora under --validation.")
    ] = "validation",
    data_dir: Annotated[str | None, typer.Option(help="Where TFDS corpora are prepared.")] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Let TFDS download and prepare what is missing.")
    ] = False,
    language_pair: Annotated[
        str | None, typer.Option(help="For tfds:wmt_translate: SOURCE-TARGET, such as de-en.")
    ] = None,
    subset: Annotated[
        Texts, typer.Option(help="For tfds:wmt_translate: SPLIT=NAME to build; repeatable.")
    ] = None,
    vocab: Annotated[
        Texts,
        typer.Option(help="SentencePiece model to use, not train; twice: source, then target."),
    ] = None,
    vocabulary_size: Annotated[
        int | None, typer.Option(help="Pieces of a vocabulary. [default: 8000; 1000 if embedded]")
    ] = None,
    vocabulary_type: Annotated[str, typer.Option(help="unigram, bpe or char.")] = "unigram",
    source_vocabulary_type: Annotated[
        str | None, typer.Option(help="Of the source alone; makes the vocabularies separate.")
    ] = None,
    target_vocabulary_type: Annotated[
        str | None, typer.Option(help="Of the target alone; makes the vocabularies separate.")
    ] = None,
    separate_vocabularies: Annotated[
        bool, typer.Option("--separate-vocabularies", help="One a side instead of a shared one.")
    ] = False,
    min_tokens: Annotated[int, typer.Option(help="Least pieces a side.")] = 1,
    max_tokens: Annotated[int, typer.Option(help="Most pieces a side, BOS and EOS apart.")] = 256,
    shards: Annotated[int, typer.Option(help="Shards of the training split; 0: by size.")] = 0,
    validation_fraction: Annotated[
        float, typer.Option(help="Held out, by hash of the source, where nothing is named.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Of the order of the pairs.")] = 1,
) -> None:
    """Make a dataset: tokenize, filter, shuffle and shard a parallel corpus into TFRecords.

    Beam's own options go after `--`: tt preprocess ... -- --direct_num_workers=2
    """
    from pipelines.preprocess import PreprocessOptions, describe_manifest, preprocess
    from pipelines.sources import EmbeddedCorpus, sources_from_options

    def open_sources(named: Texts, sources: Texts, targets: Texts, split: str) -> list[Source]:
        by_kind = _by_kind(named or [])
        return sources_from_options(
            source_texts=sources or [],
            target_texts=targets or [],
            source_column=source_column,
            target_column=target_column,
            source_language=source_language,
            target_language=target_language,
            language_pair=language_pair,
            subsets=subset or [],
            data_dir=data_dir,
            download=download,
            split=split,
            **by_kind,
        )

    held_out = open_sources(validation, validation_source, validation_target, validation_split)
    is_embedded = not (corpora or source or target)
    if is_embedded:
        if held_out:
            raise UserError("held-out files go with a corpus: name one, or leave them out")
        say("No corpus named: using the embedded English-Spanish corpus.")
        training: list[Source] = [EmbeddedCorpus("train")]
        source_language, target_language = "en", "es"
    else:
        training = open_sources(corpora, source, target, split)
    options = PreprocessOptions(
        output=str(output),
        shards=shards,
        vocabulary=tuple(vocab or ()),
        vocabulary_size=vocabulary_size or (_EMBEDDED_VOCABULARY if is_embedded else 8000),
        vocabulary_type=vocabulary_type,
        source_vocabulary_type=source_vocabulary_type,
        target_vocabulary_type=target_vocabulary_type,
        shared_vocabulary=not (
            separate_vocabularies or source_vocabulary_type or target_vocabulary_type
        ),
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        validation_fraction=validation_fraction,
        seed=seed,
        source_language=source_language or "",
        target_language=target_language or "",
    )
    manifest = preprocess(
        sources=training,
        validation_sources=held_out,
        options=options,
        beam_arguments=context.obj or (),
        corpus=_EMBEDDED if is_embedded else "",
    )
    for line in describe_manifest(manifest):
        say(line)
    say(f"Dataset: {output}")
    if is_embedded:
        _leave_held_out_input(DEFAULT_INPUT)


@app.command("train")
@command
def train_command(
    dataset: DatasetFolder = DEFAULT_DATASET,
    run: Annotated[
        Path, typer.Option(help="Run folder to write; the same command again resumes it.")
    ] = DEFAULT_RUN,
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
        typer.Option(help=f"Updates in all. [default: {_TRAINING.steps}]", show_default=False),
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

    manifest = DatasetManifest.load(dataset)
    is_embedded = manifest.corpus == _EMBEDDED
    chosen = preset or (_EMBEDDED_PRESET if is_embedded else "base")
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
        _EMBEDDED_TRAINING if is_embedded else _TRAINING,
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
        dataset=dataset, run=run, model_config=config, training=training, strategy=where
    )
    say(_describe_strategy(strategy, where))
    say(f"{trainer.model.count_params():,} parameters, {training.steps:,} steps")
    if trainer.step:
        say(f"Resuming at step {trainer.step:,} from {run}")
    model = trainer.train(lambda progress: say(_describe_progress(progress)))
    say(f"Model: {model} (TensorBoard: tensorboard --logdir {shlex.quote(str(run))})")


@app.command("translate-batch")
@command
def translate_batch_command(
    context: typer.Context,
    input: Annotated[  # noqa: A002 -- the name that the usage line shows
        list[str], typer.Argument(help="Parquet files, globs, or folders of them.")
    ],
    output: Annotated[
        Path, typer.Option(help="Folder to write; the same command again resumes it.")
    ] = DEFAULT_TRANSLATED,
    model: ModelFolder = DEFAULT_RUN,
    text_column: Annotated[
        str | None, typer.Option(help="Column to translate; a single string column is found.")
    ] = None,
    unit_rows: Annotated[
        int, typer.Option(help="Most consecutive rows of one file that are one unit of work.")
    ] = 8192,
    compression: Annotated[str, typer.Option(help="Of the Parquet output.")] = "zstd",
    max_source_tokens: MaxSourceTokens = 256,
    beam_size: BeamSize = _DECODING.beam_size,
    length_penalty: LengthPenalty = _DECODING.length_penalty,
) -> None:
    """Translate a text column of Parquet files in bulk; all rows and columns are kept.

    Adds the columns translation, translation_score and translation_status.
    Beam's own options go after `--`: tt translate-batch in.parquet -- --direct_num_workers=2
    """
    from pipelines.translate import ModelLoader, TranslateOptions, translate_parquet

    decoding = Decoding(beam_size=beam_size, length_penalty=length_penalty)
    options = TranslateOptions(
        input=tuple(input),
        output=str(output),
        text_column=text_column,
        unit_rows=unit_rows,
        max_source_tokens=max_source_tokens,
        compression=compression,
    )
    import_tensorflow()
    from model.translator import find_model_folder, model_fingerprint

    folder = find_model_folder(model)
    summary = translate_parquet(
        options=options,
        load_translator=ModelLoader(str(folder), decoding),
        model_fingerprint=model_fingerprint(folder),
        decoding=dataclasses.asdict(decoding),
        beam_arguments=context.obj or (),
    )
    if summary.already_finished:
        say("Finished already; nothing to do.")
    elif summary.reused_units:
        say(f"{summary.reused_units:,} of {summary.units:,} units were there from an earlier run.")
    statuses = ", ".join(f"{n:,} {status}" for status, n in summary.rows_by_status.items() if n)
    say(
        f"{summary.rows:,} rows of {summary.files:,} file(s) in {summary.units:,} unit(s)"
        + (f": {statuses}" if statuses else "")
    )
    say(f"Translated: {output}")


@app.command("translate")
@command
def translate_command(
    model: ModelFolder = DEFAULT_RUN,
    beam_size: BeamSize = _DECODING.beam_size,
    length_penalty: LengthPenalty = _DECODING.length_penalty,
    max_source_tokens: MaxSourceTokens = 256,
) -> None:
    """Translate stdin to stdout, a line for a line."""
    from cli.lines import translate_lines

    import_tensorflow()
    from model.translator import Translator

    decoding = Decoding(beam_size=beam_size, length_penalty=length_penalty)
    translator = Translator.load(model, decoding=decoding)
    too_long = translate_lines(
        translator, sys.stdin.buffer, sys.stdout.buffer, max_source_tokens=max_source_tokens
    )
    if too_long:
        places = ", ".join(map(str, too_long[:10])) + (", ..." if len(too_long) > 10 else "")
        say(
            f"tt: {len(too_long)} line(s) have more than {max_source_tokens} tokens and are left "
            f"empty (line {places}): split them, or raise --max-source-tokens"
        )


@app.command("evaluate")
@command
def evaluate_command(
    hypotheses: Annotated[
        Path,
        typer.Argument(help="Translations: text (.gz too), or Parquet of `tt translate-batch`."),
    ],
    reference: Annotated[
        list[Path], typer.Option(help="Reference text, line for line (.gz too); repeatable.")
    ],
    column: Annotated[str, typer.Option(help="Of Parquet hypotheses.")] = "translation",
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokenizer: 13a, zh, char, none, ...")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
) -> None:
    """Score translations against references: BLEU and chrF with their signatures."""
    from cli.evaluation import read_hypotheses, read_references, score_lines

    lines = read_hypotheses(hypotheses, column=column)
    references = read_references(reference, count=len(lines), hypotheses=hypotheses)
    for line in score_lines(lines, references, tokenize=tokenize, lowercase=lowercase):
        typer.echo(line)


@app.command("demo")
@command
def demo_command(
    folder: Annotated[Path, typer.Option(help="Where everything is written.")] = Path("demo"),
) -> None:
    """Run the three commands on the embedded corpus, and show and score translations."""
    from cli.demo import run_demo

    def run_command(arguments: Sequence[str]) -> None:
        code = app(args=list(arguments), obj=[], standalone_mode=False)
        if code:
            raise typer.Exit(code)

    run_demo(folder, run_command=run_command)


def _by_kind(names: Sequence[str]) -> dict[str, list[str]]:
    """Sorts corpora by what their names say that they are."""
    by_kind: dict[str, list[str]] = {"tfds": [], "parquet": [], "tsv": []}
    for name in names:
        if name.startswith("tfds:"):
            by_kind["tfds"].append(name)
        elif name.endswith(".parquet"):
            by_kind["parquet"].append(name)
        elif name.endswith((".tsv", ".tsv.gz")):
            by_kind["tsv"].append(name)
        else:
            raise UserError(
                f"corpus {name!r} is none of *.tsv, *.tsv.gz, *.parquet, tfds:NAME. "
                "Two line-aligned text files go with --source and --target"
            )
    return by_kind


def _leave_held_out_input(path: Path) -> None:
    """Writes the embedded corpus's held-out English sentences, unless the file is there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipelines.demo_corpus import held_out_pairs

    if path.exists():
        say(f"{path} is there already and stays as it is.")
        return
    sentences = [pair.source for pair in held_out_pairs()]
    table = pa.table({"id": pa.array(range(len(sentences)), pa.int64()), "english": sentences})
    temporary = path.with_name(f".{path.name}.tmp")
    pq.write_table(table, temporary)
    temporary.replace(path)
    say(f"Held-out sentences to translate: {path} ({len(sentences)} rows)")


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `tt`; what comes after `--` is for Beam.

    Args:
      arguments: Without the program's name; by default those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    beam_arguments: list[str] = []
    if "--" in given:
        cut = given.index("--")
        given, beam_arguments = given[:cut], given[cut + 1 :]
        if given[:1] not in (["preprocess"], ["translate-batch"]):
            say("tt: error: only `tt preprocess` and `tt translate-batch` take Beam's options")
            raise SystemExit(2)
    app(args=given, obj=beam_arguments)


if __name__ == "__main__":
    main()
