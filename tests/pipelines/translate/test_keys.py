"""Jobs with a key: the types of columns that a key may have."""

from __future__ import annotations

import datetime
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
from translation_jobs import read_all, refused, translate, write

_DAY = datetime.date(2024, 2, 29)
_NUMBERS = [decimal.Decimal("-1.50"), decimal.Decimal("2.25"), decimal.Decimal("99.99")]
_FAR = np.array([-(2**62), 2**61, 2**61 + 1])  # far from the years 0 and 9999


def integers(kind: pa.DataType) -> pa.Array:
    """Return a column of 64-bit values, including values that Python's types cannot hold."""
    return pa.array(_FAR).view(kind)


COMPARED = {
    **{str(k): pa.array([1, 2, 3], k) for k in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(k): pa.array([1, 2, 3], k) for k in (pa.uint8(), pa.uint16(), pa.uint32())},
    "uint64": pa.array([0, 1, 2**64 - 1], pa.uint64()),
    "bool": pa.array([True, False, True]),
    "float": pa.array([0.1, float("nan"), float("-inf")], pa.float32()),
    "double": pa.array([0.1, float("nan"), float("-inf")]),
    "decimal32": pa.array(_NUMBERS, pa.decimal32(5, 2)),
    "decimal64": pa.array(_NUMBERS, pa.decimal64(12, 2)),
    "decimal128": pa.array(_NUMBERS, pa.decimal128(38, 2)),
    "date32": pa.array([_DAY, datetime.date.min, datetime.date.max]),
    "date64": pa.array([_DAY, datetime.date.min, datetime.date.max], pa.date64()),
    "time32[s]": pa.array([0, 1, 86_399], pa.int32()).view(pa.time32("s")),
    "time32[ms]": pa.array([0, 1, 86_399_999], pa.int32()).view(pa.time32("ms")),
    "time64[us]": pa.array([0, 1, 86_399_999_999]).view(pa.time64("us")),
    "time64[ns]": pa.array([0, 1, 86_399_999_999_999]).view(pa.time64("ns")),
    "timestamp[s]": pa.array([0, 253_402_300_800, 400_000_000_000]).view(pa.timestamp("s")),
    **{f"timestamp[{u}]": integers(pa.timestamp(u)) for u in ("ms", "us", "ns")},
    **{f"timestamp[{u}, UTC]": integers(pa.timestamp(u, "UTC")) for u in ("ms", "us", "ns")},
    "timestamp[us, Asia]": integers(pa.timestamp("us", "Asia/Kolkata")),
    **{str(k): pa.array(["a", "é", ""], k) for k in (pa.string(), pa.large_string())},
    "string_view": pa.array(["a", "é", ""], pa.string_view()),
    **{str(k): pa.array([b"\xff", b"a", b""], k) for k in (pa.binary(), pa.large_binary())},
    "binary_view": pa.array([b"\xff", b"a", b""], pa.binary_view()),
    "binary[2]": pa.array([b"\xff\x00", b"ab", b"cd"], pa.binary(2)),
    "dictionary of strings": pa.array(["a", "b", "a"]).dictionary_encode(),
    "dictionary of Polars": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0], pa.uint32()), ["a", "b"]
    ),
    "dictionary of numbers": pa.array([1, 2, 1]).dictionary_encode(),
    "uuid": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([uuid.UUID(int=n).bytes for n in (0, 1, 2**128 - 1)], pa.binary(16))
    ),
}
REFUSED = {
    "float16": pa.array(np.array([1, 2], np.float16)),
    "decimal256": pa.array(_NUMBERS[:2], pa.decimal256(50, 2)),
    "duration": pa.array([1, 2], pa.duration("s")),
    "list": pa.array([[1], [2]]),
    "large_list": pa.array([["a"], ["b"]], pa.large_list(pa.string())),
    "fixed_size_list": pa.array([[1], [2]], pa.list_(pa.int64(), 1)),
    "struct": pa.array([{"n": 1}, {"n": 2}]),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
}


def test_keys_of_all_these_types_are_known_on_the_second_day(tmp_path):
    texts = pa.array(["one", "two", "three"])
    write(tmp_path / "in.parquet", pa.table({**COMPARED, "text": texts}))
    options = {"key": tuple(COMPARED), "text_columns": ("text",)}
    translate(tmp_path / "in.parquet", tmp_path / "out", **options)
    first = read_all(tmp_path / "out")
    table = pa.table({**COMPARED, "text": texts})
    write(tmp_path / "in.parquet", pa.concat_tables([table.slice(2), table.slice(0, 2)]))
    summary = translate(tmp_path / "in.parquet", tmp_path / "out", **options)
    assert summary.manifest["kept_rows"] == 3
    translations = read_all(tmp_path / "out")["translation"].to_pylist()
    assert translations == first["translation"].take([2, 0, 1]).to_pylist()


def test_keys_that_cannot_be_compared_are_refused_on_the_first_day(tmp_path):
    table = pa.table({**REFUSED, "text": ["a", "b"]})
    feather.write_feather(table, tmp_path / "in.arrow")
    for name in REFUSED:
        options = {"key": (name,), "text_columns": ("text",)}
        message = refused(tmp_path / "in.arrow", tmp_path / "out", **options)
        assert f"the column {name!r} of" in message
        assert "which `key` cannot compare" in message
    assert not (tmp_path / "out").exists()
