"""Text columns of Arrow tables and their cells, however they are encoded; nothing of Beam."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def is_text(kind: pa.DataType) -> bool:
    """Tells whether a column of this type holds text."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def cells_as_binary(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Returns a text column as large_binary: files may hold cells that are not UTF-8."""
    plain = pc.cast(column, pa.large_string())  # of dictionary and view columns too
    return pc.cast(plain, pa.large_binary())


def cell_bytes(column: pa.Array | pa.ChunkedArray) -> list[bytes | None]:
    """Returns the cells of a text column as bytes."""
    cells: list[bytes | None] = cells_as_binary(column).to_pylist()
    return cells
