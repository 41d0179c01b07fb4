"""Inputs as people have them: other endings, separators and encodings, and how to choose them."""

import gzip
import json

import pyarrow as pa
import pytest
from corpora import open_named
from translation_jobs import outputs, read_all, refused, translate, write

from tt.model.errors import UserError
from tt.pipelines.tables.formats import ReadOptions

TEXTS, OUTPUT = ["ab", "c;d", "éf"], ["ba", "d;c", "fé"]
CSV = "id,text\n1,ab\n2,c;d\n3,éf\n"
OBJECTS = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
LINES = "".join(json.dumps(each) + "\n" for each in OBJECTS)
EXCEL = '\ufeffid;text\r\n1;ab\r\n2;"c;d"\r\n3;éf\r\n'
CASES = {
    "a.NDJSON": (LINES.encode(), {}),
    "a.json": (LINES.encode(), {}),
    "b.json": (json.dumps(OBJECTS).encode(), {}),
    "c.json.gz": (gzip.compress(f" \n{json.dumps(OBJECTS, indent=2)}\n".encode()), {}),
    "a.tab": (CSV.replace(",", "\t").encode(), {}),
    "excel.csv": (EXCEL.encode(), {}),
    "latin.csv": (CSV.encode("latin-1"), {"encoding": "latin-1"}),
    "wide.csv": (EXCEL.encode("utf-16"), {"encoding": "utf-16"}),
    "wide.jsonl": (LINES.encode("utf-16"), {"encoding": "UTF-16"}),
    "bar.csv": (CSV.replace(",", "|").encode(), {"delimiter": "|"}),
    "tab.dat": (CSV.replace(",", "\t").encode(), {"input_format": "csv", "delimiter": "\\t"}),
    "table": (CSV.encode(), {"input_format": "csv"}),
    "lines.csv": (LINES.encode(), {"input_format": "jsonl"}),
    "texts.de": ("\n".join(TEXTS).encode(), {"input_format": "text"}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_input_gives_the_same_translations(tmp_path, name):
    content, options = CASES[name]
    (tmp_path / name).write_bytes(content)
    translate(
        tmp_path / name, tmp_path / "out", text_columns=("text",), read=ReadOptions(**options)
    )
    assert read_all(tmp_path / "out")["translation"].to_pylist() == OUTPUT


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("texts.de", "a.tab")])
def test_corpora_have_the_same_options(tmp_path, name):
    content, options = CASES[name]
    (tmp_path / name).write_bytes(content)
    [source] = open_named(corpora=[f"{tmp_path / name}:text:text"], **options)
    rows = [row for table in source.read_all() for row in table.to_pylist()]
    assert [(row["source"], row["target"]) for row in rows] == [(text, text) for text in TEXTS]


def test_a_format_is_also_for_all_files_of_a_folder(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.dat", "b", "c.csv"):
        (tmp_path / "in" / name).write_text(CSV, "utf-8")
    options = {"text_columns": ("text",), "read": ReadOptions(input_format="csv")}
    summary = translate(tmp_path / "in", tmp_path / "out", **options)
    assert (summary.rows, len(outputs(tmp_path / "out"))) == (9, 3)
    assert summary.manifest["unread_files"] == {}


def test_other_options_are_another_job(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a;b\n", "utf-8")
    translate(tmp_path / "a.csv", tmp_path / "out", text_columns=("text",))
    message = refused(
        tmp_path / "a.csv",
        tmp_path / "out",
        text_columns=("text",),
        read=ReadOptions(encoding="latin-1"),
    )
    assert "encoding" in message


@pytest.mark.parametrize(
    ("name", "content", "fix"),
    [
        ("a.csv", b"id|text\n1|ab\n", "Set `delimiter`"),
        ("a.csv", "id,text\n1,ab\n".encode("utf-16"), "Set `encoding`"),
        ("a.unknown", b"id,text\n1,ab\n", "Set `input_format`"),
        ("a.json", b'[{"text":"ab"},', "item 2 is not JSON, or the array has no end"),
    ],
)
def test_a_refusal_names_the_option_that_helps(tmp_path, name, content, fix):
    (tmp_path / name).write_bytes(content)
    assert fix in refused(tmp_path / name, tmp_path / "out", text_columns=("text",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "ab"}, "`delimiter` must be one ASCII character. Received: ab"),
        ({"delimiter": '"'}, "`delimiter` must be one ASCII character"),
        ({"delimiter": "\0"}, "`delimiter` must be one ASCII character"),
        ({"encoding": "klingon"}, "`encoding` must be one that Python knows"),
        ({"input_format": "xml"}, "`input_format` must be one of parquet, jsonl, csv"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        ReadOptions(**options)


def test_an_item_of_an_array_that_is_no_object_is_a_bad_row(tmp_path):
    (tmp_path / "a.json").write_bytes(b'[{"text":"ab"}, 5, {"text":"cd"}]')
    translate(tmp_path / "a.json", tmp_path / "out")
    found = read_all(tmp_path / "out")
    assert found["translation"].to_pylist() == ["ba", None, "dc"]
    assert found["translation_error"].to_pylist()[1] == "line 2: no JSON object"


def test_texts_can_be_bytes_in_utf_8(tmp_path):
    texts = pa.array([b"ab", b"\xff", None], pa.binary())
    write(tmp_path / "in.parquet", pa.table({"id": [1, 2, 3], "text": texts}))
    translate(tmp_path / "in.parquet", tmp_path / "out", text_columns=("text",))
    found = read_all(tmp_path / "out")
    assert found["text"].to_pylist() == [b"ab", b"\xff", None]
    assert found["translation"].to_pylist() == ["ba", None, None]
    assert found["translation_status"].to_pylist() == ["ok", "failed", "null"]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_other_columns_may_have_the_same_name(tmp_path, kind):
    if kind == "csv":
        (tmp_path / "in.csv").write_text("n,text,n\n1,ab,2\n", "utf-8")
    else:
        table = pa.Table.from_arrays(
            list(map(pa.array, (["1"], ["ab"], ["2"]))), ["n", "text", "n"]
        )
        write(tmp_path / "in.parquet", table)
    translate(tmp_path / f"in.{kind}", tmp_path / "out", text_columns=("text",))
    found = read_all(tmp_path / "out")
    assert found["translation"].to_pylist() == ["ba"]
    assert [found.column(index).to_pylist() for index in (0, 2)] == [["1"], ["2"]]
