"""Arrow files and streams."""

import pyarrow as pa
import pyarrow.feather as feather
import pytest

from model.errors import BadFileError
from pipelines.tables.reading import OpenTable, look_through, table_suffix

TABLE = pa.table(
    {
        "id": pa.array(range(5), pa.int16()),
        "kind": pa.array(["x", "y", None, "x", "y"]).dictionary_encode(),
        "list": [["a"], None, [], [None], ["b", "c"]],
    }
)


def write_stream(path):
    with pa.ipc.new_stream(str(path), TABLE.schema) as writer:
        for start in (0, 3):  # each batch has a dictionary of its own
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
def test_rows_and_types_are_kept(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    [found] = look_through([str(path)])
    assert (found.rows, found.schema) == (5, TABLE.schema)
    with OpenTable(str(path)) as table:
        pieces = list(table.runs([2, 2, 1]))
        assert table.finish() == (path.stat().st_size, found.checksum)
    assert [piece.num_rows for piece in pieces] == [2, 2, 1]
    assert pa.concat_tables(pieces).to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_off_is_bad(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    content = path.read_bytes()
    for size in (0, 4, 50, len(content) // 2):
        path.write_bytes(content[:size])
        [found] = look_through([str(path)])
        assert isinstance(found, BadFileError), size
        assert str(path) in str(found)
    path.write_bytes(b"id,text\n1,hello there\n")
    assert f"{path} cannot be read as Arrow IPC: " in str(look_through([str(path)])[0])


def test_feather_of_version_1_is_named(tmp_path):
    path = tmp_path / "old.feather"
    path.write_bytes(b"FEA1\x00\x00\x00\x00")
    assert str(look_through([str(path)])[0]) == (
        f"{path} must be Arrow IPC; it is Feather of version 1, which version 2 replaced"
    )


def test_a_suffix_tells_the_format():
    assert table_suffix("year=1/t.jsonl.zst") == ".jsonl.zst"
    assert [table_suffix(name) for name in ("t.json", "csv", "t.csv.bak", "t.arrow.gz")] == [""] * 4
