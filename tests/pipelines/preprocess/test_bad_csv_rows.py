"""A bad row of a CSV corpus is a rejected line, and all other rows keep their texts and numbers."""

import csv
import io

import pytest
from corpora import ENGLISH, GERMAN, open_named, rejected
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest
from tt.pipelines.preprocess.sources import INVALID_UTF8, MALFORMED
from tt.pipelines.tables import delimited

GOOD = [("a", "x"), ("a, b", "x\ny"), ('say "a"', "x"), ("a\n\nb\n", ""), ("", "x")]
LATIN = "caf\udce9"
CASES = {
    "too few cells": ("only", ("only", "", MALFORMED)),
    "too many cells": ("a,b,c", ("a,b,c", "", MALFORMED)),
    "quoted with too many cells": ('"a\nb",c,d', ('"a\nb",c,d', "", MALFORMED)),
    "mark without its end": ('"open,x', ('"open,x', "", MALFORMED)),
    "mark without its end in the last cell": ('a,"open', ('a,"open', "", MALFORMED)),
    "mark without its end in a row with too many cells": ('a,"b, c', ('a,"b, c', "", MALFORMED)),
    "mark inside a cell": ('5" disk,x', ('5" disk', "x", None)),
    "text after a closing mark": ('"a" b,x', ("a b", "x", None)),
    "not UTF-8": (f"{LATIN},x", ("caf\ufffd,x", "", INVALID_UTF8)),
}


def text_of(rows):
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows(rows)
    return content.getvalue()


def write(path, text, line_end="\n"):
    content = f"en,de\n{text}".replace("\n", line_end)
    path.write_bytes(content.encode(errors="surrogateescape"))
    [source] = open_named(corpora=[f"{path}:en:de"])
    return source


def rows_of(source):
    return [tuple(row.values()) for table in source.read_all() for row in table.to_pylist()]


@pytest.mark.parametrize("case", CASES)
def test_only_the_bad_row_has_a_fault(tmp_path, case):
    line, expected = CASES[case]
    for others in (GOOD, []):
        source = write(tmp_path / "a.csv", f"{text_of(others)}{line}\n{text_of(others)}")
        good = [(*row, None) for row in others]
        assert rows_of(source) == [*good, expected, *good]


CELLS = st.text('ab ,"\n', max_size=6).map(lambda text: f"w{text}")
KNOWN = st.tuples(CELLS, CELLS).map(lambda row: (text_of([row]), (*row, None)))
BAD = st.sampled_from(
    [(f"{line}\n", (line, "", MALFORMED)) for line in ("only", "a,b,c", '"open,x', 'a,"open')]
)


@given(rows=st.lists(KNOWN | BAD, max_size=30), size=st.sampled_from([64, 200, 8 << 20]))
def test_rows_do_not_depend_on_blocks(tmp_path_factory, rows, size):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    source = write(path, "".join(text for text, _ in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "BLOCK_BYTES", size)
        assert rows_of(source) == [row for _, row in rows]


def test_a_mark_without_its_end_does_not_swallow_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1000)
    rows = [(f"row {i}", "x") for i in range(2000)]
    text = text_of(rows[:3]) + 'a,"open\n' + text_of(rows[3:])
    found = rows_of(write(tmp_path / "a.csv", text))
    assert found.pop(3) == ('a,"open', "", MALFORMED)
    assert found == [(*row, None) for row in rows]
    with_mark = text_of(rows[:3]) + 'a,"open\n' + text_of(rows[3:]) + '"row, 2001",x\n'
    found = rows_of(write(tmp_path / "a.csv", with_mark))
    assert found.pop(3) == ('a,"open', "", MALFORMED)
    assert found == [*((*row, None) for row in rows), ("row, 2001", "x", None)]


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_other_line_ends(tmp_path, line_end):
    source = write(tmp_path / "a.csv", 'a,x\nonly\n"open,x\nb,y\n', line_end)
    assert rows_of(source) == [
        ("a", "x", None), ("only", "", MALFORMED), ('"open,x', "", MALFORMED), ("b", "y", None)
    ]  # fmt: skip


def test_a_dataset_counts_bad_rows_with_their_lines(tmp_path):
    rows = [*zip(ENGLISH, GERMAN, strict=True)]
    write(tmp_path / "a.csv", f"{text_of(rows[:50])}only\n{text_of(rows[50:])}a,b,c\n")
    request = PreprocessRequest(
        corpora=(f"{tmp_path}/a.csv:en:de",),
        options=PreprocessOptions(
            output=f"{tmp_path}/out", vocabulary_size=40, filters=Filters(max_length_ratio=0)
        ),
        beam_arguments=("--direct_num_workers=1",),
    )
    manifest = request.plan().run()
    assert manifest.lines_read == len(rows) + 2
    bad = [row for row in rejected(tmp_path / "out") if row["reason"] == MALFORMED]
    assert [(row["line"], row["source"]) for row in bad] == [(51, "only"), (len(rows) + 2, "a,b,c")]
