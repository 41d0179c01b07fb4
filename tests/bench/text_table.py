"""Write the table of `translate.py`, and its sentences as lines for `engine_alone.py`."""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.formats.model_folder import find_model_folder
from tt.model.text.vocabulary import is_empty, load_vocabularies
from tt.model.transformer.search_options import MAX_SOURCE_TOKENS
from tt.pipelines.reports.evaluate import read_lines

_NULL_SHARE, _EMPTY_SHARE = 0.02, 0.01
_EMPTY_TEXTS = ("", "  ")
_ROW_GROUP_ROWS = 10_000
_SEED = 1


def write_table(given: argparse.Namespace) -> dict[str, int]:
    """Write the table and the sentences, and return the counts of the table."""
    rows = given.rows
    nulls, empties = round(_NULL_SHARE * rows), round(_EMPTY_SHARE * rows)
    wanted = rows - nulls - empties
    lines = [line for text in given.texts for line in read_lines(text)]
    if given.lowercase:
        lines = [line.lower() for line in lines]
    choice = random.Random(_SEED)
    choice.shuffle(lines)
    ids = load_vocabularies(find_model_folder(given.model)).source.encode(lines)
    fitting = [
        (line, len(row))
        for line, row in zip(lines, ids, strict=True)
        if len(row) <= MAX_SOURCE_TOKENS and not is_empty(row)
    ]
    if len(fitting) < wanted:
        sys.exit(
            f"the texts have {len(fitting):,} lines of at most {MAX_SOURCE_TOKENS} ids, but "
            f"{rows:,} rows need {wanted:,}. Add texts, or reduce --rows"
        )
    sentences = [line for line, _ in fitting[:wanted]]
    content = "".join(f"{line}\n" for line in sentences)
    (given.output / "sentences.txt").write_bytes(content.encode())
    cells: list[str | None] = [
        *sentences[1:], *[None] * nulls,
        *(_EMPTY_TEXTS[i % len(_EMPTY_TEXTS)] for i in range(empties)),
    ]  # fmt: skip
    choice.shuffle(cells)
    cells.insert(0, sentences[0])  # the row for --limit 1
    noon = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    times = [noon + datetime.timedelta(seconds=i) for i in range(rows)]
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "text": pa.array(cells, pa.string()),
            "spans": [[[i % 7, i % 11], [i % 13]] if i % 5 else None for i in range(rows)],
            "seen": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, given.output / "rows.parquet", row_group_size=_ROW_GROUP_ROWS)
    lengths = sorted(length for _, length in fitting[:wanted])
    return {
        "nulls": nulls, "empties": empties, "sentences": wanted, "shortest": lengths[0],
        "median": lengths[wanted // 2], "longest": lengths[-1],
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--lowercase", action="store_true")
    print(json.dumps(write_table(parser.parse_args())))
