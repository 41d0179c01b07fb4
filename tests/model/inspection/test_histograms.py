"""Histograms of lengths that are drawn over each other."""

from hypothesis import given
from hypothesis import strategies as st

from model.inspection.histograms import Histogram, with_same_bins

COUNTS = st.dictionaries(st.integers(1, 300), st.integers(1, 9), min_size=1, max_size=40)


@given(sides=st.lists(COUNTS, min_size=1, max_size=3), bins=st.integers(1, 40))
def test_all_have_the_same_bins_and_lose_nothing(sides, bins):
    fine = [Histogram.of_lengths(each) for each in sides]
    found = with_same_bins(fine, bins=bins)
    widths = {b - a for each in found for a, b in zip(each.edges, each.edges[1:], strict=False)}
    assert len(widths) == 1
    assert len({tuple(each.edges) for each in found}) == 1
    assert len(found[0].counts) <= bins
    assert [each.total for each in found] == [each.total for each in fine]
    assert found[0].edges[0] == min(min(each) for each in sides)


def test_a_single_long_text_leaves_the_others_their_bins():
    fine = Histogram.of_lengths({**dict.fromkeys(range(3, 23), 2_500), 250: 1})
    [found] = with_same_bins([fine], bins=40)
    assert found.edges == [float(edge) for edge in range(3, 24)]
    assert found.counts == [2_500] * 19 + [2_501]


def test_of_no_texts_there_are_no_bins():
    empty = Histogram.of_lengths({})
    assert with_same_bins([empty, empty], bins=40) == [empty, empty]
    assert with_same_bins([], bins=40) == []
