"""The corpora of a dataset, compared with those asked for now."""

from __future__ import annotations

import pytest

from model.dataset.corpora import compare_corpora

CORPUS = {"name": "a.tsv", "files": [], "columns": [0, 1], "is_held_out": False}
ENCODED = CORPUS | {"encoding": "latin-1"}
TFDS = CORPUS | {"dataset": "ted", "split": "train", "directory": "d"}


@pytest.mark.parametrize(
    ("then", "now", "became"),
    [
        (CORPUS, CORPUS | {"read": 5}, []),
        (CORPUS | {"read": 5, "languages": {}}, CORPUS, []),
        (CORPUS, ENCODED, ["has another encoding"]),
        (ENCODED, CORPUS, ["has another encoding"]),
        (CORPUS | {"text": "x"}, CORPUS, ["has changed"]),
        (CORPUS, ENCODED | {"columns": [1, 0]}, ["has other columns and another encoding"]),
        (
            CORPUS | {"kind": "tsv"},
            ENCODED | {"kind": "jsonl", "columns": ["en", "de"], "weight": 0.5},
            ["has another kind, other columns, another encoding and the weight 0.5 instead of 1"],
        ),
        (
            CORPUS | {"text": "x", "weight": 0.5},
            CORPUS | {"text": "y"},
            ["has changed and has the weight 1 instead of 0.5"],
        ),
        (
            TFDS | {"files": [{"path": "d/train"}]},
            TFDS | {"files": [{"path": "d/test"}], "split": "test"},
            ["has another split"],
        ),
    ],
)
def test_all_that_differs_is_told_whichever_side_has_it(then, now, became):
    assert compare_corpora([then], [now]) == [f"the corpus a.tsv {each}" for each in became]


def test_what_is_held_out_counts_only_where_all_say_so():
    held_out = CORPUS | {"is_held_out": True}
    silent = {key: CORPUS[key] for key in CORPUS if key != "is_held_out"}
    assert compare_corpora([CORPUS], [held_out]) == [
        "the corpus a.tsv is gone", "the held-out corpus a.tsv is new"
    ]  # fmt: skip
    assert compare_corpora([silent], [held_out]) == []
    assert compare_corpora([held_out], [silent]) == []
