"""Protected spans: which parts of a text the search finds, and how fast."""

import re
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import regex

from tt.model.errors import UserError
from tt.model.text.spans import (
    KINDS,
    MAYBE_SPAN,
    PLACEHOLDERS,
    SYMBOL,
    Protection,
    Span,
    unite,
)

# Texts, and the spans in them.
_TEXTS = {
    "Visit https://en.wikipedia.org/wiki/Foo_(bar). Or www.x.de/a?b=1, ok?": [
        "https://en.wikipedia.org/wiki/Foo_(bar)",
        "www.x.de/a?b=1",
    ],
    "(See http://a.b/c?d=e&f=%20g!)": ["http://a.b/c?d=e&f=%20g"],
    "访问https://example.com查看，5km以内": ["https://example.com", "5km"],
    "See node.js, example.com and bit.ly/x1.": ["node.js", "example.com", "bit.ly/x1"],
    "Write to a.b+c@d.co.uk.": ["a.b+c@d.co.uk"],
    "{name} has {{count}} of ${x} in $HOME": ["{name}", "{{count}}", "${x}", "$HOME"],
    "%s, %d, %1$s, %5.2f, %(n)s, %1, %PATH% and :smile:": [
        "%s", "%d", "%1$s", "%5.2f", "%(n)s", "%1", "%PATH%", ":smile:",
    ],
    '<a href="x.html">Foo</a> &amp; &#39;bar&#x27;<br/>': [
        '<a href="x.html">', "</a>", "&amp;", "&#39;", "&#x27;<br/>",
    ],
    "Type `ls -l. Now`, ``a `b` c`` or ```\nx\n```": ["`ls -l. Now`", "``a `b` c``", "```\nx\n```"],
    "Good 😀👍🏽, 👨‍👩‍👧 and 🇩🇪 ❤️": ["😀👍🏽", "👨‍👩‍👧", "🇩🇪", "❤️"],
    "$5.20, 20 €, USD 10, 5 km/h, -3 °C, 50 %, 15-20 kg": [
        "$5.20", "20 €", "USD 10", "5 km/h", "-3 °C", "50 %", "15-20 kg",
    ],
    "12345, 1,234,567, 2024-11-22, 12\u202f345 and 192.168.0.1": [
        "12345", "1,234,567", "2024-11-22", "12\u202f345", "192.168.0.1",
    ],
    "Call +34 600 123 456, (030) 123 45 67 or 555-123-4567.": [
        "+34 600 123 456", "(030) 123 45 67", "555-123-4567",
    ],
    "12345 $VAR, 5 $5.20 and 7 ${x}": ["12345", "$VAR", "$5.20", "${x}"],
    "In 2024-11-22 12,345 people came.": ["2024-11-22", "12,345"],
    "%s%s%d $a$b": ["%s%s%d", "$a$b"],
    '<input disabled> <b >x</b> <p a="b c" d>': [
        "<input disabled>", "<b >", "</b>", '<p a="b c" d>',
    ],
    "a 5 l, of 10 W. and 3l of 2 ha": ["5 l", "10 W", "3l", "2 ha"],
    "共12345元，约5公斤": ["12345"],
    "El 3 de mayo de 2031 %(name)s dormirá": ["%(name)s"],
    "A literal ⟦1⟧ is also one.": ["⟦1⟧"],
    "Items LM-204, AB12345 and OR-2024-118/B": ["LM-204", "AB12345", "OR-2024-118/B"],
}  # fmt: skip

_NONE = (
    "In 2010, 2011 and 2012 we met 10 people.",
    "12345xy, 10000x, USB-C, T-shirts and AC/DC",
    "if a <b then c> d",
    "1 mi amigo, 3 ha ha, 10 W street, 5 l of it",
    "100 people; the 1990s; 19:30; page 3 of 5; 3.14; 1/2",
    "I <3 you, 5 < 6 > 4, AT&T; R&D",
    "50%discount is not a format, 20 minutes later",
    "He said: why? The end.Then it was over e.g. here.",
    "",
)


def ascii_only(character):
    """Stand in for a vocabulary without symbols beyond ASCII."""
    return character.isascii() and character not in "|</&"


EXAMPLES = [(kind, example) for kind in KINDS for example in kind.examples]


@pytest.mark.parametrize(("kind", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_examples_of_each_kind_are_whole_spans(kind, example):
    knows = ascii_only if kind.category == SYMBOL else None
    for text in (example, f"See {example} now.", f"一 {example} 二", f"Она {example}"):
        [span] = Protection().find(text, knows)
        assert text[span.start : span.end] == span.replacement == example
    assert Protection(protect=False).find(example, ascii_only) == []
    assert not Protection().find(f"See {example} now.") or kind.category != SYMBOL


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.others], ids=lambda kind: kind.name
)
def test_texts_similar_to_spans_are_no_spans(kind):
    for text in kind.others:
        assert Protection().find(text, ascii_only if kind.category == SYMBOL else None) == []


def test_each_kind_finds_its_examples_without_other_kinds():
    for kind, example in EXAMPLES:
        pattern = regex.compile(kind.pattern, regex.DOTALL | regex.VERSION1)
        assert any(found[0] in example for found in pattern.finditer(f"See {example} now."))


