"""Reasons of the filters: exact cases, a comparison with a slow oracle, and real corpora."""

import dataclasses
import re
import tracemalloc
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import UserError
from tt.model.text.normalization import TextNormalization
from tt.pipelines.preprocess import characters
from tt.pipelines.preprocess import filters as pairs_filters
from tt.pipelines.preprocess.filters import Filters, text_reasons, token_reasons

OFF = Filters(
    max_characters=65535, max_length_ratio=0, min_letters=0, reject_identical=False,
    reject_mojibake=False,
)  # fmt: skip


def reasons_of(*pairs, **options):
    """Return the reasons for pairs of texts, with all filters off except the given ones."""
    sources, targets = [list(side) for side in zip(*pairs, strict=True)] or ([], [])
    return text_reasons(sources, targets, filters=dataclasses.replace(OFF, **options))


def lengths_of(*pairs, **options):
    source, target = np.array(pairs, np.int64).reshape(-1, 2).T
    return token_reasons(source, target, filters=dataclasses.replace(OFF, **options))


# Each reason has rows that are rejected. With its filter off, the same rows pass.


@pytest.mark.parametrize(
    ("pairs", "options", "expected"),
    [
        (
            [("abc", "ab"), ("ab", "abc"), ("abc", "abc")],
            {"min_characters": 3},
            {0: "too_few_characters", 1: "too_few_characters"},
        ),
        (
            [("abcd", "a"), ("a", "abcd"), ("abc", "abc"), ("𠀀𠀀𠀀", "😀😀😀")],
            {"max_characters": 3},
            {0: "too_many_characters", 1: "too_many_characters"},
        ),
        (
            [("Tom", "Tom"), ("Tom", "TOM"), ("Tom", "Tom."), ("7", "7")],
            {"reject_identical": True},
            {0: "identical", 3: "identical"},
        ),
        (
            # Letter shares on the left: 1/4, 1/5, ... Marks are letters; white space is ignored.
            [("a123", "b"), ("a1234", "b"), ("b", "a12 34"), ("12:30", "b"), ("e\u0301 12 34", "b"),
             ("a 1 2 3", "b"), (" ", "b"), ("😀𠀀", "b")],
            {"min_letters": 0.25},
            {1: "too_few_letters", 2: "too_few_letters", 3: "too_few_letters",
             6: "too_few_letters"},
        ),
        (
            # Shares in the script: 3/4, 3/5, no letters, 0, ... An accent has no script of its own.
            [("abcж", "b"), ("abcжж", "b"), ("123", "b"), ("ж", "b"), ("b", "ж"), ("ʼ", "b")],
            {"source_script": "Latin", "min_script": 0.75},
            {1: "wrong_script_source", 3: "wrong_script_source"},
        ),
        (
            [("b", "これはペンです。"), ("b", "日本語 iPad"), ("b", "한국어"), ("b", "pen")],
            {"target_script": "Japanese", "min_script": 0.4},
            {2: "wrong_script_target", 3: "wrong_script_target"},
        ),
        (
            [("GerÃ¤t", "device"), ("device", "donâ€™t"), ("é", "NÃO"), ("\ufffd", "b")],
            {"reject_mojibake": True},
            {0: "mojibake", 1: "mojibake", 3: "mojibake"},
        ),
    ],
)  # fmt: skip
def test_reasons_of_texts(pairs, options, expected):
    assert reasons_of(*pairs, **options) == expected
    assert reasons_of(*pairs) == {}


def test_empty_texts_are_always_rejected():
    pairs = [("", "b"), ("a", ""), ("", ""), ("a", "b")]
    assert reasons_of(*pairs) == {0: "empty_source", 1: "empty_target", 2: "empty_source"}


def test_first_reason_wins():
    """Each pair has its own fault and all faults that follow in the list."""
    filters = Filters(
        min_characters=2, max_characters=20, min_letters=0.5, source_script="Greek",
        target_script="Greek", min_script=1.0,
    )  # fmt: skip
    greek, long = "αβγδε", "1ж\ufffd" * 7
    pairs = {
        "empty_source": ("", ""),
        "empty_target": ("x", ""),
        "too_few_characters": ("1", long),
        "too_many_characters": (long, long),
        "identical": ("12ж\ufffd", "12ж\ufffd"),
        "too_few_letters": ("12ж\ufffd", "ж\ufffd"),
        "wrong_script_source": ("жж\ufffd", "жжж\ufffd"),
        "wrong_script_target": (greek + "\ufffd", "жж\ufffd"),
        "mojibake": (greek + "\ufffd", greek),
    }
    sources, targets = zip(*pairs.values(), strict=True)
    found = text_reasons(list(sources), list(targets), filters=filters)
    assert found == dict(enumerate(pairs))


