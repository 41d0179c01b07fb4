"""Addresses of tables, and rows that are cast to the schema of a table."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from tt.model.errors import UserError
from tt.pipelines.tables.lakehouse import Address, fit_rows, fits, open_output, parse_address


@pytest.mark.parametrize(
    ("argument", "address"),
    [
        ("delta:products", Address(kind="delta", name="products")),
        ("delta:/a@b/products@12", Address(kind="delta", name="/a@b/products", version=12)),
        ("delta:a@b", Address(kind="delta", name="a@b")),
        ("iceberg:lake.a.b.t@7", Address(kind="iceberg", name="lake.a.b.t", version=7)),
        ("products.parquet", None),
        ("s3://lake/products", None),
        ("deltas:products", None),
    ],
)
def test_addresses(argument, address):
    assert parse_address(argument) == address


@pytest.mark.parametrize(
    "argument",
    ["delta:", "iceberg:", "iceberg:lake.t", "iceberg:lake..t", "iceberg:lake.ns.t@main"],
)
def test_incomplete_addresses(argument):
    with pytest.raises(UserError, match=f"must have the form .* Received: {argument}$"):
        parse_address(argument)


@pytest.mark.parametrize(("kind", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_a_missing_package(kind, package, monkeypatch):
    monkeypatch.delitem(sys.modules, f"tt.pipelines.tables.{kind}", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=f"{kind}: tables need .*-m pip install .*{package}"):
        open_output(f"{kind}:lake.ns.t")


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        (pa.large_string(), pa.string(), True),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
        (pa.null(), pa.int64(), True),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int64(), pa.float64(), False),
        (pa.string(), pa.int64(), False),
        (pa.timestamp("ms", "Europe/Rome"), pa.timestamp("us", "UTC"), True),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.timestamp("ns"), pa.timestamp("us"), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), True),
        (pa.decimal128(5, 2), pa.decimal128(5, 4), False),
        (pa.list_(pa.large_string()), pa.large_list(pa.field("element", pa.string())), True),
        (pa.struct([("a", pa.string())]), pa.struct([("b", pa.string())]), False),
        (pa.map_(pa.large_string(), pa.int32()), pa.map_(pa.string(), pa.int32()), True),
    ],
)
def test_types_that_fit(kind, target, expected):
    assert fits(kind, target) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.string(), "é=1"),
        (pa.bool_(), "true"),
        (pa.int64(), "-7"),
        (pa.date32(), "2026-01-31"),
        (pa.timestamp("us", "UTC"), "2026-01-31 10:00:00.000001Z"),
        (pa.decimal128(5, 2), "1.50"),
        (pa.string(), None),
    ],
)
def test_partition_values_are_cast_to_the_type_of_their_column(kind, text):
    rows = pa.table({"id": [1, 2]})
    fitted = fit_rows(rows, pa.schema([("id", pa.int64()), ("p", kind)]), [("p", text)])
    assert fitted.column("p").cast(pa.string()).to_pylist() == [text] * 2
    assert fitted.column("p").type == kind
