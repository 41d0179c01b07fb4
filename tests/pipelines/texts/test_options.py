"""Options for texts, and defaults that follow from the model's training."""

import pytest

from tt.model.errors import UserError
from tt.model.formats.model_card import TrainingData
from tt.model.text.spans import Protection
from tt.pipelines.texts.options import TextOptions


@pytest.mark.parametrize(
    ("given", "own", "chosen"),
    [("", "de", "de"), ("en", "de", "en"), ("", "", ""), ("", "German", ""), ("de", "", "de")],
)
def test_default_source_language_is_the_language_of_the_model(given, own, chosen):
    options = TextOptions(source_language=given, max_source_tokens=9)
    found = options.for_model(TrainingData(source_language=own))
    assert found == TextOptions(source_language=chosen, max_source_tokens=9, placeholders=0)


@pytest.mark.parametrize(
    ("given", "pairs", "expected"),
    [
        (None, [], 0),
        (None, [199], 0),
        (None, [5000, 200, 199, 0], 2),
        (0, [5000, 200], 0),
        (8, [], 8),
    ],
)
def test_default_number_of_placeholders_depends_on_the_training_pairs(given, pairs, expected):
    options = TextOptions(placeholders=given)
    assert options.for_model(TrainingData(placeholder_pairs=pairs)).placeholders == expected


def test_patterns_of_the_dataset_are_added_to_the_protection():
    data = TrainingData(protect_regex=["SKU-[0-9]+", "x+"])
    for given, patterns in (((), ("SKU-[0-9]+", "x+")), (("x+", "y+"), ("SKU-[0-9]+", "x+", "y+"))):
        options = TextOptions(protection=Protection(protect_regex=given))
        assert options.for_model(data).protection == Protection(protect_regex=patterns)
        off = Protection(protect=False, protect_regex=given)
        assert TextOptions(protection=off).for_model(data).protection == off
    bad = TrainingData(protect_regex=["("])
    with pytest.raises(UserError, match=r"of `protect_regex` is not a regular expression"):
        TextOptions().for_model(bad)
