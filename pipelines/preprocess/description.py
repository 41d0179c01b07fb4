"""A plan and a finished dataset in words."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from model.dataset.manifest import WEIGHT, DatasetManifest
from model.errors import counted
from pipelines.jobs.dry_run import describe_run
from pipelines.preprocess.held_out import (
    HELD_OUT_PAIR,
    HELD_OUT_SOURCE,
    HELD_OUT_TARGET,
)
from pipelines.preprocess.plan import PreprocessPlan
from pipelines.preprocess.rejected import count_reasons, describe_reasons
from pipelines.preprocess.sources import INVALID_UTF8, FileSource, Source
from pipelines.runners.formatting import as_read, megabytes
from pipelines.tables.text import is_other_encoding
from pipelines.texts.languages import describe_wrong_languages, language_of_side

# The plan.


def describe_first_pairs(plan: PreprocessPlan) -> Iterator[str]:
    """Yields a line with the first pair of each of the first corpora, by which wrong columns show.

    Files of other machines and pipes are not read, and corpora whose columns have the names of the
    languages need not be.

    Raises:
      UserError: A file cannot be read.
    """
    languages = [plan.options.source_language or "source", plan.options.target_language or "target"]
    for source in _first_of_each_name(plan.sources):
        if pair := source.first_pair():
            texts = (f'{code} "{_cut(text)}"' for code, text in zip(languages, pair, strict=True))
            yield f"first pair of {_shorten(source.name)}: {', '.join(texts)}"


def _first_of_each_name(sources: Sequence[Source]) -> list[FileSource]:
    """Returns the first files of a few corpora that can be read, and read again."""
    by_name: dict[str, Source] = {}
    for source in sources:
        by_name.setdefault(source.name, source)
    return [
        source
        for source in itertools.islice(by_name.values(), _FIRST_NAMES)
        if isinstance(source, FileSource) and all(Path(path).is_file() for path in source.paths())
    ]


def _cut(text: str) -> str:
    r"""Returns a text, or its beginning, on one line; what a terminal would obey is shown.

    >>> print(_cut("\x1b[31mred"))
    \x1b[31mred
    >>> _cut("A man" + " sings" * 20)
    'A man sings sings sings sings sings sings sings sings sings s...'
    """
    line = " ".join(text.split())
    line = as_read(line[: 2 * _TEXT_WIDTH])
    return line if len(line) <= _TEXT_WIDTH else line[: _TEXT_WIDTH - 3] + "..."


def describe_plan(
    plan: PreprocessPlan,
    *,
    arguments: Sequence[str] = (),
    steps: Sequence[str] = (),
    is_finished: bool = False,
) -> list[str]:
    """Return lines that say what a run would do; reads no corpus and writes nothing.

    Args:
      plan: The plan.
      arguments: Beam's own flags, with those that the job adds.
      steps: Names of the job's steps.
      is_finished: Whether the output folder holds the finished dataset.

    Raises:
      UserError: Beam cannot take its flags.
    """
    text_bytes = sum(source.text_bytes() for source in plan.sources)
    begun = len(plan.work.list_finished()["spill"])
    return [
        *(
            f"source {order + 1}: {source.describe()}{_note(plan, order)}"
            for order, source in enumerate(plan.sources)
        ),
        f"input: about {megabytes(text_bytes)} of text, in units of up to "
        f"{plan.unit_pairs:,} pairs",
        *(f"{split}: {counted(spread.shards, 'shard')}" for split, spread in plan.splits.items()),
        f"options: {', '.join(_changed_options(plan.options)) or 'all by default'}",
        *describe_run(
            steps=steps,
            arguments=arguments,
            output=plan.options.output,
            begun=counted(begun, "unit") if begun else "",
            is_finished=is_finished,
        ),
    ]


def _note(plan: PreprocessPlan, order: int) -> str:
    if order >= plan.held_out_from:
        return " (held out)"
    weight = plan.identities[order].get(WEIGHT)
    return f" (weight {weight:g})" if weight else ""


def _changed_options(options: Any) -> Iterator[str]:
    """Yield NAME=VALUE for each option that has not its default, except the output folder."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            yield from _changed_options(value)
        elif field.name != "output" and value != field.default:
            yield f"{field.name}={value}"


_NAME_WIDTH = 40
_FIRST_NAMES = 3  # of corpora, of which a pair is shown
_TEXT_WIDTH = 64  # characters of a text
_MOST_WARNINGS = 3  # of corpora in other languages


def describe_manifest(manifest: DatasetManifest) -> list[str]:
    """Returns the lines that sum up a dataset for its user."""
    lines = [
        f"{manifest.lines_read:,} pairs read, {manifest.pairs_kept:,} kept, "
        f"{manifest.lines_read - manifest.pairs_kept:,} rejected"
    ]
    lines += _table_of_sources(manifest.sources)
    lines += _describe_validation(manifest.sources)
    lines += _describe_excluded(manifest)
    for name, split in manifest.splits.items():
        mean_source = split.source_tokens / max(split.records, 1)
        mean_target = split.target_tokens / max(split.records, 1)
        lines.append(
            f"{name}: {counted(split.records, 'pair')} in {counted(len(split.shards), 'shard')}, "
            f"{split.source_tokens:,} source and {split.target_tokens:,} target tokens "
            f"(on average {mean_source:.1f} and {mean_target:.1f}, at most {split.longest})"
        )
        if split.placeholder_pairs:
            most = len(split.placeholder_pairs)
            lines.append(
                f"{name}: {split.placeholder_pairs[0]:,} of the pairs have placeholders, "
                f"up to {most} each"
            )
    if manifest.shared_vocabulary:
        vocabulary = f"vocabulary: {manifest.source_vocabulary_size:,} tokens, shared"
    else:
        vocabulary = (
            f"vocabularies: {manifest.source_vocabulary_size:,} source and "
            f"{manifest.target_vocabulary_size:,} target tokens"
        )
    if _has_small_vocabulary(manifest):
        wanted = manifest.options["vocabulary_size"]
        vocabulary += f": the corpus allows no more, where {wanted:,} are the default"
    return [*lines, vocabulary]


def describe_doubts(manifest: DatasetManifest) -> list[str]:
    """Returns a warning for each corpus that seems to be in another encoding or language."""
    return [*_describe_encodings(manifest.sources), *_describe_wrong_languages(manifest)]


def _describe_encodings(sources: Sequence[dict[str, Any]]) -> Iterator[str]:
    for source in sources:
        invalid = source["rejected"].get(INVALID_UTF8, 0)
        is_text = source["kind"] in ("text", "tsv", "jsonl")
        if is_text and invalid and is_other_encoding(invalid=invalid, lines=source["read"]):
            encoding = source.get("encoding", "UTF-8")
            yield (
                f"{invalid:,} of {source['read']:,} lines of {source['name']} are not {encoding}: "
                "if it is in another encoding, such as latin-1 or cp1252, name that with "
                "`encoding` and make the dataset again"
            )


def _describe_wrong_languages(manifest: DatasetManifest) -> list[str]:
    codes = {"source": manifest.source_language, "target": manifest.target_language}
    found = [
        warning
        for name, texts in _texts_by_language(manifest.sources).items()
        if (warning := describe_wrong_languages(_shorten(name), texts, codes=codes))
    ]
    if len(found) > _MOST_WARNINGS:
        found[_MOST_WARNINGS:] = [
            f"the same of {len(found) - _MOST_WARNINGS:,} more of the corpora"
        ]
    return found


def describe_unnamed_languages(manifest: DatasetManifest) -> list[str]:
    """Returns a line on what the texts seem to be in, where a language is not named.

    Where corpora seem to be in another language than the one that is named, that is said instead.
    """
    named = {"source": manifest.source_language, "target": manifest.target_language}
    if all(named.values()) or _describe_wrong_languages(manifest):
        return []
    all_texts = _no_texts()
    for texts in _texts_by_language(manifest.sources).values():
        for side, counts in texts.items():
            all_texts[side].update(counts)
    parts = []
    for side in (side for side in named if not named[side]):
        language = language_of_side(all_texts[side])
        told = f"seem to be in {language}" if language else "do not tell theirs"
        option = f"{side}_language={language}" if language else f"{side}_language"
        parts.append(f"the {side} texts {told} (`{option}`)")
    return [
        f"languages not named: {', '.join(parts)}. Name them, and scripts are checked, and the "
        "commands that follow cut texts into sentences and score them by the language"
    ]


def _no_texts() -> dict[str, collections.Counter[str]]:
    return {side: collections.Counter() for side in ("source", "target")}


def _texts_by_language(
    sources: Sequence[dict[str, Any]],
) -> dict[str, dict[str, collections.Counter[str]]]:
    """Adds up the languages of the texts of each corpus, by name and side."""
    found: dict[str, dict[str, collections.Counter[str]]] = {}
    for source in sources:
        texts = found.setdefault(source["name"], _no_texts())
        for side, counts in source.get("languages", {}).items():
            texts[side].update(counts)
    return found


def _has_small_vocabulary(manifest: DatasetManifest) -> bool:
    """Says whether a vocabulary has fewer tokens than by default: the corpus allowed no more."""
    options = manifest.options
    wanted = options.get("vocabulary_size", 0)  # 0: the vocabulary was given
    sizes = manifest.source_vocabulary_size, manifest.target_vocabulary_size
    kinds = (
        options[f"{side}_vocabulary_type"] or options["vocabulary_type"] if wanted else ""
        for side in ("source", "target")
    )
    return any(kind != "char" and size < wanted for kind, size in zip(kinds, sizes, strict=True))


def _describe_validation(sources: Sequence[dict[str, Any]]) -> list[str]:
    held_out = [source for source in sources if source["is_held_out"]]
    if not held_out:
        return []
    read, kept = (sum(source[count] for source in held_out) for count in ("read", "kept"))
    reasons = describe_reasons(count_reasons(held_out))
    if not reasons:
        return [f"validation corpus: all {read:,} pairs kept"]
    return [f"validation corpus: {kept:,} of {read:,} pairs kept, without {reasons}"]


def _describe_excluded(manifest: DatasetManifest) -> list[str]:
    """Says how many texts were excluded, and how many pairs were left out for these."""
    files_of_texts = manifest.options.get("exclude")
    if not files_of_texts or manifest.excluded_texts is None:
        return []
    left_out = sum(
        count
        for source in manifest.sources
        for reason, count in source["rejected"].items()
        if reason in (HELD_OUT_PAIR, HELD_OUT_SOURCE, HELD_OUT_TARGET)
    )
    names = ", ".join(file["path"] for file in files_of_texts)
    has_held_out = any(source["is_held_out"] for source in manifest.sources)
    besides = " or those of the validation corpus" if has_held_out else ""
    return [
        f"excluded: {counted(manifest.excluded_texts, 'text')} of {_shorten(names)}; "
        f"{counted(left_out, 'pair')} left out for these{besides}"
    ]


def _table_of_sources(sources: Sequence[dict[str, Any]]) -> list[str]:
    # Files that one name was given to are one entry.
    totals: dict[str, collections.Counter[str]] = {}
    rejected: dict[str, collections.Counter[str]] = {}
    for source in sources:
        total = totals.setdefault(source["name"], collections.Counter())
        total.update({name: source[name] for name in ("read", "kept")})
        rejected.setdefault(source["name"], collections.Counter()).update(source["rejected"])
    if len(totals) > 1:
        totals["all"] = sum(totals.values(), collections.Counter())
        rejected["all"] = sum(rejected.values(), collections.Counter())
    rows: list[tuple[str, ...]] = [("", "read", "kept", "rejected")]
    for name, total in totals.items():
        reasons = rejected[name]
        counts = (total["read"], total["kept"], reasons.total())
        rows.append((_shorten(name), *(f"{count:,}" for count in counts)))
        rows += [(f"  {reason}", "", "", f"{n:,}") for reason, n in sorted(reasons.items())]
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        "  ".join([name.ljust(first), *(c.rjust(w) for c, w in zip(cells, others, strict=True))])
        for name, *cells in rows
    ]


def _shorten(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else "..." + name[3 - _NAME_WIDTH :].lstrip()
