"""Delta Lake tables that `tt` refuses to read or to write, and concurrent commits."""

from __future__ import annotations

import base64
import json
import struct

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lake_tables import read_delta
from pyroaring import BitMap

from tt.model.errors import ServiceError, UserError
from tt.pipelines.tables import delta
from tt.pipelines.tables.lakehouse import AddedFile, find_table_files, open_output, parse_address

ROWS = pa.table({"id": [1, 2], "text": ["a", "b"]})


def found(argument):
    return find_table_files(parse_address(argument))


def refused(function, argument, kind=UserError) -> str:
    with pytest.raises(kind) as caught:
        function(argument)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit_log(folder, change):
    """Apply a function to each action in the first commit of a table."""
    path = folder / "_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(action)) + "\n" for action in actions))


def add_features(folder, *names):
    def change(action):
        if "protocol" in action:
            features = {"readerFeatures": list(names), "writerFeatures": list(names)}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        return action

    edit_log(folder, change)


def delete_row(folder, row):
    """Add a deletion vector to the only file, as the protocol defines its serialization."""
    bitmap = BitMap([row]).serialize()
    content = struct.pack("<iqi", 1681511377, 1, 0) + bitmap
    content += bytes(-len(content) % 4)
    z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    b85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    text = base64.b85encode(content).decode().translate(str.maketrans(b85, z85))
    vector = {
        "storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(content), "cardinality": 1
    }  # fmt: skip

    def change(action):
        if "add" in action:
            action["add"]["deletionVector"] = vector
        return action

    edit_log(folder, change)


def set_configuration(folder, **values):
    def change(action):
        if "metaData" in action:
            names = {name.replace("__", "."): value for name, value in values.items()}
            action["metaData"]["configuration"] |= names
        return action

    edit_log(folder, change)


def set_column(folder, index, **values):
    def change(action):
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][index]["metadata"] |= {
                name.replace("__", "."): value for name, value in values.items()
            }
            action["metaData"]["schemaString"] = json.dumps(schema)
        return action

    edit_log(folder, change)


@pytest.fixture
def table(tmp_path):
    write_deltalake(tmp_path / "t", ROWS)
    return tmp_path / "t"


def test_data_files_have_paths_partitions_and_the_schema_of_the_table(tmp_path):
    rows = ROWS.append_column("day", pa.array(["a b/c", None]))
    write_deltalake(tmp_path / "t", rows, partition_by=["day"])
    first, second = found(f"delta:{tmp_path}/t")
    assert [first.partitions, second.partitions] == [(("day", None),), (("day", "a b/c"),)]
    assert first.relative_path.startswith("day-__HIVE_DEFAULT_PARTITION__/part-")
    assert sorted(DeltaTable(tmp_path / "t").file_uris()) == sorted([first.path, second.path])
    assert first.schema == rows.schema


def test_an_empty_table(table):
    DeltaTable(table).delete()
    [file] = found(f"delta:{table}")
    assert (file.is_empty, file.size, file.schema.names) == (True, 0, ROWS.schema.names)


def test_a_log_that_cannot_be_read(table):
    (table / "_delta_log/00000000000000000000.json").write_text("{")
    assert "cannot be opened" in refused(found, f"delta:{table}", ServiceError)


def test_deletion_vectors_are_refused_only_if_a_file_has_one(table):
    add_features(table, "deletionVectors")
    assert len(found(f"delta:{table}")) == 1
    delete_row(table, 1)
    assert read_with_vectors(table) == [True, False]  # deltalake reads the vector of this test
    assert "uses deletion vectors, which tt does not support. Run REORG TABLE" in refused(
        found, f"delta:{table}"
    )


def read_with_vectors(table):
    [row] = pa.table(DeltaTable(table).deletion_vectors()).to_pylist()
    return row["selection_vector"]


@pytest.mark.parametrize("function", [found, open_output])
def test_column_mapping(table, function):
    set_configuration(
        table, delta__columnMapping__mode="name", delta__columnMapping__maxColumnId="2"
    )
    for index, name in enumerate(ROWS.schema.names):
        physical = {
            "delta__columnMapping__id": index + 1,
            "delta__columnMapping__physicalName": name,
        }
        set_column(table, index, **physical)
    add_features(table, "columnMapping")
    assert "uses column mapping" in refused(function, f"delta:{table}")


def test_reader_features(table):
    add_features(table, "variantType")
    assert "uses variantType, which" in refused(found, f"delta:{table}")
    add_features(table, "futureFeature")
    assert "'futureFeature' is not supported" in refused(found, f"delta:{table}", ServiceError)


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ({"delta__generationExpression": "1"}, "generated columns"),
        ({"delta__invariants": "{}"}, "invariants"),
        ({"delta__identity__start": 1}, "identity columns"),
    ],
)
def test_computed_columns_cannot_be_written(table, column, name):
    set_column(table, 0, **column)
    assert f"uses {name}, which" in refused(open_output, f"delta:{table}")
    assert len(found(f"delta:{table}")) == 1


def test_constraints_cannot_be_written(table):
    DeltaTable(table).alter.add_constraint({"positive": "id > 0"})
    assert "uses constraints" in refused(open_output, f"delta:{table}")


def test_two_attempts_at_the_same_commit(table, monkeypatch):
    """The second attempt reads the table before the first one commits."""
    output = open_output(f"delta:{table}")
    [file] = found(f"delta:{table}")
    (table / "new.parquet").write_bytes(open(file.path, "rb").read())  # noqa: PTH123, SIM115
    added = [AddedFile(path="new.parquet", size=(table / "new.parquet").stat().st_size, rows=2)]
    stale = DeltaTable(table)
    delta.publish(output, added, job="j", generation=1)
    tables = iter([stale])
    monkeypatch.setattr(delta, "DeltaTable", Opening(tables))
    delta.publish(output, added, job="j", generation=1)
    assert next(tables, None) is None
    assert DeltaTable(table).version() == 1
    assert read_delta(table).num_rows == 4


class Opening:
    """Opens tables from an iterator first, and then from their folders."""

    is_deltatable = staticmethod(DeltaTable.is_deltatable)

    def __init__(self, tables):
        self._tables = tables

    def __call__(self, location):
        return next(self._tables, None) or DeltaTable(location)


def test_two_attempts_at_creating_a_table(table, tmp_path, monkeypatch):
    output = open_output(f"delta:{tmp_path}/new")
    output = type(output)(**{**vars(output), "files_schema": ROWS.schema})
    (tmp_path / "new").mkdir()
    [file] = found(f"delta:{table}")
    size = (tmp_path / "new/a.parquet").write_bytes(open(file.path, "rb").read())  # noqa: PTH123, SIM115
    added = [AddedFile(path="a.parquet", size=size, rows=2)]
    create = delta.create_table_with_add_actions

    def create_twice(*arguments, **options):
        create(*arguments, **options)
        create(*arguments, **options)

    monkeypatch.setattr(delta, "create_table_with_add_actions", create_twice)
    delta.publish(output, added, job="j", generation=1)
    assert DeltaTable(tmp_path / "new").version() == 0
    assert read_delta(tmp_path / "new").equals(ROWS)
