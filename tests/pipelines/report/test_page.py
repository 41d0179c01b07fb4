"""Pages: what is escaped, what a chart says, and files that are whole or not there."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from model.errors import UserError
from model.summaries.histograms import Histogram
from pipelines.report.charts import Line, bar_chart, heat_chart, histogram_chart, line_chart
from pipelines.report.page import (
    Section,
    check_output,
    details,
    element,
    facts,
    page,
    script_data,
    table,
    write_whole_file,
)

BAD = "</script><script>alert('1')</script><b>&\""


def test_all_texts_are_escaped():
    body = element(
        "div",
        table([BAD], [[BAD]]), facts([(BAD, BAD)]), details(BAD, BAD),
        bar_chart(BAD, [(BAD, 1)], x_label=BAD),
        line_chart(BAD, [Line(BAD, [1, 2], [1, 2], 0), Line("b", [1], [2], 1)], x_label="x"),
    )  # fmt: skip
    text = page(title=BAD, lead=BAD, sections=[Section("a", BAD, body)])
    assert "alert(" in text
    assert BAD not in text
    assert "<b>" not in text
    assert text.count("<script") == 1


def test_data_cannot_end_their_script():
    written = script_data("x", {"text": BAD})
    inner = written.removeprefix('<script type="application/json" id="x">').removesuffix(
        "</script>"
    )
    assert "<" not in inner
    assert json.loads(inner) == {"text": BAD}


def test_charts_have_the_colours_of_the_page_and_ids_of_their_own():
    histogram = Histogram(unit="", edges=[1, 2, 4], counts=[3, 1])
    drawn = [
        line_chart("a", [Line("a", [1, 2], [3, 4], 0)], x_label="x", is_log=True),
        histogram_chart("b", [("b", histogram)], x_label="x", is_log=True),
        heat_chart("c", np.eye(3), x_label="x", y_label="y"),
    ]
    together = "".join(drawn)
    assert "var(--series-0)" in together
    assert "var(--ink)" in together
    assert "#0303" not in together
    assert "mathdefault" not in together
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", together)
    ids = re.findall(r' id="([^"]*)"', together)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', together)) <= set(ids)


def test_a_file_is_written_once(tmp_path):
    output = check_output(str(tmp_path / "a.html"), overwrite=False)
    write_whole_file(output, b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    with pytest.raises(UserError, match="is there already: name another `output`, or `overwrite`"):
        check_output(str(output), overwrite=False)
    write_whole_file(check_output(str(output), overwrite=True), b"two")
    assert output.read_bytes() == b"two"
    with pytest.raises(UserError, match="there is no folder"):
        check_output(str(tmp_path / "no/a.html"), overwrite=False)
    with pytest.raises(UserError, match="is a folder"):
        check_output(str(tmp_path), overwrite=True)
    with pytest.raises(UserError, match="cannot be written"):
        write_whole_file(tmp_path / "no/a.html", b"")
