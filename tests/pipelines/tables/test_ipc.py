"""Reading Arrow files and streams."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from table_scans import read_runs, scan_file

from tt.model.errors import BadFileError
from tt.pipelines.tables.formats import table_suffix
from tt.pipelines.tables.reading import OpenTable

TABLE = pa.table(
    {
        "id": pa.array(range(5), pa.int16()),
        "kind": pa.array(["x", "y", None, "x", "y"]).dictionary_encode(),
        "list": [["a"], None, [], [None], ["b", "c"]],
    }
)


def write_stream(path):
    with pa.ipc.new_stream(str(path), TABLE.schema) as writer:
        for start in (0, 3):  # each batch has its own dictionary
            piece = TABLE.slice(start, 2 if start else 3)
            index = piece.column_names.index("kind")
            kind = piece["kind"].cast(pa.string()).dictionary_encode()
            writer.write_table(piece.set_column(index, "kind", kind).combine_chunks())


def write_file(path):
    with pa.ipc.new_file(str(path), TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)


WRITERS = {
    "t.arrow": write_file,
    "s.arrow": write_stream,
    "s.ipc": write_stream,
    "t.feather": lambda path: feather.write_feather(TABLE, str(path)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_rows_and_types_are_not_changed(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    found = scan_file(path)
    assert (found.rows, found.schema) == (5, TABLE.schema)
    with OpenTable(str(path), has_checksum=True) as table:
        pieces = read_runs(table, [2, 2, 1])
        assert table.finish() == (path.stat().st_size, found.checksum)
    assert [piece.num_rows for piece in pieces] == [2, 2, 1]
    assert pa.concat_tables(pieces).to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_off_is_an_error(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    content = path.read_bytes()
    for size in (0, 4, 50, len(content) // 2):
        path.write_bytes(content[:size])
        found = scan_file(path)
        assert isinstance(found, BadFileError), size
        assert str(path) in str(found)
    path.write_bytes(b"id,text\n1,hello there\n")
    assert f"{path} cannot be read as Arrow IPC: " in str(scan_file(path))


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize("numbers", [range(1, 4), [0, 0], [-1, 0], []])
def test_a_stream_that_is_cut_between_its_batches_is_an_error(tmp_path, numbers, is_legacy):
    """The last bytes of a batch must not be mistaken for the end marker, such as zeros or -1."""
    path = tmp_path / "s.arrow"
    table = pa.table({"text": ["a"] * len(numbers), "n": pa.array(numbers, pa.int32())})
    options = pa.ipc.IpcWriteOptions(use_legacy_format=is_legacy)
    ends = []
    with (
        path.open("wb") as handle,
        pa.ipc.new_stream(handle, table.schema, options=options) as writer,
    ):
        ends.append(handle.tell())
        for _ in range(2):
            writer.write_table(table)
            ends.append(handle.tell())
    content = path.read_bytes()
    assert scan_file(path).rows == 2 * len(numbers)
    path.write_bytes(content + b"more")
    assert scan_file(path).rows == 2 * len(numbers), "bytes after the end are ignored"
    for end in filter(None, ends):
        path.write_bytes(content[:end])
        found = scan_file(path)
        assert isinstance(found, BadFileError), end
        assert str(found) == (
            f"{path} lacks the end marker of an Arrow stream: the file is cut off, or its writer "
            "was not closed"
        )


FLIP_BITS = """
import random
import sys
from pathlib import Path

from tt.model.errors import BadFileError
from tt.pipelines.tables.reading import OpenTable, scan_file

rng = random.Random(7)
for name in sys.argv[1:]:
    path = Path(name)
    content = path.read_bytes()
    good = 0
    for _ in range(200):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            scan_file(str(path))
        except BadFileError:
            continue
        good += 1
        with OpenTable(str(path)) as table:
            for batch in table.batches():
                for column in batch.columns:
                    column.cast("binary") if column.type == "string" else column.to_pylist()
    print(good)
"""


def test_a_flipped_bit_never_crashes_the_process(tmp_path):
    for name, write in WRITERS.items():
        write(tmp_path / name)
    paths = [str(tmp_path / name) for name in WRITERS]
    done = subprocess.run(
        [sys.executable, "-c", FLIP_BITS, *paths], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(0 < int(good) < 200 for good in done.stdout.split())


def test_offsets_beyond_the_texts_are_an_error(tmp_path):
    path = tmp_path / "t.arrow"
    table = pa.table({"text": ["a", "bc"]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    good, wrong = (np.array([0, end, 3], np.int32).tobytes() for end in (1, 1 << 30))
    assert path.read_bytes().count(good) == 1
    path.write_bytes(path.read_bytes().replace(good, wrong))
    assert f"{path} cannot be read as Arrow IPC: " in str(scan_file(path))


def test_texts_that_are_not_utf8_are_not_damage(tmp_path):
    path = tmp_path / "t.arrow"
    latin = pa.array([b"abc", b"caf\xe9", None], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, latin.buffers())
    lists = pa.ListArray.from_arrays([0, 1, 3, 3], column)
    table = pa.table(
        {"text": column, "tags": lists, "s": pa.StructArray.from_arrays([column], ["t"])}
    )
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    found = scan_file(path)
    assert (found.rows, found.schema) == (3, table.schema)


def test_feather_version_1_is_an_error(tmp_path):
    path = tmp_path / "old.feather"
    path.write_bytes(b"FEA1\x00\x00\x00\x00")
    assert str(scan_file(path)) == (
        f"{path} must be Arrow IPC or Feather version 2; it is Feather version 1"
    )


def test_the_suffix_determines_the_format():
    assert table_suffix("year=1/t.jsonl.zst") == table_suffix("year=1/T.Jsonl.ZST") == ".jsonl.zst"
    assert [table_suffix(name) for name in ("t.pdf", "csv", "t.csv.bak", "t.arrow.gz")] == [""] * 4
