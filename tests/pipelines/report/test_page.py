"""Pages: what is escaped, what a chart says, and files that are whole or not there."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from model.errors import UserError
from model.summaries.histograms import Histogram
from pipelines.report.charts import (
    LOGARITHMIC,
    PERCENT,
    SCORE,
    Line,
    bar_chart,
    heat_chart,
    histogram_chart,
    line_chart,
)
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
        line_chart("a", [Line("a", [1, 2], [3, 4], 0)], x_label="x", scale=LOGARITHMIC),
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


def test_shares_are_shown_in_percent_and_marks_as_dotted_lines():
    line = Line("a", [1, 2], [0.25, 0.5], 0)
    drawn = line_chart("a", [line], x_label="x", scale=PERCENT, marks=[1.5])
    assert ">30%<" in drawn
    assert drawn.count("stroke-dasharray") == 1
    plain = line_chart("a", [line], x_label="x")
    assert "%<" not in plain
    assert "stroke-dasharray" not in plain


def y_axis(drawn):
    """Returns the numbers beside the y axis of a chart."""
    found = re.findall(r"text-anchor: end[^>]*>([\d.,]+)%?</text>", drawn)
    return [float(each.replace(",", "")) for each in found]


@pytest.mark.parametrize(("scale", "unit"), [(SCORE, 1), (PERCENT, 0.01)])
@pytest.mark.parametrize("values", [[100], [0], [99.5, 100], [20, 100], [20, 20.001]])
def test_scores_and_shares_have_no_ticks_beyond_the_most(scale, unit, values):
    line = Line("a", range(len(values)), [unit * each for each in values], 0)
    ticks = y_axis(line_chart("a", [line], x_label="x", scale=scale))
    assert len(ticks) >= 2
    assert 0 <= min(ticks) < max(ticks) <= 100
    assert max(ticks) - min(ticks) >= 0.5


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([130, 250], [150, 200, 250]),
        ([175.8], [100, 200, 500, 1000]),
        ([30, 744], [50, 100, 200, 500]),
        ([4, 9000], [10, 100, 1000]),
    ],
)
def test_a_logarithmic_axis_has_ticks_that_can_be_read(values, expected):
    line = Line("a", range(len(values)), values, 0)
    ticks = y_axis(line_chart("a", [line], x_label="x", scale=LOGARITHMIC))
    assert set(expected) <= set(ticks)
    assert len(ticks) < 9


def test_numbers_that_are_counted_have_whole_ticks():
    few = Histogram(unit="characters", edges=[1.0, 2.0, 3.0], counts=[3, 1])
    ticks = re.findall(r">(\d[\d.]*)</text>", histogram_chart("b", [("b", few)], x_label="x"))
    assert {"1", "2", "3"} <= set(ticks)
    assert not any("." in tick for tick in ticks)
