"""JSONL files: one schema for all lines, nested values, and error messages with line numbers."""

import json
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_scans import read_faults, read_runs, scan_file

from tt.model.errors import BadFileError
from tt.pipelines.tables import jsonl, reading, text_files
from tt.pipelines.tables.faults import split_faults
from tt.pipelines.tables.reading import OpenTable


def look(path, content):
    """Write a file; return its contents, or the error of reading it."""
    path.write_bytes(content)
    found = scan_file(path)
    if not isinstance(found, BadFileError) and found.head is not None:
        found.head.validate(full=True)
    return found


def table_of(path, content):
    found = look(path, content)
    assert not isinstance(found, BadFileError), found
    with OpenTable(str(path), schema=found.schema) as table:
        tables = read_runs(table, [1] * found.rows)
        assert len(tables) == found.rows
    return pa.concat_tables([found.schema.empty_table(), *tables])


@pytest.mark.parametrize("block_bytes", [10, 1 << 20])
@pytest.mark.parametrize(
    ("content", "kinds", "rows"),
    [
        (b"", {}, []),
        (b"\n\n", {}, []),
        (
            b'{"a":1}\n\n{"a":null,"b":[]}\r\n{"a":2.5,"b":["x"]}',
            {"a": pa.float64(), "b": pa.list_(pa.string())},
            [{"a": 1.0, "b": None}, {"a": None, "b": []}, {"a": 2.5, "b": ["x"]}],
        ),
        (
            b'\xef\xbb\xbf{"a":"2024-01-01"}\n{"a":"2024-01-02T00:00:00"}\n',
            {"a": pa.string()},
            [{"a": "2024-01-01"}, {"a": "2024-01-02T00:00:00"}],
        ),
        (
            b'{"a":{"b":["2024-01-01"]}}\n{"a":{"c":{"d":true}}}\n',
            {"a": pa.struct([("b", pa.list_(pa.string())), ("c", pa.struct([("d", pa.bool_())]))])},
            [{"a": {"b": ["2024-01-01"], "c": None}}, {"a": {"b": None, "c": {"d": True}}}],
        ),
        # Arrow reads these lists wrongly if their type is a list of nulls.
        (
            b'{}\n{"a":[null,null],"b":[]}\n',
            {"a": pa.list_(pa.string()), "b": pa.list_(pa.string())},
            [{"a": None, "b": None}, {"a": [None, None], "b": []}],
        ),
        # Arrow infers invalid lists if nulls precede other values.
        (
            b'{"a":[null,1234567890123456789],"b":[null,{"x":null}],"c":"4111111111111111"}\n',
            {
                "a": pa.list_(pa.int64()),
                "b": pa.list_(pa.struct([("x", pa.null())])),
                "c": pa.string(),
            },
            [{"a": [None, 1234567890123456789], "b": [None, {"x": None}], "c": "4" + "1" * 15}],
        ),
        (
            b'{"a":12345678901234567,"b":"0000-01-01"}',  # Python has no year 0
            {"a": pa.int64(), "b": pa.string()},
            [{"a": 12345678901234567, "b": "0000-01-01"}],
        ),
        (b'{"a":9007199254740993}', {"a": pa.int64()}, [{"a": 9007199254740993}]),
        (
            b'{"a":-9223372036854775808}\n{"a":9223372036854775807}\n',
            {"a": pa.int64()},
            [{"a": -(2**63)}, {"a": 2**63 - 1}],
        ),
        (  # the fractions are under another key than 2^53+1, and a double can represent 2^60
            b'{"a":9007199254740993,"b":{"c":1152921504606846976}}\n{"b":{"a":0.5,"c":0.25}}\n',
            {"a": pa.int64(), "b": pa.struct([("c", pa.float64()), ("a", pa.float64())])},
            [
                {"a": 9007199254740993, "b": {"c": 2.0**60, "a": None}},
                {"a": None, "b": {"c": 0.25, "a": 0.5}},
            ],
        ),
        (  # long digits in a string and in fractions are not integers
            b'{"a":"99999999999999999999","b":12345678901234567890.5}\n{"b":1.2345678901234567890}\n',
            {"a": pa.string(), "b": pa.float64()},
            [{"a": "9" * 20, "b": 12345678901234567890.5}, {"a": None, "b": 1.2345678901234567}],
        ),
    ],
)
def test_one_schema_fits_all_lines(tmp_path, monkeypatch, block_bytes, content, kinds, rows):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
    found = table_of(tmp_path / "t.jsonl", content)
    assert {field.name: field.type for field in found.schema} == kinds
    assert found.to_pylist() == rows


