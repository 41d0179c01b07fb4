"""`tt preprocess`: options to sources, and sources to a dataset folder."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.config_file import config_option
from cli.options import (
    DEFAULT_DATASET,
    DEFAULT_INPUT,
    EMBEDDED,
    Count,
    Number,
    Switch,
    Text,
    Texts,
    import_tensorflow,
    resumable_command,
    say,
)
from model.errors import UserError

if TYPE_CHECKING:
    from pipelines.corpora.opening import Source
    from pipelines.preprocess.job import PreprocessOptions

EMBEDDED_VOCABULARY_SIZE = 1000

_corpus = functools.partial(typer.Option, rich_help_panel="Corpora")
_held_out = functools.partial(typer.Option, rich_help_panel="Held-out texts")
_tfds = functools.partial(typer.Option, rich_help_panel="Corpora of TensorFlow Datasets (TFDS)")
_text = functools.partial(typer.Option, rich_help_panel="Normalisation of texts")
_filter = functools.partial(typer.Option, rich_help_panel="Filters: pairs that are left out")
_vocabulary = functools.partial(typer.Option, rich_help_panel="Vocabulary")


# Where a parameter's default is None, that of the library holds, which has the same name in
# PreprocessOptions, Filters or TextNormalization; the help repeats it, and a test compares them.
@resumable_command
def preprocess_command(
    context: typer.Context,
    corpora: Annotated[
        Texts,
        typer.Argument(
            help="[NAME=]PATH[:SOURCE_COLUMN:TARGET_COLUMN] (*.tsv, *.jsonl, *.parquet; globs "
            "too), [NAME=]TEXT+TEXT (line-aligned) or [NAME=]tfds:NAME[/CONFIG]; texts may end "
            "in .gz, .bz2 or .zst, and TSV in anything where its columns are named, as in "
            "fra.txt:0:1. Without any corpus: the embedded English-Spanish one.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[Text, config_option(takes_beam=True)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
    ] = False,
    output: Annotated[str, typer.Option(help="Dataset folder to write.")] = str(DEFAULT_DATASET),
    shards: Annotated[
        Count, typer.Option(help="Shards of the training split; 0: by size. [default: 0]")
    ] = None,
    shard_megabytes: Annotated[
        Number, typer.Option(help="About the size of a shard. [default: 8]")
    ] = None,
    seed: Annotated[Count, typer.Option(help="Of the order of the pairs. [default: 1]")] = None,
    source: Annotated[
        Texts, _corpus(help="Text (compressed too), a source sentence a line; repeatable.")
    ] = None,
    target: Annotated[Texts, _corpus(help="Its translations, line for line.")] = None,
    source_column: Annotated[
        Text,
        _corpus(help="Of corpora that name none: a number from 0 (TSV), a name (Parquet, JSONL)."),
    ] = None,
    target_column: Annotated[Text, _corpus(help="Of the target, likewise.")] = None,
    encoding: Annotated[
        Text,
        _corpus(
            help="Of text, TSV and JSONL, and of --exclude: latin-1, cp1252, gb18030, utf-16, ... "
            "[default: utf-8]"
        ),
    ] = None,
    source_language: Annotated[
        Text,
        _corpus(
            help="Code, such as en, pt-BR or zh-Hant; says the script, and the direction of a TFDS "
            "corpus."
        ),
    ] = None,
    target_language: Annotated[Text, _corpus(help="Code, likewise.")] = None,
    validation: Annotated[
        Texts, _held_out(help="Validation corpus, named as CORPORA are; repeatable.")
    ] = None,
    validation_source: Annotated[Texts, _held_out(help="Validation text of the source.")] = None,
    validation_target: Annotated[Texts, _held_out(help="Its translations.")] = None,
    validation_fraction: Annotated[
        Number,
        _held_out(help="Held out by hash of the source where none is named. [default: 0.01]"),
    ] = None,
    exclude: Annotated[
        Texts,
        _held_out(help="Texts, one a line, that training must not see, on no side; repeatable."),
    ] = None,
    held_out_by: Annotated[
        Text,
        _held_out(
            help="What keeps a pair out of training: pair (it is held out), source (its source "
            "is), side (a side is) or long-side (it is, or a side of more than 4 tokens). With "
            "side alone, short texts of --exclude count. If not given: long-side."
        ),
    ] = None,
    split: Annotated[str, _tfds(help="In TFDS's syntax: 'train[:70%]'.")] = "train",
    validation_split: Annotated[str, _tfds(help="Of those under --validation.")] = "validation",
    data_dir: Annotated[Text, _tfds(help="Where they are prepared.")] = None,
    download: Annotated[
        bool, _tfds("--download", help="Download and prepare what is missing.")
    ] = False,
    language_pair: Annotated[
        Text, _tfds(help="For wmt_translate: SOURCE-TARGET, such as de-en.")
    ] = None,
    subset: Annotated[
        Texts, _tfds(help="For wmt_translate: SPLIT=NAME to build; repeatable.")
    ] = None,
    unicode_form: Annotated[Text, _text(help="NFC, NFKC or none. [default: NFC]")] = None,
    clean_whitespace: Annotated[
        Switch,
        _text(
            "--clean-whitespace/--keep-whitespace",
            help="White space to single spaces, without control and invisible characters; or all "
            "of it as it is, in a vocabulary that keeps it. [default: --clean-whitespace]",
        ),
    ] = None,
    lowercase: Annotated[
        Switch,
        _text(
            "--lowercase/--keep-case",
            help="All texts to lower case, in translation too. [default: --keep-case]",
        ),
    ] = None,
    deduplicate: Annotated[
        Text,
        _filter(help="Of equals the first stays: pair, source, target or none. [default: pair]"),
    ] = None,
    min_characters: Annotated[Count, _filter(help="Least a side. [default: 1]")] = None,
    max_characters: Annotated[Count, _filter(help="Most a side. [default: 5000]")] = None,
    min_tokens: Annotated[Count, _filter(help="Least pieces a side. [default: 1]")] = None,
    max_tokens: Annotated[
        Count, _filter(help="Most pieces a side, BOS and EOS apart. [default: 256]")
    ] = None,
    max_length_ratio: Annotated[
        Number,
        _filter(
            help="Most pieces of the longer side for one of the shorter, beyond 8 that are "
            "free; 0: any. [default: 3]"
        ),
    ] = None,
    min_letters: Annotated[
        Number, _filter(help="Least share of letters among characters; 0: any. [default: 0.25]")
    ] = None,
    reject_identical: Annotated[
        Switch,
        _filter(
            "--reject-identical/--keep-identical",
            help="Pairs whose sides are equal. [default: --reject-identical]",
        ),
    ] = None,
    reject_mojibake: Annotated[
        Switch,
        _filter(
            "--reject-mojibake/--keep-mojibake",
            help="Texts decoded in a wrong encoding. [default: --reject-mojibake]",
        ),
    ] = None,
    source_script: Annotated[
        str, _filter(help="Latin, Han, ...; none: any; auto: that of --source-language.")
    ] = "auto",
    target_script: Annotated[str, _filter(help="The same of the target.")] = "auto",
    min_script: Annotated[
        Number, _filter(help="Least share of letters that are in the script. [default: 0.2]")
    ] = None,
    vocab: Annotated[
        Texts,
        _vocabulary(help="SentencePiece model to use, not train; twice: source, then target."),
    ] = None,
    vocabulary_size: Annotated[
        Count,
        _vocabulary(
            help="Pieces of each; more than the corpus allows are an error. If not given: 8000, or "
            "as many as a small corpus allows; 1000 of the embedded one."
        ),
    ] = None,
    vocabulary_type: Annotated[
        Text, _vocabulary(help="unigram, bpe or char. [default: unigram]")
    ] = None,
    source_vocabulary_type: Annotated[
        Text, _vocabulary(help="Of the source alone; makes the vocabularies separate.")
    ] = None,
    target_vocabulary_type: Annotated[
        Text, _vocabulary(help="Of the target alone; makes the vocabularies separate.")
    ] = None,
    separate_vocabularies: Annotated[
        bool,
        _vocabulary("--separate-vocabularies", help="One a side instead of a shared one."),
    ] = False,
    vocabulary_sample: Annotated[
        Count, _vocabulary(help="Most lines to train on. [default: 200000]")
    ] = None,
    character_coverage: Annotated[
        Number,
        _vocabulary(
            help="Share of characters that get a piece: 0.9995 where many are Han, kana or "
            "Hangul, else 1, if not given."
        ),
    ] = None,
    byte_fallback: Annotated[
        bool,
        _vocabulary("--byte-fallback", help="Spell other characters in bytes, not as unknown."),
    ] = False,
    user_symbol: Annotated[
        Texts, _vocabulary(help="Text that is always a piece of its own; repeatable.")
    ] = None,
    sentencepiece_rule: Annotated[
        Text,
        _vocabulary(
            help="SentencePiece's own normalisation: nmt_nfkc, nfkc, nmt_nfkc_cf or nfkc_cf (cf: "
            "lower case), which lose m², … and more, or identity, which is none, if not given."
        ),
    ] = None,
) -> None:
    """Make a dataset folder from a parallel corpus.

    Its pairs are cleaned, tokenized, shuffled and sharded into TFRecords.
    Beam's own options go after `--`: tt preprocess ... -- --direct_num_workers=2
    """
    from pipelines.corpora.opening import EmbeddedCorpus, sources_from_options
    from pipelines.preprocess.job import (
        describe_earlier,
        describe_manifest,
        find_finished,
        plan_preprocess,
        run_preprocess,
    )
    from pipelines.preprocess.progress import ProgressLine, describe_plan
    from pipelines.runners.runner import set_file_system_options

    def open_sources(
        named: Texts, sources: Texts, targets: Texts, split: str, prefix: str = "--"
    ) -> list[Source]:
        if any("tfds:" in name for name in named or ()):
            import_tensorflow()
        return sources_from_options(
            corpora=named or [],
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
            encoding=encoding or "utf-8",
            text_options=(f"{prefix}source", f"{prefix}target"),
        )

    if dry_run and download:
        raise UserError("--dry-run downloads nothing: leave one of it and --download out")
    set_file_system_options(context.obj or ())
    is_embedded = not (corpora or source or target)
    if is_embedded:
        given = [f"--{name.replace('_', '-')}" for name in _ABOUT_A_CORPUS if context.params[name]]
        if given:
            raise UserError(f"no corpus is named, and {', '.join(given)} is about one: name it")
        training: list[Source] = [EmbeddedCorpus("train")]
        held_out: list[Source] = []
        source_language, target_language = "en", "es"
    else:
        for side in ("source", "target"):
            _check_language(context.params, side=side)
        training = open_sources(corpora, source, target, split)
        held_out = open_sources(
            validation, validation_source, validation_target, validation_split, "--validation-"
        )
    _check_file_system(output)
    options = _make_options(
        context.params,
        is_embedded=is_embedded,
        source_language=source_language or "",
        target_language=target_language or "",
    )
    plan = plan_preprocess(
        sources=training,
        validation_sources=held_out,
        options=options,
        corpus=EMBEDDED if is_embedded else "",
    )
    for notice in plan.notices:
        say(f"tt: warning: {notice}")
    beam_arguments = context.obj or ()
    if is_embedded:
        say("No corpus named: using the embedded English-Spanish corpus.")
    if dry_run:
        for line in describe_plan(plan, beam_arguments=beam_arguments):
            typer.echo(line)
        return
    if finished := find_finished(plan):
        say(f"{output} is finished already: nothing is done.")
        if difference := describe_earlier(finished, plan):
            say(
                f"It was made by an earlier tt, which {difference}: name another --output to make "
                "it as today."
            )
    with ProgressLine(plan, stream=sys.stderr):
        manifest = run_preprocess(plan, beam_arguments=beam_arguments)
    for line in describe_manifest(manifest):
        say(line)
    say(f"Dataset: {output}")
    if is_embedded:
        _leave_held_out_input(DEFAULT_INPUT)


_ABOUT_TRAINING = (
    "vocabulary_size", "vocabulary_type", "source_vocabulary_type", "target_vocabulary_type",
    "separate_vocabularies", "vocabulary_sample", "character_coverage", "byte_fallback",
    "user_symbol", "sentencepiece_rule",
)  # fmt: skip
_ABOUT_A_CORPUS = (
    "exclude", "held_out_by", "encoding",
    "source_column", "target_column", "source_language", "target_language", "data_dir",
    "language_pair", "subset", "download", "validation", "validation_source", "validation_target",
)  # fmt: skip


def _make_options(
    given: Mapping[str, Any], *, is_embedded: bool, source_language: str, target_language: str
) -> PreprocessOptions:
    """Makes the library's options of the command's parameters by their names.

    Args:
      given: The parameters.
      is_embedded: Whether the corpus is the embedded one.
      source_language: Code, or "".
      target_language: Code, or "".
    """
    from model.text.vocabulary import TextNormalization
    from pipelines.pairs.filters import Filters
    from pipelines.preprocess.job import PreprocessOptions

    def of(kind: Any, *apart: str) -> dict[str, Any]:
        return _given(given, {field.name for field in dataclasses.fields(kind)} - set(apart))

    values = of(PreprocessOptions, "exclude", "source_language", "target_language")
    if is_embedded:
        values.setdefault("vocabulary_size", EMBEDDED_VOCABULARY_SIZE)
    if given["vocab"]:
        about_training = [name for name in _ABOUT_TRAINING if given[name]]
        if about_training:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in about_training)
            raise UserError(f"--vocab gives a vocabulary, and {flags} is for training one: choose")
    is_separate = any(
        given[name]
        for name in ("separate_vocabularies", "source_vocabulary_type", "target_vocabulary_type")
    )
    filters = Filters(
        **of(Filters, "source_script", "target_script"),
        source_script=_find_script(given["source_script"], language=source_language),
        target_script=_find_script(given["target_script"], language=target_language),
    )
    return PreprocessOptions(
        **values,
        vocabulary=tuple(given["vocab"] or ()),
        shared_vocabulary=not is_separate,
        user_symbols=tuple(given["user_symbol"] or ()),
        filters=filters,
        exclude=tuple(given["exclude"] or ()),
        normalization=TextNormalization(**of(TextNormalization)),
        source_language=source_language,
        target_language=target_language,
    )


def _given(parameters: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns those of the named parameters that were given."""
    return {name: parameters[name] for name in names if parameters.get(name) is not None}


