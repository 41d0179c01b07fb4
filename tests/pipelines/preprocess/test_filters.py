"""Reasons of the filters: exact cases, a comparison with a slow oracle, and real corpora."""

import collections
import dataclasses
import gzip
import io
import random
import re
import tracemalloc
import unicodedata

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import UserError
from tt.model.text.languages import read_language
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


def test_filters_accept_empty_lists():
    assert text_reasons([], [], filters=Filters(source_script="Latin")) == {}
    assert lengths_of(max_length_ratio=1.5) == {}


def test_empty_texts_do_not_get_the_counts_of_their_neighbors():
    """For an empty segment, numpy's reduceat returns the first element of the next segment."""
    filters = Filters(source_script="Latin", target_script="Greek", reject_identical=False)
    sources = ["", "abc", "", "", "жжж", "abc", "abc", ""]
    targets = ["αβγ", "", "αβγ", "", "αβγ", "abc", "αβγ", ""]
    assert text_reasons(sources, targets, filters=filters) == {
        0: "empty_source",
        1: "empty_target",
        2: "empty_source",
        3: "empty_source",
        4: "wrong_script_source",
        5: "wrong_script_target",
        7: "empty_source",
    }


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


def test_astral_characters():
    filters = Filters(source_script="Han", target_script="Latin", min_script=1.0)
    assert text_reasons(["𠀀𠀁𠀂", "😀中"], ["abc", "a😀"], filters=filters) == {}


@pytest.mark.parametrize("character", ["x", "é", "ж", "😀"])
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


def test_counters_do_not_overflow_for_the_longest_text():
    text = "Ã" * 65535
    options = {"source_script": "Greek", "min_letters": 1.0, "reject_mojibake": True}
    assert reasons_of((text, "b"), ("α", "β"), **options) == {0: "wrong_script_source"}
    assert reasons_of(("1" * 65535, "b"), ("α", "β"), **options) == {0: "too_few_letters"}


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
    "Il a été élu à l’unanimité, c’est étonnant.",
    "A situação não é fácil, disse o irmão.",
    "El niño comió una piña mañana, ¿verdad?",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Zażółć gęślą jaźń, proszę się nie śmiać.",
    "Smørrebrød på en lørdag med rødgrød.",
    "Şu köşe yaz köşesi, günaydın.",
    "Съешь же ещё этих мягких булок.",
    "Η Ελλάδα είναι μια όμορφη χώρα.",
    "السلام عليكم ورحمة الله",
    "שלום לכולם, מה שלומכם",
    "यह एक अच्छा दिन है",
    "我们明天去北京吧。",
    "これはペンです。",
    "오늘은 날씨가 좋네요",
    "“Quoted” – and a dash… it’s 5 €™",
]


# In Latin-1, only control characters reveal these, and normalization has deleted them.
IN_WINDOWS_ONLY = ["It’s fine", "🙂 ok 🙂"]


@pytest.mark.parametrize(
    ("sentence", "encoding"),
    [(sentence, "cp1252") for sentence in SENTENCES + IN_WINDOWS_ONLY]
    + [(sentence, "latin-1") for sentence in SENTENCES],
)
def test_wrongly_decoded_sentences_are_mojibake(sentence, encoding):
    # Windows-1252 leaves five bytes undefined. Browsers read them as the controls of Latin-1.
    read = [
        bytes([byte]).decode(encoding, "ignore") or chr(byte) for byte in sentence.encode("utf-8")
    ]
    [text] = TextNormalization()(["".join(read)])
    assert reasons_of(("b", sentence), (text, "b"), reject_mojibake=True) == {1: "mojibake"}


# Lengths in tokens


def test_limits_in_tokens():
    pairs = [(3, 3), (2, 3), (3, 2), (9, 9), (10, 9), (9, 10), (2, 10), (0, 3)]
    assert lengths_of(*pairs, min_tokens=3, max_tokens=9) == {
        1: "too_short", 2: "too_short", 4: "too_long", 5: "too_long", 6: "too_long",
        7: "too_short",
    }  # fmt: skip


def test_length_ratio_ignores_the_slack():
    slack = pairs_filters.LENGTH_SLACK
    pairs = [(1, slack + 2), (1, slack + 3), (100, slack + 200), (slack + 201, 100), (2, 2)]
    assert lengths_of(*pairs, max_tokens=999, max_length_ratio=2.0) == {
        1: "length_ratio",
        3: "length_ratio",
    }
    assert lengths_of(*pairs, max_tokens=999) == {}


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
# All characters, of which the oracle does not know the scripts.
any_text = st.text(st.characters(exclude_categories=["Cn", "Cs"]), max_size=8)
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


@given(st.lists(st.tuples(any_text, any_text)), st.builds(Filters, **limits))
def test_reasons_for_any_characters_match_the_oracle(pairs, filters):
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    found = text_reasons(sources, targets, filters=filters)
    assert found == slow_reasons(sources, targets, filters)