def invalid(problem):
    return f"invalid JSON ({problem})"


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        ([b"", b"[1]"], [(1, 3, "no JSON object")]),
        ([b"5", b"null", b'"x"'], [(row, row + 1, "no JSON object") for row in (1, 2, 3)]),
        ([b"["], [(1, 2, invalid("Expecting value"))]),
        ([b'{"a":1}{"a":2}'], [(1, 2, invalid("Extra data"))]),
        (
            [b"{", b'"a":1}'],
            [
                (1, 2, invalid("Expecting property name enclosed in double quotes")),
                (2, 3, invalid("Extra data")),
            ],
        ),
        ([b'{"a":1,"a":2}'], [(1, 2, invalid("Column(/a) was specified twice"))]),
        ([b'{"b":"\\ud800"}'], [(1, 2, "half of a surrogate pair")]),
        ([b'{"b":"\\ud83d\\ude00"}'], []),
        ([b'{"b":"\xff"}'], [(1, 2, "invalid UTF-8")]),
    ],
)
def test_only_bad_lines_are_faults(tmp_path, monkeypatch, block_bytes, lines, faults):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join([b'{"a":1}', *lines, b'{"a":2,"c":[]}']))
    assert read_faults(path)[0] == faults
    schema = scan_file(path).schema
    assert [field.name for field in schema if field.name != "b"] == ["a", "c"]
    with OpenTable(str(path), schema=schema) as table:
        rows = [split_faults(batch)[0].to_pylist() for batch in table.batches()]
    values = [row["a"] for some in rows for row in some]
    assert (values[0], values[-1], len(values)) == (1, 2, sum(map(bool, lines)) + 2)


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (["1", '"x"', None, "null", '{"b":["ä"]}'], ["1", '"x"', None, None, '{"b": ["ä"]}']),
        (['{"b":1}', '{"b":[]}'], ['{"b": 1}', '{"b": []}']),
        (["1", "9223372036854775809"], ["1", "9223372036854775809"]),
        (['[{"c":-9223372036854775809}]'], ['[{"c": -9223372036854775809}]']),
        (["9007199254740993", "0.5"], ["9007199254740993", "0.5"]),
    ],
)
def test_a_key_with_several_types_contains_json_texts(
    tmp_path, monkeypatch, block_bytes, values, texts
):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
    lines = [
        f'{{"id":{i}' + (f',"a":{value}}}' if value else "}") for i, value in enumerate(values)
    ]
    found = table_of(tmp_path / "t.jsonl", "\n".join(lines).encode())
    assert found.to_pydict() == {"id": [*range(len(values))], "a": texts}
    assert jsonl.is_json_text(found.schema.field("a"))
    assert not jsonl.is_json_text(found.schema.field("id"))


def test_a_first_line_that_is_longer_than_the_head_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "HEAD_BYTES", 10)
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"text": "x" * 50}) + "\n" + '{"id":1}\n' * 99)
    contents = reading.inspect_file(str(path))
    assert contents.rows is None
    assert contents.head["text"][0].as_py() == "x" * 50


