"""JSONL files: one schema for all lines, nested values, and error messages with line numbers."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_scans import read_runs, scan_file

from tt.model.errors import BadFileError
from tt.pipelines.tables import jsonl, reading, text_files
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


RULE = "PATH must have one JSON object per line, and values of one type per key; line"


def too_large(line):
    return (
        "PATH must have integers of at most 64 bits, and of at most 2^53 under a key that also has "
        f"fractions; line {line} has a larger one. Write such numbers as strings"
    )


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a":1}\n\n[1]\n', f"{RULE} 3: the value is not an object: '[1]'"),
        (
            b'[{"a":1}, {"a":2}]',
            f'{RULE} 1: the value is not an object: \'[{{"a":1}}, {{"a":2}}]\'',
        ),
        (b'\n[\n{"a":1}\n]\n', f"{RULE} 2: Expecting value: '['"),
        (b'{"a":1}\n5\n', f"{RULE} 2: the value is not an object: '5'"),
        (b'{"a":1}\nnull\n', f"{RULE} 2: the value is not an object: 'null'"),
        (b'{"a":1}{"a":2}\n', f'{RULE} 1: Extra data: \'{{"a":1}}{{"a":2}}\''),
        (
            b'{"a":1}\n{\n"a":1}\n',
            f"{RULE} 2: Expecting property name enclosed in double quotes: '{{'",
        ),
        (
            b'{"a":1}\n{"a":"x"}\n',
            f'{RULE} 2: Field a has incompatible types: int64 vs string: \'{{"a":"x"}}\'',
        ),
        (
            b'{"a":{"b":1}}\n{"a":{"b":[]}}\n',
            f"{RULE} 2: Field b has incompatible types: int64 vs list<item: null>: "
            '\'{"a":{"b":[]}}\'',
        ),
        (b'{"a":1}\n{"a":9223372036854775809}\n', too_large(2)),
        (b'{"b":0.5}\n\n{"b":0.5,"a":[{"c":-9223372036854775809}]}\n', too_large(3)),
        (b'{"a":' + b"7" * 300 + b"}", too_large(1)),
        (b'{"a":' + b"7" * 5000 + b"}", too_large(1)),
        (b'{"a":9007199254740993}\n{"a":0.5}\n', too_large(1)),
        (b'{"b":0.5,"a":[{"c":[1.5]}]}\n{"a":[{},{"c":[1,-9007199254740993]}]}\n', too_large(2)),
        (b'{"a":1,"a":2}\n', f'{RULE} 1: Column(/a) was specified twice: \'{{"a":1,"a":2}}\''),
        (
            b'{"a":"\\ud800"}\n{"a":1}',
            f"{RULE} 2: Field a has incompatible types: string vs int64: '{{\"a\":1}}'",
        ),
        (b'{"a":"x"}\n{"a":"\xff"}', "PATH must be UTF-8; line 2 is not"),
    ],
)
def test_errors_name_the_bad_line(tmp_path, monkeypatch, block_bytes, content, message):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "t.jsonl"
    assert str(look(path, content)) == message.replace("PATH", str(path))


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
def test_a_line_nested_too_deeply_is_an_error(tmp_path, monkeypatch, block_bytes, depth, opening):
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "t.jsonl"
    for rest in (b"", b"1" + (b"]" if opening == b"[" else b"}") * (depth - 1) + b"}"):
        line = b'{"a":' + opening * (depth - 1) + rest
        assert str(look(path, b'{"b":"x"}\n' + line + b"\n")) == (
            f"{path} must have at most 100 nested lists and objects; line 2 has more"
        )


def test_brackets_in_strings_and_in_sequence_do_not_count_as_nesting(tmp_path):
    nested = json.loads("[" * 99 + "1" + "]" * 99)
    rows = [
        {"a": nested, "b": "[{" * 500 + '"\\"[[', "c": [{"d": [1]}] * 200},
        {"a": None, "b": '\\"' * 99 + "[" * 500, "c": []},
    ]
    content = "\n".join(map(json.dumps, rows)).encode()
    assert table_of(tmp_path / "t.jsonl", content).to_pylist() == rows
    path = tmp_path / "open.jsonl"
    assert "line 1: Unterminated string" in str(look(path, b'{"a":"' + b"[" * 500))


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


def test_a_line_beyond_the_limit_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"a":1}\n[')
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a sparse file, too large for any memory
    found = scan_file(path)
    assert isinstance(found, BadFileError)
    assert str(found).startswith(
        f"{path} must have lines of at most {text_files.MAX_LINE_BYTES >> 20} MB; line 2 is longer"
    )
