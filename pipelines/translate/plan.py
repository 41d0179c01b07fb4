"""What a Parquet job is to do: its options, its units of work, and the plan that says so.

`_tt/plan.json` holds all that decides what the output holds and is written first.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from model.decoding.options import BATCH_TOKENS, Decoding
from model.formats.model_card import versions_of
from model.text.glossary import Glossary
from pipelines.flags.limits import Limits
from pipelines.storage import parquet
from pipelines.tables.reading import table_suffix
from pipelines.tables.writing import PARQUET, output_suffix
from pipelines.texts.options import TextOptions
from pipelines.translate.options import TranslateOptions

FORMAT = 1
_PROGRAMS = (
    "tt-translate", "apache-beam", "pyarrow", "sentencepiece", "sentencex", "regex", "tensorflow",
    "ctranslate2",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFile:
    """A planned input file."""

    path: str  # where it is now
    relative_path: str  # path that its outputs are named after
    size: int  # bytes
    rows: int  # rows to translate: all of them, but for a limit
    # Tells a rewritten file from the one that was planned: of the footer of Parquet, else of all.
    footer_checksum: str
    schema: pa.Schema | None = None  # of a file that is read from its start; None of Parquet


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
    if suffix == parquet.SUFFIX:  # of which one in capitals stayed in the name from the first
        return relative_path.removesuffix(suffix)
    return relative_path[: len(relative_path) - len(suffix)]


def plan_output_paths(
    *, relative_path: str, rows: int, unit_rows: int, suffix: str = parquet.SUFFIX
) -> list[str]:
    """Names the output files of an input file; one without rows has one output file.

    >>> plan_output_paths(relative_path="x/part.parquet", rows=3, unit_rows=2)
    ['x/part-00000-of-00002.parquet', 'x/part-00001-of-00002.parquet']
    """
    count = max(1, math.ceil(rows / unit_rows))
    stem = output_stem(relative_path)
    return [f"{stem}-{index:05d}-of-{count:05d}{suffix}" for index in range(count)]


def plan_units(file: InputFile, *, unit_rows: int, suffix: str = parquet.SUFFIX) -> list[TableUnit]:
    """Cuts a file into runs of at most `unit_rows` rows; one without rows gives one empty unit."""
    paths = plan_output_paths(
        relative_path=file.relative_path, rows=file.rows, unit_rows=unit_rows, suffix=suffix
    )
    return [
        TableUnit(
            file=file,
            first_row=index * unit_rows,
            rows=min(unit_rows, file.rows - index * unit_rows),
            output_path=path,
        )
        for index, path in enumerate(paths)
    ]


def make_plan(
    *,
    files: Sequence[InputFile],
    bad_files: Mapping[str, str],
    options: TranslateOptions,
    text_columns: Sequence[str],
    model_fingerprint: str,
    decoding: Decoding,
    engine: Mapping[str, Any],
    limits: Limits,
    languages: Mapping[str, str] | None = None,
    glossary: Glossary | None = None,
) -> dict[str, Any]:
    """Returns the content of `plan.json`: all that decides what the output holds, and versions.

    `bad_files` maps relative paths to reasons, `languages` "source" and "target" to codes if known.
    """
    plan = {
        "format": FORMAT,
        "input": {
            file.relative_path: {
                "size": file.size,
                "rows": file.rows,
                "footer_checksum": file.footer_checksum,
            }
            for file in files
        },
        "bad_files": dict(bad_files),
        "options": {
            "text_columns": list(text_columns),
            "unit_rows": options.unit_rows,
            "limit": options.limit,
            "compression": options.compression,
            **options.other_format,
            **_text_options(options.texts, glossary=glossary),
        },
        "model_fingerprint": model_fingerprint,
        # The default is one number, whatever device translates: so another one may go on.
        "decoding": {
            **dataclasses.asdict(decoding),
            "batch_tokens": decoding.batch_tokens or BATCH_TOKENS,
        },
        "engine": dict(engine),
        "limits": dataclasses.asdict(limits),  # of flags; not in a plan of an older tt
        "languages": dict(languages or {}),
        "versions": installed_versions(),
    }
    return dict(json.loads(json.dumps(plan)))  # as it reads back: a tuple is a list there


def _text_options(texts: TextOptions, *, glossary: Glossary | None) -> dict[str, Any]:
    """Returns what decides of texts; a glossary by its content, wherever it lies."""
    values = dataclasses.asdict(texts)
    protection = values.pop("protection")
    return {**values, **protection, "glossary": glossary and glossary.digest}


def planned_outputs(plan: Mapping[str, Any]) -> list[str]:
    """Names the output files of a plan, relative to the output folder."""
    return [
        path
        for name, file in plan["input"].items()
        for path in plan_output_paths(
            relative_path=name,
            rows=file["rows"],
            unit_rows=plan["options"]["unit_rows"],
            suffix=planned_suffix(plan),
        )
    ]


def planned_suffix(plan: Mapping[str, Any]) -> str:
    """Returns the suffix of the output files of a plan."""
    options = plan["options"]
    return output_suffix(
        file_format=options.get("format", PARQUET), compression=options.get("compression", "none")
    )


@functools.cache
def installed_versions() -> dict[str, str]:
    """Returns the versions of what decides the bytes of an output file."""
    return versions_of(_PROGRAMS)
