"""Translate each distinct sentence of a job once, before its units.

The workers collect the sentences of all unfinished units, and a GroupByKey brings equal sentences
together. Each group is translated, and stored in the translation memory of the job. After that, the
units find their sentences there. A job without a memory uses a temporary one in its output folder.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam

from tt.model.engines.translator import Languages, Translator, Work
from tt.model.storage.files import read_bytes
from tt.model.storage.listing import exists
from tt.pipelines.inference.text_model import translate_by_language
from tt.pipelines.inference.transforms import ModelDoFn
from tt.pipelines.jobs.progress import add_counts
from tt.pipelines.runners.workers import are_elsewhere
from tt.pipelines.texts.options import SENTENCES
from tt.pipelines.texts.sentences import split_sentences
from tt.pipelines.translate.inputs import FoundInput
from tt.pipelines.translate.job_folder import (
    group_path,
    sentences_path,
    write_json,
)
from tt.pipelines.translate.options import AUTO, JOB, TranslateOptions
from tt.pipelines.translate.plan import InputFile, TableUnit
from tt.pipelines.translate.samples import spread_texts
from tt.pipelines.translate.table import TableOptions, find_sentences, text_model
from tt.pipelines.translate.unit_records import UnitOptions, find_finished
from tt.pipelines.translate.unit_rows import open_run
from tt.pipelines.translate.units import BadInputError, read_input, rows_to_translate

_SAMPLES, _SAMPLE_ROWS = 4, 2048
_LEAST_TEXTS = 1000  # smaller samples do not show how often texts repeat
_LEAST_SAVING = 0.2  # the share of sentences; reading the input twice costs less than this
_MOST_LOCAL_BYTES = 2 << 30  # the local runner keeps the collected sentences in memory
_HELD_BYTES = 400  # that the runner needs per collected sentence, in addition to its UTF-8 bytes
_AT_ONCE = 8192  # the maximum number of sentences that are translated and stored at once
_GROUP_BYTES = 4 << 20  # of the input, per group of sentences
_MOST_GROUPS = 4096


def estimate_saving(samples: Sequence[Sequence[str]], *, units: float) -> float:
    """Estimate the share of sentences that need no translation if equal sentences share one.

    The estimate uses Heaps' law: n texts contain about K n^b distinct texts. The samples determine
    b, and the units of a job contain units^(1 - b) times as many distinct texts as the whole job.

    Args:
      samples: At least two samples of about the same size.
      units: The number of units of the job, in each of which a text is translated once anyway.

    Source:
      H. S. Heaps, "Information Retrieval: Computational and Theoretical Aspects", 1978, pages 206
      to 208.

    >>> estimate_saving([["a", "b"], ["c", "d"]], units=10)  # no text repeats
    0.0
    >>> estimate_saving([["a", "b"], ["b", "a"]], units=10)
    0.9
    """
    each = sum(len(set(texts)) for texts in samples) / len(samples)
    every = len(set(itertools.chain.from_iterable(samples)))
    exponent = math.log(every / each) / math.log(len(samples)) if every > each else 0.0
    return 1.0 - float(max(1.0, units) ** (exponent - 1))


def choose_deduplication(
    options: TranslateOptions,
    *,
    found: FoundInput,
    table: TableOptions,
    units: int,
    has_previous: bool,
    beam_arguments: Sequence[str],
) -> tuple[bool, str]:
    """Return whether to translate each distinct sentence of the job once, and why.

    Args:
      options: The options of the job.
      found: The input of the job.
      table: The options of the translated columns.
      units: The number of unfinished units, if the rows of all files are known.
      has_previous: Whether the job keeps the translations of most rows, which it would look up
        twice.
      beam_arguments: Beam's flags.

    Returns:
      The decision, and a reason for the user; the reason is "" if there was no choice.
    """
    if options.deduplicate != AUTO:
        return options.deduplicate == JOB and not options.retry_failed, ""
    known = [file.rows for file in found.files if file.rows is not None]
    is_small = units < 2 or sum(known) * len(found.text_columns) < _LEAST_TEXTS
    if options.retry_failed or has_previous or (len(known) == len(found.files) and is_small):
        return False, ""
    samples = spread_texts(found, places=_SAMPLES, count=_SAMPLE_ROWS, table=table)
    cells = sum(map(len, samples))
    if table.texts.split == SENTENCES:
        samples = [_split(texts, language=table.texts.source_language) for texts in samples]
    texts = sum(map(len, samples))
    if texts < _LEAST_TEXTS or not all(samples):
        return False, ""
    size = sum(file.size for file in found.files)
    if any(file.rows is None for file in found.files):
        units = max(units, size // _GROUP_BYTES)
    saving = estimate_saving(samples, units=units)
    if saving < _LEAST_SAVING:
        return False, ""
    # A unit collects each of its distinct sentences once.
    sizes = [len(text.encode()) + _HELD_BYTES for some in samples for text in set(some)]
    bytes_per_row = len(found.text_columns) * sum(sizes) / cells
    held = units * options.unit_rows * bytes_per_row
    if not are_elsewhere(beam_arguments) and held > _MOST_LOCAL_BYTES:
        return False, ""
    return True, (
        f"about {saving:.0%} of the sentences of all units repeat in other units, so tt first "
        "translates each distinct sentence once. Set `deduplicate=unit` to prevent this"
    )


def _split(texts: Iterable[str], *, language: str) -> list[str]:
    """Return the sentences of texts, including repetitions."""
    pieces = (piece for text in texts for piece in split_sentences(text, language=language))
    return [piece for piece in pieces if not piece.isspace()]


def count_groups(files: Iterable[InputFile], *, units: int) -> int:
    """Return the number of groups of sentences, each of which one worker translates.

    Args:
      files: The input files.
      units: The number of units of the job, if it is known.
    """
    size = sum(file.size for file in files)
    return max(1, min(max(units, size // _GROUP_BYTES), _MOST_GROUPS))


@dataclasses.dataclass(eq=False)  # not frozen: Beam sets attributes of transforms
class TranslateSentences(beam.PTransform):
    """Translates the distinct sentences of runs of units, and returns one empty element at the end.

    Attributes:
      load_translator: Returns the translator; see `ModelDoFn`.
      options: The options for translating units, with a memory.
      groups: The number of groups of sentences; see `count_groups`.
      hints: The resource hints of workers that translate.
    """

    load_translator: Callable[[], Translator]
    _: dataclasses.KW_ONLY
    options: UnitOptions
    groups: int
    hints: Mapping[str, Any]

    def expand(self, runs: beam.PCollection[list[TableUnit]]) -> beam.PCollection[None]:
        """Wire the transform."""
        # The units open the index of the memory again, because this transform adds entries to it.
        name = f"{self.options.run_id}-sentences"
        memory = None if (m := self.options.memory) is None else dataclasses.replace(m, run_id=name)
        options = dataclasses.replace(self.options, memory=memory)
        collect = beam.ParDo(_CollectSentences(self.load_translator, options, self.groups))
        translate = beam.ParDo(_TranslateSentences(self.load_translator, options))
        grouped = (
            runs
            | "Collect" >> collect.with_resource_hints(**self.hints)
            | "Group" >> beam.GroupByKey()
        )
        return (
            grouped
            | "Translate" >> translate.with_resource_hints(**self.hints)
            | "Add up" >> beam.CombineGlobally(_add_up)
            | "Record" >> beam.Map(_record, options=options)
        )


class _CollectSentences(ModelDoFn):
    """Yields the sentences of unfinished units, with the numbers of their groups."""

    def __init__(
        self, load_translator: Callable[[], Translator], options: UnitOptions, groups: int
    ) -> None:
        super().__init__(load_translator)
        self._options = options
        self._groups = groups

    def process(self, run: list[TableUnit]) -> Iterator[tuple[int, tuple[Languages, str]]]:
        options, found = self._options, set[tuple[Languages, str]]()
        with open_run(run, options=options) as reader:
            for unit in run:
                if find_finished(unit, options=options) is not None:
                    continue
                try:
                    for table in read_input(unit, options=options, reader=reader):
                        found |= find_sentences(
                            rows_to_translate(table, unit=unit, options=options)[0],
                            options=options.table,
                            translator=self.acquire(),
                            partitions=unit.file.partitions,
                            memory=options.memory,
                        )
                except BadInputError:
                    pass  # `finish_unit` reports the problem
        for languages, text in sorted(found):
            yield _group(languages, text) % self._groups, (languages, text)


def _group(languages: Languages, text: str) -> int:
    """Return a hash of a sentence that is equal in all processes."""
    return zlib.crc32(f"{languages} {text}".encode())


class _TranslateSentences(ModelDoFn):
    """Translates a group of sentences, stores the translations, and yields counts."""

    def __init__(self, load_translator: Callable[[], Translator], options: UnitOptions) -> None:
        super().__init__(load_translator)
        self._options = options

    def process(
        self, group: tuple[int, Iterable[tuple[Languages, str]]]
    ) -> Iterator[dict[str, Any]]:
        options = self._options
        path = group_path(group[0], plan_digest=options.plan_digest)
        if (counts := _read_record(f"{options.output}/{path}")) is None:
            counts = self._translate(group[1])
            write_json(counts, output=options.output, path=path, run_id=options.run_id)
        yield counts

    def _translate(self, sentences: Iterable[tuple[Languages, str]]) -> dict[str, Any]:
        memory = self._options.memory
        if memory is None:
            raise RuntimeError("there is no memory for the sentences")
        model = text_model(self._options.table, translator=self.acquire(), memory=memory)
        pending, total = iter(sorted(set(sentences))), _no_counts()
        while some := list(itertools.islice(pending, _AT_ONCE)):
            codes, texts = zip(*some, strict=True)
            made = translate_by_language([text.encode() for text in texts], codes, model=model)
            memory.store(made.learned)
            add_counts(total, {"work": dataclasses.asdict(made.work)})
            # A temporary memory contains only translations of earlier attempts of this job.
            kind = "distinct_texts" if memory.is_temporary else "remembered_texts"
            add_counts(total, {"distinct_texts": made.distinct_texts})
            add_counts(total, {kind: made.remembered_texts})
        return total


def _no_counts() -> dict[str, Any]:
    return {"distinct_texts": 0, "remembered_texts": 0, "work": dataclasses.asdict(Work())}


def _add_up(counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    total = _no_counts()
    for each in counts:
        add_counts(total, each)
    return total


def _read_record(path: str) -> dict[str, Any] | None:
    """Read the counts of a group; return None if the record is missing or truncated."""
    if not exists(path):
        return None
    try:
        return dict(json.loads(read_bytes(path)))
    except ValueError:
        return None


def _record(counts: Mapping[str, Any], *, options: UnitOptions) -> None:
    """Write the counts of all groups, so that a later run skips this transform."""
    path = sentences_path(options.plan_digest)
    write_json(counts, output=options.output, path=path, run_id=options.run_id)