@pytest.mark.parametrize("character", ["x", "😀"])
def test_text_of_megabytes_is_not_read(character):
    text = character * 5_000_000
    filters = Filters(source_script="Latin", target_script="Latin")
    text_reasons(["a"], ["b"], filters=filters)  # makes the tables before the measurement
    tracemalloc.start()
    try:
        found = text_reasons(["a", text, "b"], ["b", "b", text], filters=filters)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == {1: "too_many_characters", 2: "too_many_characters"}
    assert peak < 1e6  # bytes; a copy of the text would need 5e6


# Mojibake

WORDS = [
    "NÃO", "CHÂTEAU", "Â", "MANHÃ…", "IRMÃ”", "«CAFÉ»", "»SMÅ« »Ängste«", "PAŘÍŽ VÝŠKA", "ÇA VA",
    "ĐÂY LÀ Â", "SÃO 5€", "PÂTÉ™", "20°C à 30°C ±2°", "HÄ…", "é»…", "naïve “é”", "Ấn Độ",
    "Coração®", "1ª edição, 2º", "£20–£30", "½ ¼ ¾", "LÃ é boa", "»Ä«, »Ö«, »å«", "5 Å² × 3 Å",
    "STRAẞE § 3", "ÐÞ þð", "“À côté”", "Ñandú ¿Qué?", "ÅÄÖ", "¡Ñ!", "l’été – où…", "SØØRM",
    "Größe: ×10³", "Привет — «мир»", "中文“引号”……", "שלום", "مرحبا", "Ελλάδα",
]  # fmt: skip


def test_words_with_accents_are_not_mojibake():
    assert reasons_of(*[(word, "b") for word in WORDS], reject_mojibake=True) == {}


# Sentences in languages of the web, each with several characters outside of ASCII.
SENTENCES = [
    "Die Größe des Geräts ist für Käufer wichtig.",
    "A situação não é fácil, disse o irmão.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Съешь же ещё этих мягких булок.",
    "السلام عليكم ورحمة الله",
    "我们明天去北京吧。",
    "これはペンです。",
    "오늘은 날씨가 좋네요",
    "“Quoted” – and a dash… it’s 5 €™",
]


# In Latin-1, only control characters reveal these, and normalization has deleted them.
IN_WINDOWS_ONLY = ["It’s fine", "🙂 ok 🙂"]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_wrongly_decoded_sentences_are_mojibake(encoding):
    sentences = SENTENCES + IN_WINDOWS_ONLY * (encoding == "cp1252")
    # Windows-1252 leaves five bytes undefined. Browsers read them as the controls of Latin-1.
    read = [
        "".join(bytes([byte]).decode(encoding, "ignore") or chr(byte) for byte in text.encode())
        for text in sentences
    ]
    texts = TextNormalization()(read)
    assert reasons_of(*[("b", text) for text in sentences], reject_mojibake=True) == {}
    found = reasons_of(*[(text, "b") for text in texts], reject_mojibake=True)
    assert found == dict.fromkeys(range(len(texts)), "mojibake")


# Lengths in tokens


def test_limits_in_tokens():
    pairs = [(3, 3), (2, 3), (3, 2), (9, 9), (10, 9), (9, 10), (2, 10), (0, 3)]
    assert lengths_of(*pairs, min_tokens=3, max_tokens=9) == {
        1: "too_short", 2: "too_short", 4: "too_long", 5: "too_long", 6: "too_long",
        7: "too_short",
    }  # fmt: skip


@given(st.integers(1, 300), st.integers(100, 400))
def test_pair_exactly_at_the_ratio_passes(shorter, hundredths):
    longer = pairs_filters.LENGTH_SLACK + shorter * hundredths // 100
    at = [(shorter * 100, pairs_filters.LENGTH_SLACK + shorter * hundredths), (longer, shorter)]
    options = {"max_tokens": 10**6, "max_length_ratio": hundredths / 100}
    assert lengths_of(*at, **options) == {}
    assert lengths_of((at[0][0], at[0][1] + 1), **options) == {0: "length_ratio"}


@given(st.integers(1, 300), st.integers(1, 300))
def test_shares_exactly_at_the_limit_pass(letters, others):
    text = "a" * letters + "1" * others
    share = letters / (letters + others)
    assert reasons_of((text, "b"), min_letters=share) == {}
    assert reasons_of(("1" + text, "b"), min_letters=share) == {0: "too_few_letters"}
    text = "a" * letters + "ж" * others
    options = {"source_script": "Latin", "min_script": share}
    assert reasons_of((text, "b"), **options) == {}
    assert reasons_of(("ж" + text, "b"), **options) == {0: "wrong_script_source"}