def _check_language(given: Mapping[str, Any], *, side: str) -> None:
    """Reads the code of a side's language, and says where no script follows from it."""
    from model.text.languages import read_language

    code = given[f"{side}_language"]
    if not code:
        return
    language = read_language(code, name=f"--{side}-language")
    if given[f"{side}_script"] == "auto" and not language.script:
        say(
            f"tt: warning: --{side}-language {code} does not say one script, and pairs in a wrong "
            f"one stay: name it with --{side}-script, such as Latin, or none"
        )


def _find_script(given: str, *, language: str) -> str:
    """Returns the script that a side must be in, or "" where it may be in any."""
    from model.text.languages import find_language

    if given == "auto":
        known = find_language(language)
        return known.script if known else ""
    return "" if given == "none" else given


def _check_file_system(path: str) -> None:
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    from pipelines.storage.files import lookup_reason

    try:
        FileSystems.get_filesystem(path)
    except (ValueError, BeamIOError) as error:
        reason = lookup_reason(path, error)
        raise UserError(f"--output {path} cannot be written: {reason}") from error


def _leave_held_out_input(path: Path) -> None:
    """Writes the embedded corpus's held-out English sentences, unless the file is there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipelines.english_spanish.choices import held_out_pairs

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
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}. Start in another folder"
        ) from error
    say(f"Held-out sentences to translate: {path} ({len(sentences)} rows)")
