"""Placeholders for the tokens that both sides of a pair share."""

import re
import time
from collections import Counter

import pytest
from corpora import (
    ONE_THREAD,
    TWO_THREADS,
    digest,
    options,
    preprocess,
    rejected,
    texts,
    write_pairs,
)
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import UserError
from tt.model.text.spans import PLACEHOLDERS, Protection
from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.held_out import hash_each
from tt.pipelines.preprocess.placeholders import replace_shared_spans, replace_shared_tokens
from tt.pipelines.preprocess.plan import plan_preprocess

ALL = 2**64 - 1  # a variation that replaces each of up to 21 tokens


def replace(source, target, *, variation=ALL):
    return replace_shared_tokens(source, target, variation=variation, protection=Protection())


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("I saw 3 dogs.", "Ich sah 3 Hunde.", ("I saw ⟦1⟧ dogs.", "Ich sah ⟦1⟧ Hunde.")),
        ("At 2:30, 4.5 miles", "4.5 Meilen um 2:30", ("At ⟦1⟧, ⟦2⟧ miles", "⟦2⟧ Meilen um ⟦1⟧")),
        ("3 dogs", "5 Hunde", None),
        ("1,000 dogs", "1.000 Hunde", None),
        ("Tom is here.", "Tom ist hier.", ("⟦1⟧ is here.", "⟦1⟧ ist hier.")),
        ("Is Tom here?", "Ist Tom hier?", ("Is ⟦1⟧ here?", "Ist ⟦1⟧ hier?")),
        ("Tom, come!", "Komm, Tom!", ("⟦1⟧, come!", "Komm, ⟦1⟧!")),
        ("Tom's dog", "Toms Hund", None),
        ("That is Tom's.", "Das ist Tom's.", ("That is ⟦1⟧.", "Das ist ⟦1⟧.")),
        ("Cafe\u0301s", "Cafe\u0301", None),
        ("an arm", "ein arm", None),
        ("No, not I.", "No, I no.", None),  # short words, which both languages may have
        ("All is well", "Alles ist gut", None),
        ("the NASA and NATO", "NATO und die NASA", ("the ⟦1⟧ and ⟦2⟧", "⟦2⟧ und die ⟦1⟧")),
        ("set my_name or __", "setze my_name oder __", None),  # a span
        ("Tom likes Tom.", "Tom mag Tom.", None),
        ("Tom likes Tom.", "Tom mag sich.", None),
        ("Tom Jackson is 5", "5 ist Tom Jackson", ("⟦1⟧ is ⟦2⟧", "⟦2⟧ ist ⟦1⟧")),
        ("Ask Tom Jackson", "Frag Jackson, Tom", ("Ask ⟦1⟧ ⟦2⟧", "Frag ⟦2⟧, ⟦1⟧")),
        ("Tom, Mary, Bob", "Tom Mary, Bob", ("⟦1⟧, ⟦2⟧, ⟦3⟧", "⟦1⟧ ⟦2⟧, ⟦3⟧")),
        ("在 iPhone 上用email吧", "Use email on iPhone", ("在 ⟦1⟧ 上用⟦2⟧吧", "Use ⟦2⟧ on ⟦1⟧")),
        ("2015年有3个人", "3 people in 2015", ("⟦1⟧年有⟦2⟧个人", "⟦2⟧ people in ⟦1⟧")),
        ("Tom은 학생", "Tom is a student", ("⟦1⟧은 학생", "⟦1⟧ is a student")),
        ("Он любит jazz.", "He loves jazz.", ("Он любит ⟦1⟧.", "He loves ⟦1⟧.")),
        ("Это iPhone'ы.", "It is an iPhone.", None),
        ("5-й дом", "house 5", None),
        ("Это Иван", "То Иван", ("Это ⟦1⟧", "То ⟦1⟧")),
        ("", "", None),
    ],
)  # fmt: skip
def test_shared_tokens_become_placeholders(source, target, expected):
    found = replace(source, target)
    assert found[:2] == (expected or (source, target))
    assert found.placeholders == found.source.count("⟦")


@pytest.mark.parametrize("text", ["<b>Tom</b>", "Tom{x}", "5 km", "5%", "`Tom`", "⟦1⟧"])
def test_tokens_that_overlap_or_touch_spans_are_kept(text):
    """A translation keeps these tokens as parts of the spans."""
    for source, target in ((f"a {text}", f"b {text}"), (f"a {text}", f"b {text.strip('<b>/`')} x")):
        found = replace(source, target)
        assert found[:2] == (source, target)


