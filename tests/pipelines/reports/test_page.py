"""Pages: their escaped texts, their charts, and files that are written atomically."""

from __future__ import annotations

import json
import re

import pytest

from tt.model.errors import UserError
from tt.model.inspection.blocks import (
    LINEAR,
    LOGARITHMIC,
    PERCENT,
    SCORE,
    Bars,
    Curves,
    Facts,
    Folded,
    Histogram,
    Histograms,
    Line,
    Lines,
    Note,
    Section,
    Table,
    Texts,
)
from tt.pipelines.reports.folders import check_output, write_whole_file
from tt.pipelines.reports.page import page, render, script_data

BAD = "</script><script>alert('1')</script><b>&\""


def curve(y, *, scale=LINEAR, marks=()):
    """Return a chart with one curve as HTML."""
    return render([Curves("x", [Line("a", "a", range(len(y)), y, 0, scale)], marks)])


def test_all_texts_are_escaped():
    few = Histogram(unit=BAD, edges=[1, 2], counts=[3])
    blocks = [
        Table([BAD], [[BAD]]), Texts([BAD], [[BAD * 99]]), Facts([(BAD, BAD)]), Note(BAD),
        Lines([BAD]), Folded(BAD, [Note(BAD)]), Bars(BAD, [(BAD, 1)], BAD),
        Histograms(BAD, [(BAD, few), (BAD, few)]),
        Curves(BAD, [Line(BAD, BAD, [1, 2], [1, 2], 0), Line(BAD, "b", [1], [2], 1)]),
    ]  # fmt: skip
    text = page(title=BAD, lead=BAD, sections=[Section("a", BAD, blocks)])
    assert "alert(" in text
    assert BAD not in text
    assert "<b>" not in text
    assert text.count("<script") == 1


def test_data_cannot_end_its_element():
    written = script_data("x", {"text": BAD})
    inner = written.removeprefix('<script type="application/json" id="x">').removesuffix(
        "</script>"
    )
    assert "<" not in inner
    assert json.loads(inner) == {"text": BAD}


def test_charts_have_the_colors_of_the_page_and_unique_ids():
    histogram = Histogram(unit="", edges=[1, 2, 4], counts=[3, 1])
    blocks = [
        Curves("x", [Line("a", "a", [1, 2], [3, 4], 0, LOGARITHMIC)]),
        Histograms("b", [("b", histogram)], is_log=True),
    ]
    together = render(blocks)
    assert together.count('<div class="charts">') == 1
    assert "var(--series-0)" in together
    assert "var(--ink)" in together
    assert "#0303" not in together
    assert "mathdefault" not in together
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", together)
    ids = re.findall(r' id="([^"]*)"', together)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', together)) <= set(ids)


def test_a_file_is_replaced_only_with_overwrite(tmp_path):
    output = tmp_path / "a.html"
    check_output(str(output), overwrite=False)
    write_whole_file(output, b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    message = r"already exists\. Choose another `output`, or set `overwrite`"
    with pytest.raises(UserError, match=message):
        check_output(str(output), overwrite=False)
    check_output(str(output), overwrite=True)
    write_whole_file(output, b"two")
    assert output.read_bytes() == b"two"
    with pytest.raises(UserError, match="there is no writable folder"):
        check_output(str(tmp_path / "no/a.html"), overwrite=False)
    with pytest.raises(UserError, match="is a folder"):
        check_output(str(tmp_path), overwrite=True)
    with pytest.raises(UserError, match="cannot be written"):
        write_whole_file(tmp_path / "no/a.html", b"")


def y_axis(drawn):
    """Return the numbers next to the y axis of a chart."""
    found = re.findall(r"text-anchor: end[^>]*>([\d.,]+)%?</text>", drawn)
    return [float(each.replace(",", "")) for each in found]


@pytest.mark.parametrize(("scale", "unit"), [(SCORE, 1), (PERCENT, 0.01)])
@pytest.mark.parametrize("values", [[0], [99.5, 100], [20, 20.001]])
def test_scores_and_shares_have_no_ticks_above_their_maximum(scale, unit, values):
    ticks = y_axis(curve([unit * each for each in values], scale=scale))
    assert len(ticks) >= 2
    assert 0 == min(ticks) < max(ticks) <= 100


@pytest.mark.parametrize(
    ("values", "expected"), [([130, 250], [200]), ([4, 9000], [10, 100, 1000])]
)
def test_a_logarithmic_axis_has_readable_ticks(values, expected):
    ticks = y_axis(curve(values, scale=LOGARITHMIC))
    assert set(expected) <= set(ticks)
    assert len(ticks) < 12
