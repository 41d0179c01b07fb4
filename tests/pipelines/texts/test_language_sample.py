"""The pairs whose languages are looked at: few, and the same for all workers."""

import collections

import numpy as np
import pytest

from pipelines.texts.language_sample import sample_languages, share_first_rows

MOST_FIRST_ROWS = 8192


def sampled(names, *, order, rows):
    english = ["They are standing in the garden here."] * len(rows)
    german = ["Sie stehen heute hier im Garten."] * len(rows)
    first_rows = share_first_rows(tuple(names))[order]
    found = sample_languages(rows, english, german, order=order, first_rows=first_rows)
    return collections.Counter(found)


def test_of_a_file_the_first_rows_and_some_others_are_looked_at():
    """The same ones, however its rows are cut into slices."""
    files = ["a", "b"]
    for order in (0, 1):
        whole = sampled(files, order=order, rows=np.arange(1000))
        # Of 1,000 rows the first 128, and 256, 512 and 768, or those before them.
        assert whole == {("source", "en"): 131, ("target", "de"): 131}
        cut = (sampled(files, order=order, rows=np.arange(i, i + 8)) for i in range(0, 1000, 8))
        assert sum(cut, collections.Counter()) == whole


@pytest.mark.parametrize(
    ("names", "rows", "most"),
    [
        (["a"] * 300, 128, 8 * 128 + 300 * 128 // 256),
        ([str(i) for i in range(300)], 128, MOST_FIRST_ROWS + 300 * 128 // 256),
        (["a"] * 3000, 1, 8 + 3000 // 256 + 1),
        ([str(i) for i in range(9000)], 2, 9000 * 2 // 256 + 1),
    ],
)
def test_however_many_files_there_are_few_pairs_are_looked_at(names, rows, most):
    looked_at = sum(
        sampled(names, order=order, rows=np.arange(rows))["source", "en"]
        for order in range(len(names))
    )
    assert most / 2 < looked_at <= most


def test_every_corpus_has_its_share_of_first_rows():
    small = share_first_rows(("large",) * 1000 + ("small", "held out"))
    assert small == [128] * 8 + [0] * 992 + [128] * 2
    many = share_first_rows(tuple(map(str, range(300))))
    assert many == [27] * 300
