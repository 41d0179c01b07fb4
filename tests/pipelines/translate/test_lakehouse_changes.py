"""Tables of Delta Lake and Iceberg that change between the runs of a job, and odd tables."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run as run_tt
from deltalake import DeltaTable
from lake_jobs import failing
from lake_tables import LAKE, STRINGS
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, UUIDType
from translation_jobs import (
    ADDED,
    numbered,
    outputs,
    read,
    read_all,
    refused,
    request,
    translate,
    turned,
    write,
)

EMPTY = pa.schema([("id", pa.int64()), ("text", pa.string())])


def notices(source, output, **options):
    return " ".join(request(source, output, **options).plan().notices)


def ids(folder):
    return sorted(
        number for name in outputs(folder) for number in read(folder / name)["id"].to_pylist()
    )


def test_the_rows_of_rewritten_files_are_replaced(lake, tmp_path):
    """Delta Lake: every change but an append removes files, and other files replace them."""
    rows = numbered(6).append_column("day", pa.array(["a", "b"] * 3))
    for first in (0, 3):
        lake.append("in", rows.slice(first, 3), partition_by="day")
    changes = [
        lambda: (lake.update("in", 1, "row 9"), lake.delete("in", "id = 2")),
        lambda: lake.merge("in", rows.slice(2, 2)),
        lambda: lake.rewrite("in"),
    ]
    for change in [lambda: None, *changes]:
        change()
        for output in (tmp_path / "out", lake.address("out")):
            translate(lake.address("in"), output, text_columns=("text",), unit_rows=2)
        expected = lake.read("in").sort_by("id")
        assert ids(tmp_path / "out") == expected["id"].to_pylist()
        found = lake.read("out").sort_by("id")
        assert found.select(["id", "text", "day"]).to_pylist() == expected.to_pylist()


def test_a_partitioned_table_that_is_rewritten_before_the_commit(tmp_path, catalog):
    lake = LAKE["delta"](tmp_path / "lake", catalog)
    rows = numbered(6).append_column("day", pa.array(["a", "b"] * 3))
    lake.append("in", rows, partition_by="day")
    with failing():
        translate(lake.address("in"), lake.address("out"), text_columns=("text",))
    lake.update("in", 1, "row 9")
    translate(lake.address("in"), lake.address("out"), text_columns=("text",))
    assert sorted(lake.read("out")["text"].to_pylist()) == sorted(
        lake.read("in")["text"].to_pylist()
    )


def test_translations_of_removed_files_of_a_table_are_not_kept(lake, tmp_path):
    lake.append("in", numbered(3))
    message = refused(lake.address("in"), tmp_path / "out", removed="keep")
    assert message.endswith("into a separate output. Received: keep")
    assert not (tmp_path / "out").exists()
    write(tmp_path / "files/a.parquet", numbered(2))
    both = (lake.address("in"), tmp_path / "files")
    assert "Set `removed=delete`" in refused(both, tmp_path / "out")
    assert translate(both, tmp_path / "out", removed="delete").rows == 5
    (tmp_path / "files/a.parquet").rename(tmp_path / "files/b.parquet")
    write(tmp_path / "files/c.parquet", numbered(2))
    translate(tmp_path / "files", tmp_path / "plain")
    (tmp_path / "files/c.parquet").unlink()
    write(tmp_path / "files/d.parquet", numbered(1))
    assert translate(tmp_path / "files", tmp_path / "plain").rows == 5  # files keep the default


def test_another_table_is_another_job(lake, tmp_path):
    lake.append("in", numbered(3))
    lake.append("other", numbered(4))
    for output, fix in (
        (tmp_path / "out", "Choose another `output`, or set `overwrite`"),
        (lake.address("out"), "Choose another `output`"),
    ):
        translate(lake.address("in"), output)
        message = refused(lake.address("other"), output)
        assert "contains the translations of another table, whose ID is" in message
        assert message.endswith(fix)
    assert lake.read("out").num_rows == 3
    translate(lake.address("other"), tmp_path / "out", overwrite=True)
    assert ids(tmp_path / "out") == [0, 1, 2, 3]


def test_a_new_column_of_a_table_reaches_the_new_files_of_a_folder(lake, tmp_path):
    lake.append("in", numbered(2))
    translate(lake.address("in"), tmp_path / "out")
    lake.add_column("in", "price", pa.float64())
    lake.append("in", numbered(4).slice(2).append_column("price", pa.array([1.5, None])))
    line = "the columns differ between input files, and so between output files: 'price' is new"
    assert line in notices(lake.address("in"), tmp_path / "out")
    assert translate(lake.address("in"), tmp_path / "out").run_rows == 2
    tables = [read(tmp_path / "out" / name) for name in outputs(tmp_path / "out")]
    found = pa.concat_tables(tables, promote_options="default").sort_by("id")
    assert found["price"].to_pylist() == [None, None, 1.5, None]
    assert found["translation"].to_pylist() == turned(4)
    assert not notices(lake.address("in"), tmp_path / "out")


def test_a_new_column_of_a_table_is_added_to_an_output_table_by_the_user(lake):
    lake.append("in", numbered(2))
    translate(lake.address("in"), lake.address("out"))
    lake.add_column("in", "price", pa.float64())
    lake.append("in", numbered(4).slice(2).append_column("price", pa.array([1.5, None])))
    message = refused(lake.address("in"), lake.address("out"))
    assert "has no column 'price', which the output contains" in message
    assert message.endswith("or add the column")
    lake.add_column("out", "price", pa.float64())
    assert translate(lake.address("in"), lake.address("out")).run_rows == 2
    found = lake.read("out").sort_by("id")
    assert found["price"].to_pylist() == [None, None, 1.5, None]
    assert found["translation"].to_pylist() == turned(4)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_a_representation_of_strings_is_no_change(catalog, tmp_path, kind):
    """An UPDATE of delta-rs writes the type `string_view`, for example."""
    lake = LAKE["delta"](tmp_path / "lake", catalog)
    lake.append("in", numbered(2))
    translate(lake.address("in"), tmp_path / "out")
    lake.append("in", numbered(4).slice(2))
    [path] = [path for path in lake.paths("in") if read(path)["id"][0].as_py() == 2]
    rows = read(path)
    pq.write_table(rows.set_column(1, "text", rows["text"].cast(kind)), path)
    assert not notices(lake.address("in"), tmp_path / "out").count("columns differ")
    translate(lake.address("in"), tmp_path / "out")
    assert read_all(tmp_path / "out").sort_by("id")["translation"].to_pylist() == turned(4)


def test_a_folder_whose_types_change_between_days(tmp_path):
    days = ['{"id": 1, "text": "row 1", "n": 1}', '{"id": 2, "text": "row 2", "n": 1.5}']
    days += [
        '{"id": 3, "text": "row 3", "n": 2, "new": true}',
        '{"id": 4, "text": "row 4", "n": null}',
    ]
    prefix = "the columns differ between input files, and so between output files: "
    lines = ["", prefix + "'n' is int64 or double", prefix + "'new' is new", ""]
    options = {"text_columns": ("text",)}
    (tmp_path / "in").mkdir()
    for number, (rows, line) in enumerate(zip(days, lines, strict=True)):
        (tmp_path / f"in/{number}.jsonl").write_text(rows + "\n")
        found = request(tmp_path / "in", tmp_path / "out", **options).plan().notices
        assert [notice for notice in found if "columns differ" in notice] == [line] * bool(line)
        translate(tmp_path / "in", tmp_path / "out", **options)
    first = request(tmp_path / "in", tmp_path / "fresh", **options).plan().notices
    assert [notice for notice in first if "columns differ" in notice] == [lines[1]]
    ignored = request(tmp_path / "in", tmp_path / "fresh", drop_columns=("n",), **options).plan()
    assert not [notice for notice in ignored.notices if "columns differ" in notice]


@pytest.fixture
def folder(lake):
    """The folder of a partitioned table with deleted rows."""
    rows = numbered(4).append_column("day", pa.array(["a", "b"] * 2))
    lake.append("in", rows, partition_by="day")
    lake.delete("in", "id = 1")
    return lake.folder("in")


def test_a_table_without_its_prefix(lake, folder, tmp_path):
    is_delta = lake.address("in").startswith("delta:")
    name = "a Delta table" if is_delta else "an Iceberg table"
    address = f"delta:{folder}" if is_delta else "iceberg:CATALOG.NAMESPACE.TABLE"
    data = folder if is_delta else folder / "data"
    sources = [f"{folder}{end}" for end in ("", "/", "/**/*.parquet", "/..")]
    sources += [f"{data}/day=a", f"{data}/day=a/*.parquet"]
    for source in [*sources, lake.paths("in")[0].removeprefix("file://")]:
        assert refused(source, tmp_path / "out") == (
            f"{folder} is {name}, and its files also contain deleted rows. Choose {address} as the "
            "input"
        )
    assert not (tmp_path / "out").exists()


def test_a_table_is_no_corpus(folder, tmp_path, capsys):
    output = tmp_path / "dataset"
    for argument in ("/", "/**/*.parquet:text:day"):
        assert run_tt("preprocess", f"{folder}{argument}", "--output", output) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert f"{folder} is a" in error
        assert error.endswith("to Parquet files, and choose these files")
    assert not output.exists()


def test_files_with_names_like_those_of_tables_are_read(tmp_path):
    """A folder that is called "metadata" or "data" is not a table."""
    for name in ("in/metadata/a.parquet", "in/data/b.parquet", "in/k=1/data/c.parquet"):
        write(tmp_path / name, numbered(2))
    assert translate(tmp_path / "in", tmp_path / "out").rows == 6
    assert translate(tmp_path / "in/*/*.parquet", tmp_path / "glob").rows == 4


@pytest.mark.parametrize("path", ["x/../../secret.parquet", "%2E%2E/secret.parquet"])
def test_data_files_outside_of_their_delta_table(path, tmp_path, catalog):
    lake = LAKE["delta"](tmp_path / "lake", catalog)
    lake.append("in", numbered(2))
    write(tmp_path / "lake/secret.parquet", numbered(2))
    [log] = lake.folder("in").glob("_delta_log/*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["path"] = path
    log.write_text("\n".join(map(json.dumps, actions)))
    message = refused(lake.address("in"), tmp_path / "out")
    assert "which leads out of the table. Check who wrote the table" in message
    assert not (tmp_path / "out").exists()


def test_data_files_outside_of_their_iceberg_table(tmp_path, catalog):
    lake = LAKE["iceberg"](tmp_path / "lake", catalog)
    lake.append("in", numbered(2))
    table = catalog.load_table("ns.in")
    [task] = table.scan().plan_files()
    [file] = parquet_files_to_data_files(table.io, table.metadata, iter([task.file.file_path]))
    file[1] = f"{table.location()}/data/../../b.parquet"
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    message = refused(lake.address("in"), tmp_path / "out")
    assert "which leads out of the table. Check who wrote the table" in message


def test_names_with_spaces_and_hyphens(lake, tmp_path):
    names = ["2nd", "my id", "the-text", "ø %"]
    rows = pa.table([[1, 2], [3, 4], ["row 1", "row 2"], [5, None]], names=names)
    lake.append("my table-x", rows)
    options = {"text_columns": ("the-text",), "where": '"my id" > 3'}
    for output in (tmp_path / "out", lake.address("out table-y")):
        translate(lake.address("my table-x"), output, **options)
    for found in (read_all(tmp_path / "out"), lake.read("out table-y")):
        assert found.select(names).to_pylist() == rows.to_pylist()
        assert found["translation"].to_pylist() == [None, turned(3)[2]]
    kept = ("my id", "2nd")
    translate(lake.address("my table-x"), tmp_path / "few", keep_columns=kept, **options)
    assert read_all(tmp_path / "few").select(kept).to_pylist() == rows.select(kept).to_pylist()


def test_columns_of_uuids(tmp_path, catalog):
    lake = LAKE["iceberg"](tmp_path / "lake", catalog)
    fields = [NestedField(1, "id", UUIDType()), NestedField(2, "text", StringType())]
    values = pa.array([uuid.UUID(int=n).bytes for n in (1, 2)], pa.uuid())
    catalog.create_table("ns.in", schema=Schema(*fields)).append(
        pa.table({"id": values, "text": ["row 0", "row 1"]})
    )
    for output in (tmp_path / "out", lake.address("out")):
        translate(lake.address("in"), output)
    for found in (read_all(tmp_path / "out"), lake.read("out")):
        assert found["id"].to_pylist() == [uuid.UUID(int=1), uuid.UUID(int=2)]
        assert found["translation"].to_pylist() == turned(2)
    assert "cannot store all columns" in refused(lake.address("in"), f"delta:{tmp_path}/out.delta")


@pytest.mark.parametrize("was_full", [False, True])
def test_an_empty_table_gives_an_empty_output(lake, tmp_path, was_full):
    lake.create("in", EMPTY)
    if was_full:
        lake.append("in", numbered(2))
        for output in (tmp_path / "out", lake.address("out")):
            translate(lake.address("in"), output)
        lake.delete("in")
    for output in (tmp_path / "out", lake.address("out")):
        assert translate(lake.address("in"), output).rows == 0
    assert translate(lake.address("in"), lake.address("out")).already_finished
    for found in (read_all(tmp_path / "out"), lake.read("out")):
        assert found.num_rows == 0
        assert found.schema.names == ["id", "text", *ADDED]
    assert read_all(tmp_path / "out").schema.field("translation_flags").type == STRINGS
    lake.append("in", numbered(3))
    for output in (tmp_path / "out", lake.address("out")):
        assert translate(lake.address("in"), output).rows == 3
    assert ids(tmp_path / "out") == [0, 1, 2]
    assert sorted(lake.read("out")["translation"].to_pylist()) == turned(3)


def test_an_empty_partitioned_table(tmp_path, catalog):
    lake = LAKE["delta"](tmp_path / "lake", catalog)
    rows = numbered(2).append_column("day", pa.array(["a", "b"]))
    lake.append("in", rows, partition_by="day")
    lake.delete("in")
    for count in (0, 2):
        options = {"text_columns": ("text",)}
        assert translate(lake.address("in"), lake.address("out"), **options).rows == count
        assert DeltaTable(lake.folder("out")).metadata().partition_columns == ["day"]
        assert lake.read("out").num_rows == count
        lake.append("in", rows, partition_by="day")
