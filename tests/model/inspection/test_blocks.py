"""Histograms of values, and histograms of lengths with common bins."""

from hypothesis import given
from hypothesis import strategies as st

from tt.model.inspection.blocks import Histogram, histograms_of_lengths

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=40)


@given(sides=st.lists(LENGTHS, min_size=1, max_size=3), bins=st.integers(1, 40))
def test_histograms_have_the_same_bins_and_count_all_values(sides, bins):
    found = histograms_of_lengths(sides, bins=bins)
    widths = {b - a for each in found for a, b in zip(each.edges, each.edges[1:], strict=False)}
    assert len(widths) == 1
    assert len({tuple(each.edges) for each in found}) == 1
    assert len(found[0].counts) <= bins
    assert [sum(each.counts) for each in found] == list(map(len, sides))
    assert found[0].edges[0] == min(map(min, sides))


def test_single_long_text_does_not_widen_the_bins():
    lengths = [length for length in range(3, 23) for _ in range(2_500)]
    [found] = histograms_of_lengths([[*lengths, 250]], bins=40)
    assert found.edges == [float(edge) for edge in range(3, 24)]
    assert found.counts == [2_500] * 19 + [2_501]


@given(st.lists(st.floats(-5, 15), min_size=1))
def test_half_of_the_values_are_below_the_median(values):
    histogram = Histogram.of(values, edges=range(11), unit="")
    below = sum(
        count
        for edge, count in zip(histogram.edges[1:], histogram.counts, strict=True)
        if edge <= histogram.median
    )
    assert below <= len(values) / 2 + 1e-9
    assert sum(histogram.trimmed().counts) == len(values)
