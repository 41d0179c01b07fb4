"""JSONL output contains each object of JSONL input as it was, with the added keys."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from translation_jobs import translate

from tt.pipelines.tables.jsonl import splice

LINES = [
    '{"text": "ab", "n": 1.50, "deep": {"b":[1,  2], "a": null}}',
    '{"z":1E+2, "text" : "cd"}',
    '{"big": 123456789012345678901234567890, "text": "e\\u0066"}  ',
    '{"n": ["x"], "text": null}',
    '{"text": "\\ud83d\\ude00 é", "translation_error": {"old": [1]}, "after": 1}',
    '{"text": "gh", "note": "translation_score"}',
]


def rows_of(folder):
    [path] = folder.glob("*.jsonl*")
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    return content.decode().splitlines()


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_every_object_stays_as_it_was(tmp_path, compression):
    (tmp_path / "a.jsonl").write_text("\n".join(LINES), "utf-8")
    options = {"text_columns": ("text",), "format": "jsonl", "compression": compression}
    translate(tmp_path / "a.jsonl", tmp_path / "out", **options)
    found = rows_of(tmp_path / "out")
    for line, output in zip(LINES, found, strict=True):
        if "translation_error" not in line:
            assert output.startswith(line.rstrip().removesuffix("}") + ', "translation": ')
    assert '"translation_error": null, "after": 1, "translation": ' in found[4]
    assert [json.loads(line)["translation"] for line in found] == [
        "ba", "dc", "fe", None, "\N{GRINNING FACE} é", "hg",
    ]  # fmt: skip


def test_items_of_an_array_and_bad_lines(tmp_path):
    (tmp_path / "a.json").write_text('[{"text": "ab",\n"x": 1.0}, 7, {}]', "utf-8")
    translate(tmp_path / "a.json", tmp_path / "out", text_columns=("text",), format="jsonl")
    first, bad, last = rows_of(tmp_path / "out")
    assert first.startswith('{"text": "ab", "x": 1.0, "translation": "ba", ')
    assert bad.startswith('{"translation": null, "translation_score": null, ')
    assert json.loads(bad)["translation_error"] == "line 2: no JSON object"
    assert json.loads(last)["translation_status"] == "null"


def test_a_choice_of_columns_writes_only_these_columns(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(LINES[:1]), "utf-8")
    options = {"text_columns": ("text",), "format": "jsonl", "keep_columns": ("n",)}
    translate(tmp_path / "a.jsonl", tmp_path / "out", **options)
    assert list(json.loads(rows_of(tmp_path / "out")[0]))[:2] == ["n", "translation"]


def test_many_free_keys_do_not_become_columns(tmp_path):
    """An object per line with its own key gives an output of about the same size."""
    lines = [json.dumps({"text": "ab", f"key {i}": i}) for i in range(500)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8")
    translate(tmp_path / "a.jsonl", tmp_path / "out", text_columns=("text",), format="jsonl")
    [path] = (tmp_path / "out").glob("*.jsonl")
    assert path.stat().st_size < 200 * len(lines)


KEYS = st.sampled_from(["a", "b", 'q"', "é", "x y", "\\"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


@given(
    row=st.dictionaries(KEYS, VALUES, max_size=4),
    added=st.dictionaries(KEYS, VALUES, max_size=3),
    is_ascii=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_spliced_values_are_the_only_change(row, added, is_ascii, indent):
    line = json.dumps(row, ensure_ascii=is_ascii, indent=indent).encode()
    found = json.loads(splice(line, added))
    assert found == {**row, **added}
    assert list(found) == list({**row, **added})