@pytest.mark.parametrize("block_bytes", [1, 4 << 20])
@pytest.mark.parametrize("depth", [101, 50_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_line_nested_too_deeply_is_bad(tmp_path, monkeypatch, block_bytes, depth, opening):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "t.jsonl"
    for rest in (b"", b"1" + (b"]" if opening == b"[" else b"}") * (depth - 1) + b"}"):
        line = b'{"a":' + opening * (depth - 1) + rest
        path.write_bytes(b'{"b":"x"}\n' + line + b"\n")
        assert read_faults(path) == ([(1, 2, "more than 100 nested lists and objects")], 2)


def test_brackets_in_strings_and_in_sequence_do_not_count_as_nesting(tmp_path):
    nested = json.loads("[" * 99 + "1" + "]" * 99)
    rows = [
        {"a": nested, "b": "[{" * 500 + '"\\"[[', "c": [{"d": [1]}] * 200},
        {"a": None, "b": '\\"' * 99 + "[" * 500, "c": []},
    ]
    content = "\n".join(map(json.dumps, rows)).encode()
    assert table_of(tmp_path / "t.jsonl", content).to_pylist() == rows
    path = tmp_path / "open.jsonl"
    assert "line 1: invalid JSON (Unterminated string" in str(look(path, b'{"a":"' + b"[" * 500))


def test_utf_16_is_an_error(tmp_path):
    path = tmp_path / "t.jsonl"
    assert str(look(path, '{"a":1}\n'.encode("utf-16"))) == (
        f"{path} must be UTF-8; it is UTF-16 or UTF-32"
    )


VALUE = st.fixed_dictionaries(
    {"id": st.integers(0, 9)},
    optional={
        "text": st.none() | st.text(max_size=5),
        "number": st.integers(-(2**50), 2**50),
        "list": st.lists(st.text(max_size=3), max_size=3),
        "struct": st.fixed_dictionaries({"a": st.booleans(), "b": st.none() | st.text(max_size=3)}),
    },
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(VALUE, max_size=8), is_ascii=st.booleans())
def test_jsonl_round_trip(tmp_path_factory, rows, is_ascii):
    content = "".join(f"{json.dumps(row, ensure_ascii=is_ascii)}\n" for row in rows)
    found = table_of(tmp_path_factory.mktemp("jsonl") / "t.jsonl", content.encode())
    read = found.to_pylist()
    assert [{key: row[key] for key in wanted} for row, wanted in zip(read, rows, strict=True)] == (
        rows
    )
    assert all(row[key] is None for row, wanted in zip(read, rows, strict=True)
               for key in set(row) - set(wanted))  # fmt: skip


def test_a_line_beyond_the_limit_is_bad_and_is_not_in_memory(tmp_path, monkeypatch):
    for module in (jsonl, text_files):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 10 << 20)
    path = tmp_path / "t.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a":1}\n[')
        file.seek(256 << 20)  # a sparse file: the zeros use no disk space
        file.write(b'\n{"a":2}\n')
    tracemalloc.start()
    try:
        found = read_faults(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == ([(1, 2, "longer than 64 MB")], 3)
    assert peak < 128 << 20


@pytest.mark.parametrize("is_array", [True, False])
def test_a_byte_order_mark_inside_a_text_stays_wherever_a_block_begins(tmp_path, is_array):
    """The file is longer than the first block, and the second block begins with the mark."""
    begin = '[{"x": "' if is_array else '{"x": "'
    text = "a" * ((4 << 20) - len(begin)) + "\ufeffb"
    path = tmp_path / "a.json"
    path.write_text(begin + text + ('"}]' if is_array else '"}'), encoding="utf-8")
    with OpenTable(str(path)) as table:
        assert [row for batch in table.batches() for row in batch.to_pylist()] == [{"x": text}]


@pytest.mark.parametrize("block_bytes", [1, 1000])
def test_an_empty_line_does_not_hide_that_a_line_has_two_objects(
    tmp_path, monkeypatch, block_bytes
):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "a.jsonl"
    path.write_text('{"s":"a","t":"b"}{"s":"c","t":"d"}\n\n{"s":"e","t":"f"}\n')
    with reading.OpenTable(str(path), columns=["s", "t"]) as table:
        split = [split_faults(batch) for batch in table.batches()]
    texts = [row["s"] for batch, _ in split for row in batch.to_pylist()]
    faults = [fault.reason for _, found in split for fault in found.values()]
    assert texts == [None, None, "e"]
    assert faults == ["invalid JSON (Extra data)", "invalid JSON (Expecting value)"]


@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize("before", [1, 2])
def test_empty_lists_fit_lists_of_any_type(tmp_path, monkeypatch, block_bytes, before):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
    lists = [*[[]] * before, [1], []]
    content = "\n".join(json.dumps({"a": each}) for each in lists).encode()
    found = table_of(tmp_path / "t.jsonl", content)
    assert found.schema.field("a").type == pa.list_(pa.int64())
    assert found.column("a").to_pylist() == lists
