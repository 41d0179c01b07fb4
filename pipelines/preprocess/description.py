"""Describe a planned and a finished dataset to users, and warn about suspicious corpora."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from tt.model.dataset.manifest import WEIGHT, DatasetManifest, merge_sources
from tt.model.errors import counted
from tt.model.inspection.blocks import Facts, Table, table
from tt.pipelines.jobs.progress import add_counts
from tt.pipelines.preprocess.first_rows import first_of_each_name
from tt.pipelines.preprocess.languages import describe_wrong_languages
from tt.pipelines.preprocess.plan import PreprocessPlan
from tt.pipelines.preprocess.rejected import count_reasons
from tt.pipelines.preprocess.shifts import describe_offset
from tt.pipelines.preprocess.sources import INVALID_UTF8
from tt.pipelines.runners.formatting import as_read, megabytes
from tt.pipelines.tables.text_files import is_other_encoding
from tt.pipelines.texts.languages import language_of_side

_NAME_WIDTH = 40
_FIRST_NAMES = 3  # number of corpora whose first pair is shown
_TEXT_WIDTH = 64  # most characters of a shown text
_MOST_WARNINGS = 3  # most warnings about corpora in another language

# The plan.


def describe_first_pairs(plan: PreprocessPlan) -> Iterator[str]:
    """Yield a line with the first pair of a corpus, for the first few corpora.

    The lines reveal wrong columns. The function does not read remote files and pipes.

    Raises:
      UserError: A file cannot be read.
    """
    languages = [plan.options.source_language or "source", plan.options.target_language or "target"]
    for source in first_of_each_name(plan.sources, most=_FIRST_NAMES):
        if pair := source.first_pair():
            texts = (f'{code} "{_cut(text)}"' for code, text in zip(languages, pair, strict=True))
            yield f"first pair of {_shorten(source.name)}: {', '.join(texts)}"


def _cut(text: str) -> str:
    r"""Return the beginning of a text on one line, with control characters escaped.

    >>> print(_cut("\x1b[31mred"))
    \x1b[31mred
    >>> _cut("A man" + " sings" * 20)
    'A man sings sings sings sings sings sings sings sings sings s...'
    """
    line = " ".join(text.split())
    line = as_read(line[: 2 * _TEXT_WIDTH])
    return line if len(line) <= _TEXT_WIDTH else line[: _TEXT_WIDTH - 3] + "..."


def plan_facts(plan: PreprocessPlan) -> list[tuple[str, object]]:
    """Return facts about the input and the output of a run, without reading a corpus."""
    text_bytes = sum(source.text_bytes() for source in plan.sources)
    changed = ", ".join(_changed_options(plan.options))
    return [
        *(
            (f"source {order + 1}", f"{source.describe()}{_note(plan, order)}")
            for order, source in enumerate(plan.sources)
        ),
        (
            "input",
            f"about {megabytes(text_bytes)} of text, in units of up to {plan.unit_pairs:,} pairs",
        ),
        *((split, counted(spread.shards, "shard")) for split, spread in plan.splits.items()),
        ("options", changed or "all defaults"),
    ]


def _note(plan: PreprocessPlan, order: int) -> str:
    if order >= plan.held_out_from:
        return " (held out)"
    weight = plan.identities[order].get(WEIGHT)
    return f" (weight {weight:g})" if weight else ""


def _changed_options(options: Any) -> Iterator[str]:
    """Yield NAME=VALUE for each option that differs from its default, except the output folder."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            yield from _changed_options(value)
        elif field.name != "output" and value != field.default:
            yield f"{field.name}={value}"


# The finished dataset.


def dataset_blocks(manifest: DatasetManifest) -> list[Any]:
    """Return the counts of a dataset by corpus, by reason of rejection, and by split."""
    rejected = manifest.lines_read - manifest.pairs_kept
    source_tokens, target_tokens = manifest.source_vocabulary_size, manifest.target_vocabulary_size
    tokens = f"{source_tokens:,} source and {target_tokens:,} target tokens"
    if manifest.shared_vocabulary:
        tokens = f"{source_tokens:,} tokens, shared"
    pairs = f"{manifest.lines_read:,} read, {manifest.pairs_kept:,} kept, {rejected:,} rejected"
    mixed = sum(source.get("mixed_languages", 0) for source in manifest.sources)
    excluded = manifest.excluded_texts if manifest.options.get("exclude") else None
    decoded = sum(source.get("decoded", 0) for source in manifest.sources)
    facts = [
        ("languages", " to ".join(_languages(manifest))),
        ("pairs", pairs),
        ("pairs with mixed languages", f"{mixed:,} of {manifest.lines_read:,}" if mixed else None),
        ("decoded entities", f"in {counted(decoded, 'pair')}" if decoded else None),
        ("vocabulary", tokens),
        ("excluded texts", excluded),
    ]
    corpora = [
        {**source, "corpus": _shorten(source["name"])} for source in merge_sources(manifest.sources)
    ]
    reasons = sorted(count_reasons(manifest.sources).items())
    splits = [
        {"split": name, **vars(split), "shards": len(split.shards)}
        for name, split in manifest.splits.items()
    ]
    return [
        Facts(facts),
        table(corpora, "corpus is_held_out read kept"),
        *([Table(["rejected", "pairs"], reasons)] if reasons else []),
        table(splits, "split shards records source_tokens target_tokens longest"),
    ]


def _languages(manifest: DatasetManifest) -> Iterator[str]:
    """Yield the language of each side: the given language, or else the detected language."""
    for side in ("source", "target"):
        texts: dict[str, int] = {}
        for source in manifest.sources:
            add_counts(texts, source.get("languages", {}).get(side, {}))
        detected = language_of_side(texts)
        guess = f"{detected} (detected)" if detected else "?"
        yield getattr(manifest, f"{side}_language") or guess


def describe_doubts(manifest: DatasetManifest) -> list[str]:
    """Return a warning for each corpus with another encoding or language, or with shifted lines."""
    return [
        *_describe_encodings(manifest.sources),
        *_describe_shifts(manifest.sources),
        *_describe_wrong_languages(manifest),
    ]


def _describe_encodings(sources: Sequence[dict[str, Any]]) -> Iterator[str]:
    for source in sources:
        invalid = source["rejected"].get(INVALID_UTF8, 0)
        is_text = source["kind"] in ("text", "tsv", "jsonl")
        if is_text and invalid and is_other_encoding(invalid=invalid, lines=source["read"]):
            encoding = source.get("encoding", "UTF-8")
            yield (
                f"{invalid:,} of {source['read']:,} lines of {source['name']} are not {encoding}. "
                "Choose the right `encoding`, such as latin-1 or cp1252, and make the dataset again"
            )


def _describe_shifts(sources: Sequence[dict[str, Any]]) -> Iterator[str]:
    shifted = [source for source in sources if source.get("shifted")]
    for source in shifted[:_MOST_WARNINGS]:
        found = source["shifted"]
        pairs = sum(found["pairs_by_offset"].values())
        offset = max(found["pairs_by_offset"], key=lambda each: found["pairs_by_offset"][each])
        yield (
            f"{pairs:,} of {source['read']:,} pairs of {_shorten(source['name'])} seem to be "
            f"shifted: from about line {found['first_line']:,} on, {describe_offset(int(offset))}, "
            "as their lengths show. Near this line, find the line that only one side has, remove "
            "it, and make the dataset again"
        )
    if (more := len(shifted) - _MOST_WARNINGS) > 0:
        yield f"{more:,} more corpora seem to have shifted pairs"


def _describe_wrong_languages(manifest: DatasetManifest) -> list[str]:
    codes = {"source": manifest.source_language, "target": manifest.target_language}
    by_corpus: dict[str, dict[str, dict[str, int]]] = {}
    for source in manifest.sources:
        texts = by_corpus.setdefault(source["name"], {"source": {}, "target": {}})
        add_counts(texts, source.get("languages", {}))
    found = [
        warning
        for name, texts in by_corpus.items()
        if (warning := describe_wrong_languages(_shorten(name), texts, codes=codes))
    ]
    if (more := len(found) - _MOST_WARNINGS) > 0:
        found[_MOST_WARNINGS:] = [f"{more:,} more corpora seem to be in another language"]
    return found


def _shorten(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else "..." + name[3 - _NAME_WIDTH :].lstrip()
