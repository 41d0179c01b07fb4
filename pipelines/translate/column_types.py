"""Find columns whose types differ between the input files of a job, or between its runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tt.model.json_files import first_few
from tt.pipelines.tables.lakehouse import plain_type


def add_types(
    types: dict[str, list[str]], schema: pa.Schema, *, keeps: Callable[[str], bool]
) -> None:
    """Add the types of the columns in a file to the types of each column.

    Variants of Arrow, such as `string_view`, are the same type. Columns without values have none.

    >>> types = {"n": ["int64"]}
    >>> add_types(types, pa.schema([("n", pa.float64())]), keeps=lambda name: True)
    >>> types
    {'n': ['int64', 'double']}
    """
    for field in schema:
        if keeps(field.name) and not pa.types.is_null(field.type):
            known = types.setdefault(field.name, [])
            if (kind := _name_of(field.type)) not in known:
                known.append(kind)


@functools.lru_cache(maxsize=1024)  # because inputs have many files with the same types
def _name_of(kind: pa.DataType) -> str:
    return str(plain_type(kind))


def describe_types(plan: Mapping[str, Any], *, saved: Mapping[str, Any] | None) -> list[str]:
    """Return a line about columns with several types and about new columns, for the user.

    Args:
      plan: The plan of the requested job.
      saved: The plan of the last run; None in the first run.
    """
    before = (saved or {}).get("column_types", {})
    found = []
    for name, kinds in plan.get("column_types", {}).items():
        every = list(dict.fromkeys([*before.get(name, ()), *kinds]))
        if before and name not in before:
            found.append(f"{name!r} is new")
        elif len(every) > max(1, len(before.get(name, ()))):
            found.append(f"{name!r} is {' or '.join(every)}")
    if not found:
        return []
    columns = "; ".join(first_few(found, noun="columns"))
    return [f"the columns differ between input files, and so between output files: {columns}"]
