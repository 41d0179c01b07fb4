"""The plan of a translation of tables: its options, and its units of work.

`_tt/plan.json` contains everything that decides the output, and is written first.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tt.model.formats.model_card import versions_of
from tt.model.transformer.search_options import BATCH_TOKENS, Decoding
from tt.pipelines.inference.model_loading import FoundModel
from tt.pipelines.inference.text_model import NamedGlossary
from tt.pipelines.jobs.folders import JobRecord
from tt.pipelines.storage.paths import JOB_FOLDER
from tt.pipelines.tables.finding import PARQUET, PARQUET_SUFFIX, output_suffix, table_suffix
from tt.pipelines.texts.limits import Limits
from tt.pipelines.translate.options import TranslateOptions

FORMAT = 1
UNITS_FOLDER = f"{JOB_FOLDER}/units"  # of the records of finished units
MOST_AT_ONCE = 8  # units that are read at once; each is a file of its own
_RUNS = 64  # runs that a job has at least, where it has so many units
_RUNS_OF_SLOT = 4  # and for each slot, so that all slots end at about the same time
UNIT_BYTES = 256 << 20  # of a unit's rows in memory, without what is added to them
_PROGRAMS = (
    "tt-translate", "apache-beam", "pyarrow", "sentencepiece", "sentencex", "regex", "tensorflow",
    "ctranslate2",
)  # fmt: skip

_SKIPPED = "skipped"  # in place of the reason why a file is bad


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
    """A planned input file."""

    path: str  # where it is now
    relative_path: str  # path that its outputs are named after
    size: int  # bytes
    # Rows to translate: all of them, but for a limit; None until the job has counted them.
    rows: int | None
    # Tells a rewritten file from the one that was planned: of the footer of Parquet, else of all.
    # "" of a file of which the job has read only a part.
    footer_checksum: str
    changed: float | None = None  # when, in seconds since 1970, if that tells a rewritten file
    schema: pa.Schema | None = None  # of a file that is read from its start; None of Parquet
    group_rows: tuple[int, ...] = ()  # rows of each row group of Parquet
    # Rows that a unit has room for, by what the file's rows take in memory; None if unknown.
    fitting_rows: int | None = None

    def unit_rows(self, most: int) -> int:
        """Returns the most rows of a unit, which are no more than `most`."""
        return most if self.fitting_rows is None else min(most, self.fitting_rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableUnit:
    """A run of rows of one input file, and the output file that it becomes."""

    file: InputFile
    first_row: int  # index in the file
    rows: int  # rows of the unit; 0 only for the one unit of a file without rows
    output_path: str  # relative to the output folder
    # Where the rows of a file that is read from its start were put, or "".
    rows_path: str = ""


def output_stem(relative_path: str) -> str:
    """Returns the output's path up to its number.

    >>> output_stem("x/part.csv.gz")
    'x/part'
    """
    suffix = table_suffix(relative_path)
    if suffix == PARQUET_SUFFIX:  # of which one in capitals stayed in the name from the first
        return relative_path.removesuffix(suffix)
    return relative_path[: len(relative_path) - len(suffix)]


def plan_output_paths(
    *, relative_path: str, rows: int, unit_rows: int, suffix: str = PARQUET_SUFFIX
) -> dict[str, int]:
    """Return the rows of each output file of an input file, by path.

    An input file without rows has one output file.

    >>> plan_output_paths(relative_path="x/part.parquet", rows=3, unit_rows=2)
    {'x/part-00000-of-00002.parquet': 2, 'x/part-00001-of-00002.parquet': 1}
    """
    count = max(1, math.ceil(rows / unit_rows))
    stem = output_stem(relative_path)
    return {
        f"{stem}-{index:05d}-of-{count:05d}{suffix}": min(unit_rows, rows - index * unit_rows)
        for index in range(count)
    }


def plan_units(file: InputFile, *, unit_rows: int, suffix: str = PARQUET_SUFFIX) -> list[TableUnit]:
    """Cut a file into units of at most `unit_rows` rows; a file without rows is one empty unit."""
    unit_rows = file.unit_rows(unit_rows)
    if file.rows is None:
        raise RuntimeError(f"the rows of {file.path} are not counted")
    outputs = plan_output_paths(
        relative_path=file.relative_path, rows=file.rows, unit_rows=unit_rows, suffix=suffix
    )
    return [
        TableUnit(file=file, first_row=index * unit_rows, rows=rows, output_path=path)
        for index, (path, rows) in enumerate(outputs.items())
    ]


def fitting_rows(*, rows: int, content_bytes: int) -> int | None:
    """Returns how many of a file's rows a unit has room for; None if it has no rows.

    >>> fitting_rows(rows=1_000, content_bytes=2**30)
    250
    """
    return max(1, UNIT_BYTES * rows // content_bytes) if rows and content_bytes else None


def cut_runs(
    units: Sequence[TableUnit], *, group_rows: Sequence[int], most: int
) -> list[list[TableUnit]]:
    """Cuts the units of a file into runs of at most `most`, of which each is read at once.

    To read a row, all rows before it in its row group have to be read. So a run ends where a row
    group does, as far as its length allows.
    """
    starts = list(itertools.accumulate(group_rows, initial=0))
    runs = []
    first = 0
    while first < len(units):
        ends = range(min(first + most, len(units)), first, -1)
        good = (
            end
            for end in ends
            if end == len(units) or units[end - 1].first_row < _group_start(units[end], starts)
        )
        end = next(good, ends[0])
        runs.append(list(units[first:end]))
        first = end
    return runs


def _group_start(unit: TableUnit, starts: Sequence[int]) -> int:
    """Returns the first row of the row group in which a unit begins."""
    return starts[max(0, bisect.bisect_right(starts, unit.first_row) - 1)]


def units_at_once(units: int, *, slots: int) -> int:
    """Return the most units of a run: few if the job has few units for each of its slots.

    Args:
      units: Units of the job.
      slots: Units that the job does at the same time: its workers times the threads of each.

    >>> [units_at_once(units, slots=2) for units in (10, 200, 100_000)]
    [1, 3, 8]
    >>> [units_at_once(units, slots=200) for units in (500, 2_000, 100_000)]
    [1, 2, 8]
    """
    return min(MOST_AT_ONCE, max(1, units // max(_RUNS, _RUNS_OF_SLOT * slots)))


def count_rows_read(runs: Sequence[Sequence[TableUnit]], *, group_rows: Sequence[int]) -> int:
    """Counts the rows that have to be read for runs, those before them included.

    >>> file = InputFile(path="", relative_path="", size=1, rows=30, footer_checksum="")
    >>> runs = [[unit] for unit in plan_units(file, unit_rows=10)]
    >>> count_rows_read(runs, group_rows=[30]), count_rows_read(runs, group_rows=[10, 10, 10])
    (60, 30)
    """
    starts = list(itertools.accumulate(group_rows, initial=0))
    return sum(
        run[-1].first_row + run[-1].rows - _group_start(run[0], starts) for run in runs if run
    )


def make_plan(
    *,
    files: Sequence[InputFile],
    bad_files: Mapping[str, str],
    options: TranslateOptions,
    model: FoundModel,
    decoding: Decoding,
    limits: Limits,
    glossary: NamedGlossary | None,
) -> dict[str, Any]:
    """Return the content of `plan.json`: everything that decides the output, and versions.

    `bad_files` maps relative paths to reasons. `options` name the text columns. A glossary is known
    by its content, not by its path.
    """
    inputs: dict[str, dict[str, Any]] = {}
    for file in files:
        planned: dict[str, Any] = {
            "size": file.size,
            "rows": file.rows,
            "footer_checksum": file.footer_checksum,
        }
        if file.changed is not None:
            planned["changed"] = file.changed
        if (unit_rows := file.unit_rows(options.unit_rows)) < options.unit_rows:
            planned["unit_rows"] = unit_rows
        inputs[file.relative_path] = planned
    languages = model.languages
    if options.texts.target_language:
        languages["target"] = options.texts.target_language
    texts = dataclasses.asdict(options.texts)
    protection = texts.pop("protection")
    chosen = {
        "text_columns": list(options.text_columns),
        "unit_rows": options.unit_rows,
        "limit": options.limit,
        "compression": options.compression,
        "format": options.format,
        "target_language_column": options.target_language_column,
        **texts,
        **protection,
        "glossary": glossary and glossary.digest,
    }
    for name, default in (
        ("format", PARQUET), ("target_language_column", None), ("target_language", None)
    ):  # fmt: skip
        if chosen[name] in (default, ""):
            del chosen[name]
    plan = {
        "format": FORMAT,
        "input": inputs,
        "bad_files": dict(bad_files),
        "options": chosen,
        "model_fingerprint": model.fingerprint,
        # The default is one number, whatever device translates: so another one may go on.
        "decoding": {
            **dataclasses.asdict(decoding),
            "batch_tokens": decoding.batch_tokens or BATCH_TOKENS,
        },
        "engine": model.engine,
        "limits": dataclasses.asdict(limits),  # of flags
        "languages": languages,
        "versions": installed_versions(),
    }
    return dict(json.loads(json.dumps(plan)))  # as it reads back: a tuple is a list there


def planned_rows(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return the rows of each output file of a plan by its path, as far as they are known."""
    found: dict[str, int] = {}
    for name, file in plan["input"].items():
        if file["rows"] is not None:
            unit_rows = file.get("unit_rows", plan["options"]["unit_rows"])
            found |= plan_output_paths(
                relative_path=name,
                rows=file["rows"],
                unit_rows=unit_rows,
                suffix=planned_suffix(plan),
            )
    return found


