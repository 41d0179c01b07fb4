"""Types of Arrow files in Parquet output: kept, changed as documented, or refused."""

import pyarrow as pa
import pytest
from translation_jobs import outputs, read_all, refused, translate

CHANGED = {  # input type: output type according to docs/reference/columns.md
    pa.timestamp("s", "Europe/Berlin"): pa.timestamp("ms", "Europe/Berlin"),
    pa.time32("s"): pa.time32("ms"),
    pa.date64(): pa.date32(),
    pa.dictionary(pa.int8(), pa.large_string()): pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.int64()): pa.int64(),
    pa.list_(pa.int8(), 2): pa.list_(pa.field("element", pa.int8())),
}
KEPT = (
    pa.timestamp("ns"), pa.duration("s"), pa.float16(), pa.decimal32(5, 2), pa.decimal256(50, 2),
    pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary(3), pa.uint32(), pa.uuid(),
    pa.dictionary(pa.int32(), pa.string()), pa.null(),
)  # fmt: skip


def write_arrow(path, table):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def a_value(kind):
    if pa.types.is_dictionary(kind):
        return "a" if pa.types.is_large_string(kind.value_type) else 5
    return [1, 2] if pa.types.is_fixed_size_list(kind) else 86_400_000


@pytest.mark.parametrize("kind", CHANGED, ids=str)
def test_documented_types_change_and_keep_their_values(tmp_path, kind):
    value = 86_399 if kind == pa.time32("s") else a_value(kind)
    table = pa.table({"text": ["a"], "x": pa.array([value], kind)})
    source = write_arrow(tmp_path / "in.arrow", table)
    translate(source, tmp_path / "out", text_columns=("text",))
    found = read_all(tmp_path / "out")
    assert found.schema.field("x").type == CHANGED[kind]
    assert found["x"].to_pylist() == table["x"].to_pylist()


@pytest.mark.parametrize("kind", KEPT, ids=str)
def test_other_types_are_kept(tmp_path, kind):
    table = pa.table({"text": ["a"], "x": pa.nulls(1, kind)})
    source = write_arrow(tmp_path / "in.arrow", table)
    translate(source, tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out").schema.field("x").type == kind


def test_seconds_that_do_not_fit_milliseconds_are_refused(tmp_path):
    values = pa.array([0, 2**60], pa.timestamp("s"))
    source = write_arrow(tmp_path / "in.arrow", pa.table({"text": ["a", "b"], "x": values}))
    assert refused(source, tmp_path / "out") == (
        f"{source} contains values that Parquet cannot store: Casting from timestamp[s] to "
        "timestamp[ms] would result in out of bounds timestamp: 1152921504606846976. "
        "Remove or convert these values"
    )
    assert outputs(tmp_path / "out") == []