def test_time_is_linear_in_the_length_of_a_pair():
    def seconds(count):
        text = " ".join(f"Name{i} {{a{i}}}" for i in range(count))
        start = time.process_time()
        assert replace(text, text).placeholders == len(PLACEHOLDERS)
        return time.process_time() - start

    # Linear time has a ratio of 16, and quadratic time of 256.
    assert min(seconds(8000) for _ in range(2)) < 64 * min(seconds(500) for _ in range(5))


def test_variation_chooses_the_tokens():
    found = {bits: replace("UN, EU", "EU; UN", variation=bits)[:2] for bits in range(64)}
    assert Counter(found.values()) == {
        ("⟦1⟧, ⟦2⟧", "⟦2⟧; ⟦1⟧"): 49 + 1,  # also if no token is chosen
        ("⟦1⟧, EU", "EU; ⟦1⟧"): 7,
        ("UN, ⟦1⟧", "⟦1⟧; UN"): 7,
    }


WORDS = [
    "Tom",
    "Tom's",
    "Bob",
    "3",
    "2:30",
    "NATO",
    "a",
    "dog",
    "{x}",
    "%s",
    "5 km",
    "在",
    "mail",
    "Ω",
]
TEXT = st.lists(st.sampled_from(WORDS), max_size=14).flatmap(
    lambda words: st.sampled_from([" ", ", ", ""]).map(lambda gap: gap.join(words))
)


@given(source=TEXT, target=TEXT, variation=st.integers(0, ALL))
def test_texts_in_place_of_placeholders_restore_the_pair(source, target, variation):
    """Each placeholder occurs once per side, and stands for the same text on both sides."""
    spans = replace_shared_spans(source, target, protection=Protection())
    found = replace(*spans[:2], variation=variation)
    assert found.placeholders >= spans.placeholders
    numbers = [*PLACEHOLDERS[: found.placeholders]]
    assert re.findall("⟦.⟧", found.source) == numbers
    assert sorted(re.findall("⟦.⟧", found.target)) == numbers
    # The pattern has a group in the place of each placeholder of the source, and a reference to the
    # same group in the place of the same placeholder of the target.
    pattern = re.escape(f"{found.source}\n{found.target}")
    for number, placeholder in enumerate(numbers, 1):
        escaped = re.escape(placeholder)
        pattern = pattern.replace(escaped, "(.+)", 1).replace(escaped, rf"(?:\{number})")
    assert re.fullmatch(pattern, f"{source}\n{target}")


def corpus_pairs(count):
    """Return pairs of which one in five has two tokens that both sides share."""
    names = ["Tom", "Mary", "Bob", "Anna"]
    letters = "abcdefghij"
    pairs = []
    for i in range(count):
        word = "".join(letters[int(digit)] for digit in str(i))
        own = f" {names[i % 4]} likes {i % 90}" if i % 5 == 0 else ""
        other = f"{i % 90} mag {names[i % 4]} " if own else ""
        pairs.append((f"the {word}{own}", f"{other}die {word[::-1]}x"))
    return pairs


def run(folder, pairs, *, beam=ONE_THREAD, **changes):
    folder.mkdir(exist_ok=True)
    chosen = options(folder / "out", **changes)
    source = write_pairs(folder, pairs)
    return preprocess(sources=[source], options=chosen, beam_arguments=beam)


def test_share_of_the_pairs_is_chosen_by_hash(tmp_path):
    pairs = corpus_pairs(10_000)
    hashes = hash_each([source for source, _ in pairs])
    chosen = {pair for pair, own in zip(pairs, hashes, strict=True) if own >= 0.9 * 2**64}
    eligible = {pair for pair in chosen if "likes" in pair[0]}
    assert 150 < len(eligible) < 250  # 200 are expected, with a standard deviation of 13
    manifest = run(tmp_path, pairs, placeholder_share=0.1, deduplicate="none")
    train = manifest.splits["train"]
    assert train.placeholder_pairs[0] == len(eligible)
    assert 0.7 * len(eligible) < train.placeholder_pairs[1] < 0.9 * len(eligible)
    assert manifest.options["placeholder_share"] == 0.1
    assert manifest.rejected == {}
    found = texts(tmp_path / "out", "train") + texts(tmp_path / "out", "validation")
    unchanged = [pair for pair in found if "⟦" not in pair[0]]
    assert sorted(unchanged) == sorted(pair for pair in pairs if pair not in eligible)