def test_batch_larger_than_the_internal_batches():
    generator = random.Random(1)
    texts = ["".join(generator.choices(ALPHABET, k=generator.randrange(9))) for _ in range(6000)]
    sources, targets = texts[:3000], texts[3000:]
    filters = Filters(source_script="Latin", target_script="Cyrillic", min_letters=0.5)
    found = text_reasons(sources, targets, filters=filters)
    assert found == slow_reasons(sources, targets, filters)
    assert len(set(found.values())) == 7


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"min_characters": 0},
            r"1 <= `min_characters` <= `max_characters` <= 65535.*: 0 and 5000",
        ),
        ({"max_characters": 65536}, r"<= 65535\. Received: 1 and 65536"),
        ({"min_characters": 9, "max_characters": 8}, r"Received: 9 and 8"),
        ({"min_tokens": 0}, r"`min_tokens` <= `max_tokens`\. Received: 0 and 256"),
        ({"min_tokens": 5, "max_tokens": 4}, r"`max_tokens`\. Received: 5 and 4"),
        ({"max_length_ratio": 0.5}, r"`max_length_ratio` must be at least 1, or 0.*Received: 0.5"),
        ({"max_length_ratio": -1.0}, r"Received: -1.0"),
        ({"max_length_ratio": float("nan")}, r"Received: nan"),
        ({"max_length_ratio": float("inf")}, r"Received: inf"),
        ({"min_letters": 1.1}, r"`min_letters` must be 0 to 1\. Received: 1.1"),
        ({"min_letters": float("nan")}, r"Received: nan"),
        ({"min_script": -0.1}, r"`min_script` must be 0 to 1\. Received: -0.1"),
        ({"source_script": "latin"}, r"\"Latin\", \"Cyrillic\".*Received: 'latin'"),
        ({"target_script": "Elvish"}, r"Received: 'Elvish'"),
    ],
)
def test_bad_options_are_errors(options, message):
    with pytest.raises(UserError, match=message):
        Filters(**options)


def test_extreme_valid_options():
    Filters(min_characters=1, max_characters=65535, min_letters=1, min_script=1, max_length_ratio=1)
    Filters(min_tokens=7, max_tokens=7, min_letters=0, min_script=0, max_length_ratio=0)


# Real corpora


def _script_of(code):
    return read_language(code, name="code").script


def read_labelled(folder, language):
    path = folder / f"messy/web_en_{language}.labelled.tsv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    sources, targets, labels = (list(column) for column in zip(*rows, strict=True))
    normalize = TextNormalization()
    return normalize(sources), normalize(targets), labels


def train_vocabulary(texts):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=4000, num_threads=2,
        input_sentence_size=1500, num_sub_iterations=1, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def test_defaults_reject_few_valid_pairs(shared_data):
    """In ParaCrawl samples, at most 3 % of valid (V) pairs and free translations (F) are lost."""
    totals, rejected, by_reason = (collections.Counter() for _ in range(3))
    languages = ("de", "fr", "pt", "ga", "mt", "el")
    for language in languages:
        sources, targets, labels = read_labelled(shared_data, language)
        vocabulary = train_vocabulary(sources + targets)
        lengths = [
            np.array([len(ids) for ids in vocabulary.encode(texts, num_threads=2)])
            for texts in (sources, targets)
        ]
        filters = Filters(source_script=_script_of("en"), target_script=_script_of(language))
        reasons = token_reasons(*lengths, filters=filters)
        reasons |= text_reasons(sources, targets, filters=filters)
        totals.update((language, label) for label in labels)
        rejected.update((language, labels[i]) for i in reasons)
        by_reason.update((labels[i], reason) for i, reason in reasons.items())
    for key, total in sorted(totals.items()):
        print(*key, f"{rejected[key]} of {total}, {rejected[key] / total:.1%}")
    for key, count in sorted(by_reason.items()):
        print(*key, count)

    def share(labels):
        keys = [key for key in totals if key[1] in labels]
        return sum(rejected[key] for key in keys) / sum(totals[key] for key in keys)

    assert share("VF") < 0.01
    assert share("L") > 0.2
    for language in languages:
        valid = [(language, label) for label in "VF"]
        assert sum(rejected[key] for key in valid) <= 0.03 * sum(totals[key] for key in valid)


@pytest.mark.parametrize(
    ("source", "target", "most"),
    [
        ("multi30k/train.de", "multi30k/train.en", 0.0001),
        ("multi30k/train.fr", "multi30k/train.en", 0.0001),
        ("tatoeba_zh_en/train.zh", "tatoeba_zh_en/train.en", 0),
        ("ted_ru_en/dev.ru", "ted_ru_en/dev.en", 0.001),
        ("news_zh_en/train.zh", "news_zh_en/train.en", 0.006),  # 83 of 15,264 contain U+FFFD
    ],
)
def test_defaults_keep_clean_corpora(shared_data, source, target, most):
    normalize = TextNormalization()
    sides = [
        normalize(gzip.decompress((shared_data / f"{name}.gz").read_bytes()).decode().splitlines())
        for name in (source, target)
    ]
    filters = Filters(source_script=_script_of(source.split(".")[1]), target_script="Latin")
    reasons = text_reasons(*sides, filters=filters)
    assert len(reasons) <= most * len(sides[0]), collections.Counter(reasons.values())