def test_only_unknown_symbols_are_spans_and_no_letters():
    def find(text, known):
        found = Protection().find(text, lambda c: c in known)
        return [(span.replacement, span.is_markup) for span in found]

    assert find("Door ★★★☆☆", "Door") == [("★★★☆☆", True)]
    assert find("Door ★★★☆☆", "★Door") == [("☆☆", True)]
    assert find("Door ★★★☆☆", "★☆") == [], "letters that the vocabulary lacks are no symbols"
    assert find("1½ x² ① 5 ≥ 3", "x5315") == [
        ("1½", False),
        ("x²", False),
        ("①", False),
        ("≥ 3", False),
    ]
    assert find("犬ř “so” – no…", "") == [], "translations have other punctuation"
    assert find("a \ue000 b \U000f0000 c", "abc") == [("\ue000", True), ("\U000f0000", True)]
    assert find("{x}★", "") == [("{x}★", False)]


@pytest.mark.parametrize("text", _TEXTS)
def test_spans_are_found(text: str) -> None:
    found = Protection().find(text)
    assert [span.replacement for span in found if text[span.start : span.end]] == _TEXTS[text]
    assert all(text[span.start : span.end] == span.replacement for span in found)


@pytest.mark.parametrize("text", [text for text in _NONE if "50%" not in text])
def test_words_and_short_numbers_are_not_protected(text: str) -> None:
    assert Protection().find(text) == []


def test_percentage_is_not_a_format_variable() -> None:
    assert [span.replacement for span in Protection().find("50%discount")] == []
    assert [span.replacement for span in Protection().find("50% discount")] == ["50%"]


def test_adjacent_spans_are_merged() -> None:
    found = Protection().find("<p><b>{name}</b> <i>x</i>")
    assert [(span.replacement, span.is_markup) for span in found] == [
        ("<p><b>{name}</b>", False),
        ("<i>", True),
        ("</i>", True),
    ]


def test_overlapping_spans_keep_the_text() -> None:
    assert unite("abcdef", [Span(3, 5, "Z"), Span(0, 4, "Y")]) == [Span(0, 5, "abcde")]
    assert unite("abcdef", [Span(3, 5, "Z"), Span(0, 3, "Y")]) == [Span(0, 5, "YZ")]


def test_user_patterns_add_to_built_in_patterns() -> None:
    text = "SKU-12 at x.com"
    assert [s.replacement for s in Protection(protect_regex=(r"SKU-\d+",)).find(text)] == [
        "SKU-12",
        "x.com",
    ]
    own = Protection(protect=False, protect_regex=(r"SKU-\d+",))
    assert [span.replacement for span in own.find(text)] == ["SKU-12"]
    assert Protection(protect=False).find(text) == []


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", r"pattern '\(' of `protect_regex` is not a regular expression \(missing \)"),
        ("x*", r"pattern 'x\*' of `protect_regex` matches an empty string"),
    ],
)
def test_invalid_patterns_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Protection(protect_regex=(pattern,))


def test_cheap_pattern_matches_all_spans_in_arrow() -> None:
    examples = [example for kind, example in EXAMPLES if kind.category != SYMBOL]
    texts = pa.array([*_TEXTS, *PLACEHOLDERS, *examples])
    assert pc.all(pc.match_substring_regex(texts, MAYBE_SPAN)).as_py()
    plain = pa.array(["A dog runs.", "Ein Hund, der läuft!", "我有一只狗。", "So: no? 'Yes'"])
    assert not pc.any(pc.match_substring_regex(plain, MAYBE_SPAN)).as_py()


def test_slow_patterns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tt.model.text.patterns._LONGEST_SEARCH", 0.2)
    with pytest.raises(UserError, match=r"'\(ab\|ab\)\+.*' of .* takes more than 0.2 s for a text"):
        Protection(protect_regex=("(ab|ab)+$",)).find("ab" * 60 + "!")


AWKWARD = [
    *map(chr, range(33, 127)), "★", "½", "é", "字", "а", "⟦", "\n", "😀", "\u0301", "€", "🇩", "“",
    "a.", "<a", "$a", "1/", "a_", "aB", "a/", "a\\", "C:\\a ", "C:\\a a\\", '{"', '{"a":', '[{"',
    "#a", "a@", "a=", "--a", "1.", "1-1 ", "1 ", "(1)", "$=", "%a", "<%", "[[", "a::", "0x", "1a",
    "a:b:", "1x1x", "x²", "<a b=", "<a_b>", "```", "&#", "//", "a://", "http://(", "+1 2", "12 34 ",
    "~/", "/a", "a.txt/", "1^", "{{{", "}", "[1, ", "abCd", "AB-1-", "sk-a",
]  # fmt: skip


def seconds(text: str) -> float:
    start = time.process_time()
    Protection().find(text, ascii_only)
    return time.process_time() - start


@pytest.mark.parametrize("unit", AWKWARD)
def test_search_time_is_linear_in_the_length_of_a_text(unit: str) -> None:
    few, many = (seconds(unit * (size // len(unit))) for size in (2_000, 32_000))
    assert many < 16 * 4 * few + 0.2  # quadratic time would be 256 times as long


@pytest.mark.parametrize("unit", ["0", "_", "★"])
def test_megabyte_of_an_awkward_text_takes_seconds(unit: str) -> None:
    assert seconds(unit * (1_000_000 // len(unit))) < 60


def test_fast_patterns_agree() -> None:
    pattern = re.compile(MAYBE_SPAN)
    for text in [*_TEXTS, *_NONE, *AWKWARD, *(example for _, example in EXAMPLES)]:
        if not pattern.search(text):
            assert Protection().find(text) == []