def test_small_corpora_have_enough_placeholders_whatever_the_workers(tmp_path, monkeypatch):
    pairs = corpus_pairs(3_000)
    manifests = [run(tmp_path / "one", pairs, placeholder_share=None)]
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 100)
    monkeypatch.setattr(preprocess_sizes, "SLICE_PAIRS", 50)
    manifests.append(run(tmp_path / "two", pairs, placeholder_share=None, beam=TWO_THREADS))
    train, validation = (manifests[0].splits[name] for name in ("train", "validation"))
    assert train.placeholder_pairs[0] >= 200
    assert validation.placeholder_pairs == []
    one, two = (digest(tmp_path / name / "out") for name in ("one", "two"))
    assert one == two


def test_validation_pairs_keep_their_tokens(tmp_path):
    pairs = corpus_pairs(2_000)
    split = run(tmp_path / "split", pairs, placeholder_share=0.5, validation_fraction=0.5)
    assert split.splits["validation"].placeholder_pairs == []
    assert split.splits["train"].placeholder_pairs[0] > 100
    held = write_pairs(tmp_path, pairs[:200], name="validation")
    chosen = options(tmp_path / "held", placeholder_share=0.5)
    source = write_pairs(tmp_path, pairs)
    manifest = preprocess(sources=[source], validation_sources=[held], options=chosen)
    assert sorted(texts(tmp_path / "held", "validation")) == sorted(pairs[:200])
    assert manifest.rejected == {"held_out_pair": 200}
    assert {row["source"] for row in rejected(tmp_path / "held")} == {s for s, _ in pairs[:200]}


def test_pairs_with_spans_and_tokens_are_held_out_without_their_tokens(tmp_path):
    """`tt` removes a training pair that differs from a held-out pair only in a span."""
    training = [
        (f"Tom pays {10_000 + i} for x{i}", f"{i}x: {10_000 + i} von Tom") for i in range(80)
    ]
    validation = [(a.replace(" 1", " 2"), b.replace(" 1", " 2")) for a, b in training[:40]]
    source = write_pairs(tmp_path, training)
    held = write_pairs(tmp_path, validation, name="validation")
    for share in (0, 0.5):
        chosen = options(tmp_path / str(share), placeholder_share=share)
        manifest = preprocess(sources=[source], validation_sources=[held], options=chosen)
        assert manifest.rejected == {"held_out_pair": 40}
    assert manifest.splits["train"].placeholder_pairs[1] > 5


def test_tokens_are_compared_before_lower_casing_and_after_the_filters(tmp_path):
    pairs = [(f"{a}{b} Tom", f"Tom x{b}{a}") for a in "abcdefghij" for b in "klmnopqrst"]
    pairs += [(f"Tom {i}!", f"Tom {i}?") for i in range(10, 30)]
    chosen = options(
        tmp_path / "out", placeholder_share=0.5, vocabulary_type="char", deduplicate="none",
        filters={"min_letters": 0.3},
    )  # fmt: skip
    lower = chosen.normalization.__class__(lowercase=True)
    chosen = chosen.__class__(**{**vars(chosen), "normalization": lower})
    manifest = preprocess(sources=[write_pairs(tmp_path, pairs)], options=chosen)
    assert manifest.rejected == {}
    found = texts(tmp_path / "out", "train")
    assert (
        sum("⟦1⟧" in source for source, _ in found) == manifest.splits["train"].placeholder_pairs[0]
    )
    assert not any("Tom" in source for source, _ in found)
    assert any(source.startswith("⟦1⟧!") for source, _ in found)


def test_share_depends_on_the_size_of_the_corpus(tmp_path, monkeypatch):
    source = write_pairs(tmp_path, corpus_pairs(10))

    def share(text_bytes, **changes):
        monkeypatch.setattr(type(source), "text_bytes", lambda source: text_bytes)
        return plan_preprocess(sources=[source], options=options("o", **changes)).placeholder_share

    default = {"placeholder_share": None}
    assert [share(n, **default) for n in (0, 10**6, 10**7, 10**8)] == [0.5, 0.5, 0.25, 0.1]
    assert [share(10**6, placeholder_share=each) for each in (0, 0.2)] == [0, 0.2]
    assert share(10**6, **default, protect=False) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"placeholder_share": 0.6}, "`placeholder_share` must be 0 to 0.5. Received: 0.6"),
        ({"placeholder_share": 0.1, "protect": False}, "has no effect without `protect`"),
    ],
)
def test_bad_share_is_an_error(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        options(tmp_path, **changes)
