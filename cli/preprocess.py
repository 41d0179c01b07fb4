"""`tt preprocess`: options to sources, and sources to a dataset folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import (
    DEFAULT_DATASET,
    DEFAULT_INPUT,
    EMBEDDED,
    Texts,
    command,
    import_tensorflow,
    local_path,
    say,
)
from model.errors import UserError

if TYPE_CHECKING:
    from pipelines.sources import Source

_VOCABULARY_SIZE = 8000
_EMBEDDED_VOCABULARY_SIZE = 1000


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
    output: Annotated[str, typer.Option(help="Dataset folder to write.")] = str(DEFAULT_DATASET),
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
        if by_kind["tfds"]:
            import_tensorflow()
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
        about_a_corpus = {
            "--source-column": source_column,
            "--target-column": target_column,
            "--source-language": source_language,
            "--target-language": target_language,
            "--data-dir": data_dir,
            "--language-pair": language_pair,
            "--subset": subset,
            "--download": download,
        }
        given = [option for option, value in about_a_corpus.items() if value]
        if given:
            raise UserError(f"no corpus is named, and {', '.join(given)} is about one: name it")
        say("No corpus named: using the embedded English-Spanish corpus.")
        training: list[Source] = [EmbeddedCorpus("train")]
        source_language, target_language = "en", "es"
    else:
        training = open_sources(corpora, source, target, split)
    default_size = _EMBEDDED_VOCABULARY_SIZE if is_embedded else _VOCABULARY_SIZE
    options = PreprocessOptions(
        output=str(local_path(output)),
        shards=shards,
        vocabulary=tuple(vocab or ()),
        vocabulary_size=default_size if vocabulary_size is None else vocabulary_size,
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
        corpus=EMBEDDED if is_embedded else "",
    )
    for line in describe_manifest(manifest):
        say(line)
    say(f"Dataset: {output}")
    if is_embedded:
        _leave_held_out_input(DEFAULT_INPUT)


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
    try:
        pq.write_table(table, temporary)
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error}") from error
    say(f"Held-out sentences to translate: {path} ({len(sentences)} rows)")