# Comparison with a simple oracle

PYTHONS_MOJIBAKE = re.compile(
    characters._MOJIBAKE.replace(r"\x{fffd}", "\ufffd").replace("$", r"\Z")
)  # without the shortcut by suspicious characters
NO_SCRIPT = "ʼー〆"  # letters that Unicode counts as "Common"


def is_in_script(character, script):
    if character in NO_SCRIPT or unicodedata.name(character, "").startswith("COMBINING"):
        return True
    starts = {
        "Latin": ("LATIN", "FEMININE ORDINAL", "MASCULINE ORDINAL"),
        "Han": ("CJK",),
        "Cyrillic": ("CYRILLIC",),
    }
    return unicodedata.name(character, "").startswith(starts[script])


def slow_reason(source, target, filters):
    if not source:
        return "empty_source"
    if not target:
        return "empty_target"
    if min(len(source), len(target)) < filters.min_characters:
        return "too_few_characters"
    if max(len(source), len(target)) > filters.max_characters:
        return "too_many_characters"
    if filters.reject_identical and source == target:
        return "identical"
    letters = {}
    for text in (source, target):
        letters[text] = [c for c in text if unicodedata.category(c)[0] in "LM"]
        visible = [c for c in text if not c.isspace()]
        if filters.min_letters and len(letters[text]) < filters.min_letters * max(len(visible), 1):
            return "too_few_letters"
    for side, text, script in (
        ("source", source, filters.source_script),
        ("target", target, filters.target_script),
    ):
        inside = sum(is_in_script(c, script) for c in letters[text]) if script else 0
        if script and inside < filters.min_script * len(letters[text]):
            return f"wrong_script_{side}"
    if filters.reject_mojibake:
        for text in (source, target):
            if PYTHONS_MOJIBAKE.search(text):
                return "mojibake"
    return None


def slow_reasons(sources, targets, filters):
    reasons = {}
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if reason := slow_reason(source, target, filters):
            reasons[i] = reason
    return reasons


ALPHABET = "aZ éÃÂÅâ¤©»€™ªº жЯ 中𠀀 ʼー〆\u0301 19.,😀\ufffd\n"
some_text = st.text(st.sampled_from(ALPHABET), max_size=8)
limits = {
    "min_characters": st.integers(1, 3),
    "max_characters": st.integers(3, 7),
    "min_letters": st.sampled_from([0, 0.25, 0.5, 1]),
    "reject_identical": st.booleans(),
    "reject_mojibake": st.booleans(),
}
scripts = st.sampled_from(["", "Latin", "Han", "Cyrillic"])


@given(
    st.lists(st.tuples(some_text, some_text)),
    st.builds(
        Filters,
        **limits,
        source_script=scripts,
        target_script=scripts,
        min_script=st.sampled_from([0, 0.25, 0.5, 1]),
    ),
)
def test_reasons_match_the_oracle(pairs, filters):
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    found = text_reasons(sources, targets, filters=filters)
    assert found == slow_reasons(sources, targets, filters)
    for i, (source, target) in enumerate(pairs):  # The other pairs of a batch have no influence.
        alone = text_reasons([source], [target], filters=filters)
        assert alone == ({0: found[i]} if i in found else {})


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"min_characters": 0},
            r"1 <= `min_characters` <= `max_characters` <= 65535.*: 0 and 5000",
        ),
        ({"min_characters": 9, "max_characters": 8}, r"Received: 9 and 8"),
        ({"min_tokens": 0}, r"`min_tokens` <= `max_tokens`\. Received: 0 and 256"),
        ({"min_tokens": 5, "max_tokens": 4}, r"`max_tokens`\. Received: 5 and 4"),
        ({"max_length_ratio": 0.5}, r"`max_length_ratio` must be at least 1, or 0.*Received: 0.5"),
        ({"max_length_ratio": float("nan")}, r"Received: nan"),
        ({"min_letters": 1.1}, r"`min_letters` must be 0 to 1\. Received: 1.1"),
        ({"min_script": -0.1}, r"`min_script` must be 0 to 1\. Received: -0.1"),
        ({"source_script": "latin"}, r"\"Latin\", \"Cyrillic\".*Received: 'latin'"),
    ],
)
def test_bad_options_are_errors(options, message):
    with pytest.raises(UserError, match=message):
        Filters(**options)
