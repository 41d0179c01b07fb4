"""Describe a translated folder, finished or in progress: its units, texts and translations."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tt.model.engines.translator import Work
from tt.model.errors import BadFileError, UserError
from tt.model.inspection.blocks import (
    Bars,
    Facts,
    Histogram,
    Histograms,
    Note,
    Section,
    Table,
    Texts,
    options,
    table,
)
from tt.model.long_work import long_work
from tt.model.storage.listing import exists, list_folder
from tt.pipelines.runners.formatting import describe_sentences, format_seconds, megabytes
from tt.pipelines.tables.columns import path_in, read_text_column
from tt.pipelines.tables.reading import OpenTable
from tt.pipelines.texts.options import TRANSLATION
from tt.pipelines.texts.results import ERROR, OK, ROW_FLAGS, SCORE, STATUS, TextFields
from tt.pipelines.translate.column_choice import ColumnChoice
from tt.pipelines.translate.job_folder import (
    MANIFEST_PATH,
    PLAN_PATH,
    find_json,
    read_json,
    statistics_path,
)
from tt.pipelines.translate.manifest import UnitStatistics, read_statistics
from tt.pipelines.translate.plan import planned_outputs

LOOKED_AT = 100_000  # rows whose texts are examined
_LENGTH_EDGES = [1, *(round(4 * 2 ** (octave / 2)) for octave in range(23))]  # characters
_RATIO_EDGES = [2 ** (eighth / 4 - 4) for eighth in range(33)]  # 1/16 to 16
_SCORE_EDGES = [step / 20 - 2 for step in range(41)]  # -2 to 0


def translated_sections(
    folder: str | Path, *, examples: int = 3, rows: int = LOOKED_AT
) -> list[Section]:
    """Describe a translated folder.

    If the job is in progress, only its finished units are described.

    Args:
      folder: The folder, on any storage.
      examples: Number of texts for each status and flag, and of samples.
      rows: Number of rows whose texts are examined, from the first row on.

    Raises:
      UserError: A part of the folder is damaged.
    """
    path = str(folder)
    plan = read_json(f"{path}/{PLAN_PATH}")
    outputs = planned_outputs(plan, [name.removeprefix(f"{path}/") for name in list_folder(path)])
    units = [
        unit
        for output in outputs
        if (unit := read_statistics(output=path, path=statistics_path(output)))
    ]
    chosen = plan["options"]
    fields = TextFields(
        fields=tuple(chosen["text_columns"]), output=chosen.get("output_column", TRANSLATION)
    )
    choice = ColumnChoice(
        keep=tuple(chosen.get("keep_columns", ())), drop=tuple(chosen.get("drop_columns", ()))
    )
    columns = [
        TranslatedColumn(name, fields=fields, choice=choice, examples=examples)
        for name in fields.fields
    ]
    names = None
    if "corpus" in chosen:  # the sources of the pairs are the translations
        names = {"source": fields.output, "target": fields.fields[0]}
    looked_at = _look(path, units, columns, rows=rows, names=names)
    return [
        _overview(path, plan, units, planned=len(outputs), looked_at=looked_at),
        *(
            Section(f"column-{number}", f"Column {column.name}", column.blocks(units))
            for number, column in enumerate(columns)
        ),
        _work(units),
    ]


def _overview(
    folder: str,
    plan: Mapping[str, Any],
    units: Sequence[UnitStatistics],
    *,
    planned: int,
    looked_at: int,
) -> Section:
    manifest_path = f"{folder}/{MANIFEST_PATH}"
    manifest = find_json(manifest_path) if exists(manifest_path) else None
    state = "not finished" if manifest is None else "finished"
    if manifest and manifest.get("has_failed"):
        state += ", too many rows failed"
    is_corpus = "corpus" in plan["options"]
    done = sum(unit.rows for unit in units)
    rows = max(done, sum(file["rows"] or 0 for file in plan["input"].values()))
    facts = [
        ("translated", folder),
        ("state", state),
        ("languages", " to ".join(plan["languages"].values())),
        ("files", len(plan["input"])),
        ("rows", f"{done:,} of {rows:,}"),
        ("units", f"{len(units):,} of {planned:,}"),
        ("pairs", f"{sum(unit.rows_out for unit in units):,}" if is_corpus else None),
        ("failed rows", sum(unit.failed_rows for unit in units)),
        ("rows examined below", looked_at),
        ("size", megabytes(sum(unit.output_bytes for unit in units))),
        ("model", plan["model_fingerprint"][:16]),
    ]
    dropped: collections.Counter[str] = collections.Counter()
    for unit in units:
        dropped.update(unit.rows_dropped)
    skipped = [
        *([name, None, reason] for name, reason in plan["bad_files"].items()),
        *([unit.output_path, unit.rows, unit.skipped] for unit in units if unit.skipped),
    ]
    engine = {f"engine {name}": value for name, value in plan["engine"].items()}
    blocks = [
        Facts(facts),
        *([Table(["dropped", "rows"], sorted(dropped.items()))] if dropped else []),
        *([Table(["skipped", "rows", "reason"], skipped)] if skipped else []),
        options("Options", {**plan["options"], **plan["decoding"], **engine}),
        options("Versions", plan["versions"]),
    ]
    return Section("overview", "Overview", blocks)


def _work(units: Sequence[UnitStatistics]) -> Section:
    texts = sum(unit.texts for unit in units)
    distinct = sum(unit.distinct_texts for unit in units)
    remembered = sum(unit.remembered_texts for unit in units)
    seconds = sum(unit.seconds for unit in units)
    rate = sum(unit.rows for unit in units) / seconds if seconds else None
    work = sum((unit.work for unit in units), Work())
    facts = [
        ("sentences", describe_sentences(texts, distinct, remembered)),
        ("padding", f"{work.padding:.1%}"),
        ("source tokens", work.source_tokens),
        ("target tokens", work.target_tokens),
        ("time of all workers", format_seconds(seconds)),
        ("rows per second of a worker", rate),
        ("worker hours per million rows", 1e6 / rate / 3600 if rate else None),
    ]
    by_worker: dict[tuple[Any, ...], list[UnitStatistics]] = collections.defaultdict(list)
    for unit in units:
        by_worker[tuple(unit.worker.items())].append(unit)
    workers: list[dict[str, Any]] = [
        {
            **{name: str(value) for name, value in worker},
            "units": len(own),
            "rows": sum(unit.rows for unit in own),
            "seconds": round(sum(unit.seconds for unit in own), 3),
        }
        for worker, own in by_worker.items()
    ]
    workers.sort(key=lambda each: -each["seconds"])
    times = table(workers, "host process thread units rows seconds")
    return Section("work", "Time by worker", [Facts(facts), times])


def _look(
    folder: str,
    units: Sequence[UnitStatistics],
    columns: Sequence[TranslatedColumn],
    *,
    rows: int,
    names: Mapping[str, str] | None,
) -> int:
    """Pass the first rows to each column, and return the number of rows.

    `names` contains new names of the columns, by their names in the files; None keeps the names.
    """
    total = min(rows, sum(unit.rows_out for unit in units))
    with long_work("examining rows", total=total, unit="rows") as work:
        for unit in units:
            first = 0
            for batch in _tables(f"{folder}/{unit.output_path}") if not unit.skipped else ():
                part = batch.slice(0, rows - work.done)
                if names is not None:
                    part = part.rename_columns([names[name] for name in part.column_names])
                for column in columns:
                    column.add(part, file=unit.output_path, first_row=first)
                first += int(part.num_rows)
                work.add(int(part.num_rows))
                if work.done >= rows:
                    return work.done
        return work.done


def _tables(path: str) -> Iterator[pa.Table]:
    try:
        with OpenTable(path) as table:
            for batch in table.batches():
                yield pa.Table.from_batches([batch])
    except (OSError, BadFileError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path} cannot be read: {reason}. Run the job's command again to write the file"
        ) from error


_TextPair = tuple[str | None, str | None]  # a text and its translation
_SAMPLE = "sample"  # the reason to show the first rows


class _Example(NamedTuple):
    """A text with its translation."""

    file: str  # output file, relative to the folder
    row: int  # number of the row in the file, from 0
    text: str | None
    translation: str | None
    status: str | None
    score: float | None  # log-probability
    error: str | None
    flags: list[str] | None

    @property
    def texts(self) -> _TextPair:
        """The text and its translation."""
        return self.text, self.translation


class TranslatedColumn:
    """Collects facts about the rows of a text column, with at most `examples` rows of each kind."""

    def __init__(
        self, name: str, *, fields: TextFields, choice: ColumnChoice, examples: int
    ) -> None:
        self.name, self._fields, self._choice, self._most = name, fields, choice, examples
        self._lengths: list[tuple[int, int]] = []  # characters of a text and of its translation
        self._scores: list[float] = []  # per character of the translation
        # By the reason to show them, such as "status copied" or "sample"; by text and translation.
        self._examples: dict[str, dict[_TextPair, _Example]] = collections.defaultdict(dict)

    def add(self, rows: pa.Table, *, file: str, first_row: int) -> None:
        """Add rows of an output file."""
        for example in self._read(rows, file=file, first_row=first_row):
            reasons = [_SAMPLE, *(f"flag {flag}" for flag in example.flags or ())]
            if example.status not in (OK, None):
                reasons.append(f"status {example.status}")
            for reason in reasons:
                if len(self._examples[reason]) < self._most:
                    self._examples[reason].setdefault(example.texts, example)
            if not (example.text and example.translation):
                continue
            source, target = len(example.text), len(example.translation)
            self._lengths.append((source, target))
            if example.score is not None:
                self._scores.append(example.score / target)

    def _read(self, rows: pa.Table, *, file: str, first_row: int) -> Iterator[_Example]:
        has_text = self._choice.keeps(path_in(rows.schema, self.name)[0])
        # Without the texts, the statuses show how many texts each row has.
        texts = read_text_column(
            rows, self.name if has_text else self._fields.name(self.name, STATUS)
        )
        numbers = [
            first_row + row
            for row, length in enumerate(texts.lengths or [1] * rows.num_rows)
            for _ in range(length or 0)
        ]
        columns = [
            texts.flatten(rows[name]) if name in rows.schema.names else [None] * len(texts.cells)
            for name in (
                self._fields.name(self.name, added)
                for added in (TRANSLATION, STATUS, SCORE, ERROR, ROW_FLAGS)
            )
        ]
        for number, cell, *values in zip(numbers, texts.cells, *columns, strict=True):
            text = None if cell is None or not has_text else cell.decode(errors="replace")
            yield _Example(file, number, text, *values)

    def blocks(self, units: Sequence[UnitStatistics]) -> list[Any]:
        """Return the blocks of the column: counts of the whole job, and facts about its texts."""
        bars = []
        for title, field in (("status", "rows_by_status"), ("flag", "rows_by_flag")):
            counts: collections.Counter[str] = collections.Counter()
            for unit in units:
                counts.update(getattr(unit, field).get(self.name, {}))
            if shown := [(name, count) for name, count in counts.items() if count]:
                bars.append(Bars(f"Rows by {title}", shown, "rows"))
        sources, targets = ([lengths[side] for lengths in self._lengths] for side in (0, 1))
        ratios = [target / source for source, target in self._lengths]
        lengths = [
            (name, _histogram(values, _LENGTH_EDGES, "characters"))
            for name, values in (("text", sources), ("translation", targets))
        ]
        ratio = _histogram(ratios, _RATIO_EDGES, "characters per character of the text")
        score = _histogram(self._scores, _SCORE_EDGES, "log-probability per character")
        return [
            *bars,
            Histograms("Lengths", lengths, is_log=True),
            Histograms("Ratio of lengths", [("ratio", ratio)], is_log=True),
            Histograms("Scores", [("score", score)]),
            self._shown(),
        ]

    def _shown(self) -> Texts | Note:
        """Return the examples without duplicates, each with all reasons to show it."""
        shown: dict[_TextPair, tuple[_Example, list[str]]] = {}
        for reason in sorted(self._examples, key=_SAMPLE.__eq__):  # flags and statuses come first
            for texts, each in self._examples[reason].items():
                shown.setdefault(texts, (each, []))[1].append(reason)
        rows = [
            [", ".join(reasons), e.text, e.translation, e.score, e.file, e.row, e.error]
            for e, reasons in shown.values()
        ]
        header = ["shown as", "text", "translation", "score", "file", "row", "error"]
        return Texts(header, rows) if rows else Note("There are no examples.")


def _histogram(values: Sequence[float], edges: Sequence[float], unit: str) -> Histogram:
    return Histogram.of(values, edges=edges, unit=unit).trimmed()
