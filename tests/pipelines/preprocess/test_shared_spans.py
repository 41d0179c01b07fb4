"""Placeholders for the spans that both sides of a pair share."""

import collections

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.text.normalization import TextNormalization
from tt.model.text.spans import PLACEHOLDERS, Protection
from tt.pipelines.preprocess.cleaning import normalize_pairs
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.placeholders import replace_shared_spans

SPANS = ["{a}", "{b}", "%s", "$HOME", ":smile:", "<b>", "</b>", "&amp;", "`x=1`", "5kg", "😀"]
WORDS = ["a", "dog", "no", "?"]


def normalize(pairs, *, protection=None, **changes):
    """Normalize pairs as preprocessing does."""
    sources, targets = zip(*pairs, strict=True)
    protection = protection or Protection()
    options = PreprocessOptions(
        output="",
        normalization=TextNormalization(**changes),
        protect=protection.protect,
        protect_regex=protection.protect_regex,
        decode_entities=False,  # Entities are spans here.
    )
    return normalize_pairs((pa.chunked_array([sources]), pa.chunked_array([targets])), options)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Hi {x}!", "Hallo {x}!", ("Hi ⟦1⟧!", "Hallo ⟦1⟧!", 1)),
        ("<b>A red</b> {x}", "{x}, <b>a</b>", ("⟦1⟧A red⟦2⟧ ⟦3⟧", "⟦3⟧, ⟦1⟧a⟦2⟧", 3)),
        ("Hi {x}!", "Hallo!", ("Hi {x}!", "Hallo!", 0)),
        ("Hi {x}!", "Hallo {y}!", ("Hi {x}!", "Hallo {y}!", 0)),
        ("%s and %s", "%s", ("⟦1⟧ and %s", "⟦1⟧", 1)),
        ("%s", "%s und %s", ("⟦1⟧", "⟦1⟧ und %s", 1)),
        ("%s to %s", "%s an %s", ("⟦1⟧ to ⟦2⟧", "⟦1⟧ an ⟦2⟧", 2)),
        ("12345 dogs", "123456 Hunde", ("12345 dogs", "123456 Hunde", 0)),
        ("Give ⟦7⟧ {x}", "Gib {x} ⟦7⟧", ("Give ⟦1⟧ ⟦2⟧", "Gib ⟦2⟧ ⟦1⟧", 2)),
    ],
)
def test_shared_spans_become_placeholders_in_the_order_of_the_source(source, target, expected):
    assert replace_shared_spans(source, target, protection=Protection()) == expected


def test_at_most_eight_placeholders():
    names = [f"{{x{i}}}" for i in range(10)]
    found = replace_shared_spans(" ".join(names), " ".join(names[::-1]), protection=Protection())
    assert found == (
        "⟦1⟧ ⟦2⟧ ⟦3⟧ ⟦4⟧ ⟦5⟧ ⟦6⟧ ⟦7⟧ ⟦8⟧ {x8} {x9}",
        "{x9} {x8} ⟦8⟧ ⟦7⟧ ⟦6⟧ ⟦5⟧ ⟦4⟧ ⟦3⟧ ⟦2⟧ ⟦1⟧",
        8,
    )


TEXT = st.lists(st.sampled_from(SPANS + WORDS), max_size=14).map(" ".join)


@given(source=TEXT, target=TEXT)
def test_each_placeholder_replaces_equal_spans_on_both_sides(source, target):
    found = replace_shared_spans(source, target, protection=Protection())
    counts = [
        collections.Counter(word for word in text.split(" ") if word in SPANS)
        for text in (source, target)
    ]
    assert found.placeholders == min((counts[0] & counts[1]).total(), len(PLACEHOLDERS))
    stand_for = []
    for before, after in ((source, found.source), (target, found.target)):
        words = list(zip(before.split(" "), after.split(" "), strict=True))
        stand_for.append({new: old for old, new in words if new in PLACEHOLDERS})
        assert all(old == new for old, new in words if new not in PLACEHOLDERS)
    assert stand_for[0] == stand_for[1]
    assert [*stand_for[0]] == [*PLACEHOLDERS[: found.placeholders]]


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_table_gives_the_same_result_as_single_pairs(pairs):
    """The quick search in Arrow, which skips most pairs, misses no span."""
    pairs = [(" ".join(source.split()), " ".join(target.split())) for source, target in pairs]
    found = normalize(pairs)
    expected = [replace_shared_spans(*pair, protection=Protection()) for pair in pairs]
    counts = [found.placeholders.get(row, 0) for row in range(len(pairs))]
    assert list(zip(found.sources, found.targets, counts, strict=True)) == expected
    assert found.originals == {row: pairs[row] for row in range(len(pairs)) if counts[row]}
    assert found.stray == []


def test_spans_are_compared_after_normalization_and_before_lower_casing():
    pairs = [("A  {Name}\u200b", "B\u00a0{Name}"), ("A {NAME}", "B {name}"), ("A", "B")]
    found = normalize(pairs, lowercase=True)
    assert found.sources == ["a ⟦1⟧", "a {name}", "a"]
    assert found.targets == ["b ⟦1⟧", "b {name}", "b"]
    assert found.cased == (["A ⟦1⟧", "A {NAME}", "A"], ["B ⟦1⟧", "B {name}", "B"])
    assert found.originals == {0: ("a {name}", "b {name}")}
    assert found.placeholders == {0: 1}


def test_spans_that_nfkc_creates_are_found():
    pair = ("it is ＄５００", "es kostet ＄５００")
    assert normalize([pair]).placeholders == {}
    assert normalize([pair], unicode_form="NFKC").sources == ["it is ⟦1⟧"]


@pytest.mark.parametrize("span", ["\u1fefcode\u1fef", "example\u200b.com"])
def test_spans_that_normalization_completes_are_found(span):
    """NFC changes U+1FEF to a backquote, and cleaning removes zero-width spaces."""
    assert normalize([(f"see {span} now", f"siehe {span} jetzt")]).sources == ["see ⟦1⟧ now"]


def test_texts_that_only_look_like_placeholders_are_found():
    pairs = [
        ("a ⟦1⟧", "b ⟦1⟧"),  # shared by both sides, so it is a span
        ("a ⟦1⟧", "b"),
        ("a", "b ⟦8⟧"),
        ("a ⟦1⟧ {x}", "b {x}"),
        ("a ⟦9⟧", "b"),  # not one of the placeholders
        ("a ⟦", "b ⟦"),
    ]
    found = normalize(pairs)
    assert found.stray == [1, 2, 3]
    assert found.placeholders == {0: 1, 3: 1}
    of_users = Protection(protect=False, protect_regex=("x+",))
    assert normalize(pairs, protection=of_users).stray == [0, 1, 2, 3]


def test_users_patterns_match_texts_without_typical_span_characters():
    both = Protection(protect_regex=("Rex|Lux",))
    own = Protection(protect=False, protect_regex=("Rex|Lux",))
    pairs = [("Lux has Rex {x}", "Rex hat {x} Lux"), ("a dog Rex", "ein Hund Rex")]
    assert normalize(pairs, protection=both).targets == ["⟦2⟧ hat ⟦3⟧ ⟦1⟧", "ein Hund ⟦1⟧"]
    assert normalize(pairs, protection=own).targets == ["⟦2⟧ hat {x} ⟦1⟧", "ein Hund ⟦1⟧"]
    off = normalize(pairs, protection=Protection(protect=False))
    assert (off.sources[0], off.placeholders) == ("Lux has Rex {x}", {})
