"""A job on tables whose rows need different amounts of memory, and Arrow's peak memory."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from fakes import Reverser
from translation_jobs import translate

from tt.pipelines.translate import plan, units


def main(source: str, output: str, unit_bytes: str) -> None:
    """Translate a table; print the rows and bytes of the translated parts, and the peak memory."""
    plan.UNIT_BYTES = int(unit_bytes)
    seen: list[tuple[int, int]] = []
    translate_table = units.translate_table

    def noted(table, **options):
        seen.append((table.num_rows, table.nbytes))
        return translate_table(table, **options)

    units.translate_table = noted
    translate(source, output, text_columns=("text",), load=Reverser)
    print(json.dumps({"most": pa.default_memory_pool().max_memory(), "tables": seen}))


if __name__ == "__main__":
    main(*sys.argv[1:])
