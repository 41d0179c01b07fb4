"""Plan a translation of tables: its options and its units of work.

The plan contains everything that affects the output. The job writes it to `_tt/plan.json` first.
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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tt.model.formats.model_card import versions_of
from tt.model.storage.paths import JOB_FOLDER
from tt.model.transformer.search_options import BATCH_TOKENS, Decoding
from tt.pipelines.inference.model_loading import FoundModel
from tt.pipelines.inference.text_model import NamedGlossary
from tt.pipelines.jobs.folders import JobRecord
from tt.pipelines.tables.formats import (
    PARQUET,
    PARQUET_SUFFIX,
    UTF8,
    output_suffix,
    table_suffix,
)
from tt.pipelines.tables.lakehouse import parse_address, table_names
from tt.pipelines.tables.partitions import PartitionValue
from tt.pipelines.tables.ranges import LineRange
from tt.pipelines.texts.flags import Limits
from tt.pipelines.texts.options import TRANSLATION
from tt.pipelines.translate.options import TranslateOptions

FORMAT = 1
UNITS_FOLDER = f"{JOB_FOLDER}/units"  # the records of finished units
MOST_AT_ONCE = 8  # the maximum number of units in a run, which is read in one pass
_RUNS = 64  # the minimum number of runs of a job, if it has enough units
_RUNS_PER_SLOT = 4  # the minimum number per slot, so that all slots finish at about the same time
UNIT_BYTES = 256 << 20  # the memory of a unit's rows, without the added columns
_PROGRAMS = (
    "tt-translate", "apache-beam", "pyarrow", "duckdb", "sentencepiece", "sentencex", "regex",
    "tensorflow", "ctranslate2",
)  # fmt: skip

# Replaces the reasons for bad files in the digest of a plan, because they may differ between runs.
_SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
    """A planned input file.

    Attributes:
      path: The path of the file.
      relative_path: The relative path that determines the names of the output files.
      size: The size, in bytes.
      rows: The number of rows to translate; None until the job has counted the rows.
      footer_checksum: The checksum of a Parquet file's footer, or of the whole file in other
        formats. It reveals a changed file. It is "" if only the head of the file has been read.
      changed: The modification time, in seconds since 1970. It reveals a changed file if only its
        head has been read, and is None otherwise.
      written: The modification time of a Parquet file, in seconds since 1970, or None. It reveals
        a changed file with the same footer. It does not affect the digest of the plan, because
        versions of `tt` that ignored the time wrote the same digest.
      schema: The schema of a file that can only be read from its start; None for Parquet.
      group_rows: The number of rows in each row group of a Parquet file.
      ranges: The rows of each unit of a text file that several workers can read; otherwise empty.
      fitting_rows: The number of rows that fit into the memory of a unit; None if it is unknown.
      plan_digest: The digest of the plan of the file's generation, which the records of its units
        contain.
      partitions: The names and values of the partition columns that the job uses.
      table_partitions: The names and values of the partition columns of a Delta Lake or Iceberg
        table, which the file may not contain.
      as_schema: The schema to which the rows are cast after reading; None to keep the file's own.
      is_removed: Whether the file no longer exists, so that only its translations are left.
    """

    path: str
    relative_path: str
    size: int
    rows: int | None = None
    footer_checksum: str = ""
    changed: float | None = None
    written: float | None = None
    schema: pa.Schema | None = None
    group_rows: tuple[int, ...] = ()
    ranges: tuple[LineRange, ...] = ()
    fitting_rows: int | None = None
    plan_digest: str = ""
    partitions: tuple[tuple[str, PartitionValue], ...] = ()
    table_partitions: tuple[tuple[str, str | None], ...] = ()
    as_schema: pa.Schema | None = None
    is_removed: bool = False

    def unit_rows(self, most: int) -> int:
        """Return the maximum number of rows in a unit: `most`, or fewer if the rows are large."""
        return most if self.fitting_rows is None else min(most, self.fitting_rows)

    def choose_columns(
        self, schema: pa.Schema, choose: Callable[[pa.Schema], Sequence[int]]
    ) -> Sequence[str]:
        """Return the names of the columns to read from a file with this schema.

        Args:
          schema: The schema of the file itself.
          choose: Returns the indices of the chosen columns in a schema. A file of a table may lack
            some columns of its table, or have encoded names.
        """
        if self.as_schema is None:
            return [schema.names[index] for index in choose(schema)]
        wanted = {self.as_schema.names[index] for index in choose(self.as_schema)}
        names = table_names(schema.names, schema=self.as_schema)
        found = [own for own, name in zip(schema.names, names, strict=True) if name in wanted]
        return found or list(schema.names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableUnit:
    """A unit of work: consecutive rows of one input file, which become one output file.

    Attributes:
      file: The input file.
      first_row: The index of the first row in the file.
      rows: The number of rows; 0 only for the single unit of a file without rows.
      output_path: The path of the output file, relative to the output folder.
      rows_path: The path of a file to which the job has copied the rows of the unit, because the
        input file does not allow random access; "" if the rows are read from the input file.
      part: The range of the rows in a text file; None if there is no such range.
    """

    file: InputFile
    first_row: int
    rows: int
    output_path: str
    rows_path: str = ""
    part: LineRange | None = None


def output_stem(relative_path: str) -> str:
    """Return the relative path of output files, without the number and the suffix.

    >>> output_stem("x/part.csv.gz")
    'x/part'
    """
    suffix = table_suffix(relative_path)
    if suffix == PARQUET_SUFFIX:  # for compatibility, an uppercase .PARQUET is not removed
        return relative_path.removesuffix(suffix)
    return relative_path[: len(relative_path) - len(suffix)]


def stem_of_input(output_path: str) -> str:
    """Return the `output_stem` of an output file's input file.

    >>> stem_of_input("x/part-00000-of-00002.parquet")
    'x/part'
    """
    return output_path.rpartition("-of-")[0].rpartition("-")[0]


def plan_output_paths(
    *, relative_path: str, rows: int, unit_rows: int, suffix: str = PARQUET_SUFFIX
) -> dict[str, int]:
    """Return the paths of the output files of an input file, and the number of rows in each.

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
    """Return how many rows of a file fit into the memory of a unit; None if it is unknown.

    >>> fitting_rows(rows=1_000, content_bytes=2**30)
    250
    """
    return max(1, UNIT_BYTES * rows // content_bytes) if rows and content_bytes else None


def cut_runs(
    units: Sequence[TableUnit], *, group_rows: Sequence[int], most: int
) -> list[list[TableUnit]]:
    """Divide the units of a file into runs of at most `most` units; a run is read in one pass.

    Reading a row requires reading all rows before it in its row group. Therefore, runs end at the
    ends of row groups if possible.
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
    """Return the first row of the row group in which a unit begins."""
    return starts[max(0, bisect.bisect_right(starts, unit.first_row) - 1)]


def units_at_once(units: int, *, slots: int) -> int:
    """Return the maximum number of units in a run; it is small if there are few units per slot.

    Args:
      units: The number of units of the job.
      slots: The number of units that the job translates at the same time, which is the number of
        workers times the number of threads per worker.

    >>> [units_at_once(units, slots=2) for units in (10, 200, 100_000)]
    [1, 3, 8]
    >>> [units_at_once(units, slots=200) for units in (500, 2_000, 100_000)]
    [1, 2, 8]
    """
    return min(MOST_AT_ONCE, max(1, units // max(_RUNS, _RUNS_PER_SLOT * slots)))


def count_rows_read(runs: Sequence[Sequence[TableUnit]], *, group_rows: Sequence[int]) -> int:
    """Count the rows that runs must read, including the rows before them in their row groups.

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
    """Return the content of `plan.json`: everything that affects the output, and the versions.

    Args:
      files: The input files.
      bad_files: The reasons why files are bad, by relative path.
      options: The options of the job, with the text columns.
      model: The model.
      decoding: The options of the search.
      limits: The thresholds of flags.
      glossary: The glossary, which the plan identifies by its content.
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
        if file.written is not None:
            planned["written"] = file.written
        if (unit_rows := file.unit_rows(options.unit_rows)) < options.unit_rows:
            planned["unit_rows"] = unit_rows
        if file.partitions:
            planned["partitions"] = dict(file.partitions)
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
        "source_language_column": options.source_language_column,
        "target_language_column": options.target_language_column,
        "key": list(options.key),
        "where": options.where,
        "output_column": options.output_column,
        "keep_columns": list(options.keep_columns),
        "drop_columns": list(options.drop_columns),
        **texts,
        **protection,
        "glossary": glossary and glossary.digest,
        "corpus": options.corpus and dataclasses.asdict(options.corpus),
        **dataclasses.asdict(options.read),
    }
    for name, default in (
        ("format", PARQUET), ("target_language_column", None), ("target_language", None),
        ("where", None), ("output_column", TRANSLATION), ("keep_columns", []), ("drop_columns", []),
        ("key", []), ("corpus", None), ("detect_language", False), ("on_wrong_language", None),
        ("source_language_column", None), ("input_format", None), ("delimiter", None),
        ("encoding", UTF8),
    ):  # fmt: skip
        if chosen[name] in (default, ""):
            del chosen[name]
    if address := parse_address(options.output):
        chosen["output_table"] = address.kind
    plan = {
        "format": FORMAT,
        "input": inputs,
        "bad_files": dict(bad_files),
        "options": chosen,
        "model_fingerprint": model.fingerprint,
        # The plan contains the same default for all devices, so another device can resume the job.
        "decoding": {
            **dataclasses.asdict(decoding),
            "batch_tokens": decoding.batch_tokens or BATCH_TOKENS,
        },
        "engine": model.engine,
        "limits": dataclasses.asdict(limits),  # the thresholds of flags
        "languages": languages,
        "versions": installed_versions(),
    }
    if model.about.imported_from:
        plan["imported_from"] = model.about.imported_from
    return dict(json.loads(json.dumps(plan)))  # turns tuples into lists, as in the file


def planned_outputs(
    plan: Mapping[str, Any], existing: Collection[str] = ()
) -> dict[str, int | None]:
    """Return the output files of a plan by path, in the order of the input.

    The values are the numbers of rows, or None if the job itself counts the rows of the input file.

    Args:
      plan: The content of `plan.json`.
      existing: The files in the output folder, relative to it. If the job itself counts the rows
        of an input file, the names of these files contain the number of its output files; without
        them, the number is 1. Unit records take precedence over output files, because another
        program may have written a file with the name of an output file.
    """
    suffix = planned_suffix(plan)
    counts: dict[str, int] = {}
    for folder, ending in (("", suffix), (f"{UNITS_FOLDER}/", ".json")):
        pattern = re.compile(rf"{folder}(.*)-\d{{5,}}-of-(\d{{5,}}){re.escape(ending)}")
        counts |= {match[1]: int(match[2]) for match in map(pattern.fullmatch, existing) if match}
    outputs: dict[str, int | None] = {}
    for name, file in plan["input"].items():
        unit_rows, rows = file.get("unit_rows", plan["options"]["unit_rows"]), file["rows"]
        if rows is None:
            unit_rows, rows = 1, counts.get(output_stem(name), 1)
        found = plan_output_paths(relative_path=name, rows=rows, unit_rows=unit_rows, suffix=suffix)
        outputs |= found if file["rows"] is not None else dict.fromkeys(found)
    return outputs


def planned_suffix(plan: Mapping[str, Any]) -> str:
    """Return the suffix of the output files of a plan."""
    options = plan["options"]
    return output_suffix(
        file_format=options.get("format", PARQUET), compression=options.get("compression", "none")
    )


@functools.cache
def installed_versions() -> dict[str, str]:
    """Return the versions of the programs that affect the bytes of an output file."""
    return versions_of(_PROGRAMS)


def record_of(plan: Mapping[str, Any]) -> JobRecord:
    """Return the record of a plan's job, which can be compared with other jobs."""
    inputs = input_identity(plan)
    skipped = ("input", "bad_files", "generations", "committed", "removed_outputs")
    options = {key: value for key, value in _resume_key(plan).items() if key not in skipped}
    # Earlier versions wrote the columns of a table, which may change between runs.
    options["options"] = {k: v for k, v in plan["options"].items() if k != "table_columns"}
    return JobRecord(fingerprint=_digest([options, inputs]), options=options, inputs=inputs)


def input_identity(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of each input file, by its relative path.

    Files that a generation has marked as removed are not part of the input.
    """
    files = {
        name: identity_of(file) for name, file in plan["input"].items() if not file.get("removed")
    }
    return {**files, **dict.fromkeys(plan.get("bad_files", {}), _SKIPPED)}


def identity_of(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a planned file that depends only on the file, not on options."""
    return {name: file.get(name) for name in ("size", "footer_checksum", "changed", "written")}


def _resume_key(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a plan that must be equal in a run that resumes the job."""
    skipped = ("versions", "languages", "imported_from", "tables", "column_types")
    part = {key: value for key, value in plan.items() if key not in skipped}
    part["bad_files"] = dict.fromkeys(plan.get("bad_files", {}), _SKIPPED)
    part["input"] = {
        name: {key: value for key, value in file.items() if key != "written"}
        for name, file in plan["input"].items()
    }
    return part


def plan_digest(plan: Mapping[str, Any]) -> str:
    """Return a hexadecimal blake2b digest that distinguishes this plan's units from others."""
    return _digest(_resume_key(plan))


def _digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
