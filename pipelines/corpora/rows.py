"""Rows of a corpus as Arrow tables of (source, target, fault)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipelines.texts.limits import FLAGS

SLICE_PAIRS = 16 * 1024
SLICE_BYTES = 32 << 20  # of text, both sides; a longer line is a slice of its own
MALFORMED = "malformed"  # too few columns, or not the JSON that was asked for
INVALID_UTF8 = "invalid_utf8"

# Faults of rows of `tt translate-batch`, by their status or by a flag: those without a translation
# to learn from, and doubtful ones.
TRANSLATED = "ok"
STATUS_FAULTS = {
    status: f"translation_{status}"
    for status in (
        "copied", "empty", "failed", "flagged", "incomplete", "null", "split", "too_long",
        "unknown",
    )
}  # fmt: skip
FLAG_FAULTS = {flag: f"flag_{flag}" for flag in FLAGS}

# Every table has the same dictionary of faults: a chunk file takes only one.
_FAULTS = (MALFORMED, INVALID_UTF8, *STATUS_FAULTS.values(), *FLAG_FAULTS.values())

ROW_SCHEMA = pa.schema(
    [
        ("source", pa.large_string()),
        ("target", pa.large_string()),
        ("fault", pa.dictionary(pa.int8(), pa.string())),
    ]
)


def decode_lines(
    sources: Sequence[bytes | None],
    targets: Sequence[bytes | None],
    *,
    faults: dict[int, str] | None = None,
) -> pa.Table:
    """Makes a table of lines; one that is not UTF-8 gets a fault, and U+FFFD where it is not."""
    columns = [pa.array(lines, pa.large_binary()) for lines in (sources, targets)]
    return decode_columns(*columns, faults=faults)


def decode_columns(
    sources: pa.Array, targets: pa.Array, *, faults: dict[int, str] | None = None
) -> pa.Table:
    """Makes a table of columns of large_binary; see `decode_lines`."""
    faults = dict(faults or {})
    columns = []
    for column in (sources, targets):
        try:
            columns.append(column.cast(pa.large_string()))
        except pa.ArrowInvalid:  # some line is not UTF-8: look for it
            texts: list[str | None] = []
            for row, line in enumerate(column.to_pylist()):
                text = None if line is None else line.decode(errors="replace")
                if text is not None and text.encode() != line:
                    faults.setdefault(row, INVALID_UTF8)
                texts.append(text)
            columns.append(pa.array(texts, pa.large_string()))
    return row_table(columns[0], columns[1], faults)


def row_table(
    sources: pa.Array, targets: pa.Array, faults: dict[int, str] | None = None
) -> pa.Table:
    """Makes a table of `ROW_SCHEMA`."""
    if faults:
        codes = {fault: code for code, fault in enumerate(_FAULTS)}
        places = [codes[faults[row]] if row in faults else None for row in range(len(sources))]
        indices = pa.array(places, pa.int8())
    else:
        indices = pa.nulls(len(sources), pa.int8())
    reasons = pa.DictionaryArray.from_arrays(indices, pa.array(_FAULTS, pa.string()))
    return pa.table([sources, targets, reasons], schema=ROW_SCHEMA)