def planned_outputs(plan: Mapping[str, Any], existing: Collection[str] = ()) -> list[str]:
    """Return the paths of the output files of a plan, in the order of the input.

    Args:
      plan: The content of `plan.json`.
      existing: Files of the output folder, relative to it. They tell the number of outputs of each
        input file whose rows the job counts; by default it is one. Unit records overrule outputs,
        because a file of another program may have the name of an output.
    """
    suffix = planned_suffix(plan)
    counts: dict[str, int] = {}
    for folder, ending in (("", suffix), (f"{UNITS_FOLDER}/", ".json")):
        pattern = re.compile(rf"{folder}(.*)-\d{{5,}}-of-(\d{{5,}}){re.escape(ending)}")
        counts |= {match[1]: int(match[2]) for match in map(pattern.fullmatch, existing) if match}
    outputs: list[str] = []
    for name, file in plan["input"].items():
        unit_rows, rows = file.get("unit_rows", plan["options"]["unit_rows"]), file["rows"]
        if rows is None:
            unit_rows, rows = 1, counts.get(output_stem(name), 1)
        outputs += plan_output_paths(
            relative_path=name, rows=rows, unit_rows=unit_rows, suffix=suffix
        )
    return outputs


def planned_suffix(plan: Mapping[str, Any]) -> str:
    """Return the suffix of the output files of a plan."""
    options = plan["options"]
    return output_suffix(
        file_format=options.get("format", PARQUET), compression=options.get("compression", "none")
    )


@functools.cache
def installed_versions() -> dict[str, str]:
    """Return the versions of the programs that decide the bytes of an output file."""
    return versions_of(_PROGRAMS)


def record_of(plan: Mapping[str, Any]) -> JobRecord:
    """Return the job of a plan, to compare with the job of another plan."""
    part = _decisive(plan)
    inputs = {**part.pop("input"), **part.pop("bad_files")}
    return JobRecord(fingerprint=plan_digest(plan), options=part, inputs=inputs)


def _decisive(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a plan that another run must share to resume it."""
    part = {key: value for key, value in plan.items() if key not in ("versions", "languages")}
    part["bad_files"] = dict.fromkeys(plan.get("bad_files", {}), _SKIPPED)  # whatever the reason
    return part


def plan_digest(plan: Mapping[str, Any]) -> str:
    """Return a digest (hex blake2b) that tells the units of this plan from others."""
    content = json.dumps(_decisive(plan), sort_keys=True).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()
