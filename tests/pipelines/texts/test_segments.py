"""Texts are cut into pieces that fit, and no character is lost."""

from __future__ import annotations

import time

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.texts.segments import cut_to_fit, halve, join_translations, split_sentences

# Parts of texts, including some that are difficult for segmenters.
STUFF = st.sampled_from(
    ["Dr. ", "A", "b", ". ", "?", "!\"", "\u00a0B.", "\u3000", "\u2028", "\n\n", "\r\n", "  ", "\t",
     "你好", "。", "，", "สวัสดี", "e\u0301", "\u200b", "👩‍👩‍👧", "\U0001f1e9\U0001f1ea",
     ", ", "3.5", "\x85"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(STUFF, max_size=40).map("".join))
LANGUAGES = st.sampled_from(["", "en", "de-AT", "zh_TW", "ja", "ru", "fr", "xx"])


def pieces_of(text, language):
    return [part for part in split_sentences(text, language=language) if not part.isspace()]


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", 'He said: "Hello! Is it you?" Dr. Smith left at 3 p.m. on Jan. 5, 2020.  It rained.',
         ['He said: "Hello! Is it you?"', "Dr. Smith left at 3 p.m. on Jan. 5, 2020.",
          "It rained."]),
        ("de", "Am 3. Oktober kam Dr. Müller z. B. nach Bonn. Er blieb.",
         ["Am 3. Oktober kam Dr. Müller z. B. nach Bonn.", "Er blieb."]),
        ("ru", "Он родился в 1980 г. в Туле. Это г. Москва.",
         ["Он родился в 1980 г. в Туле.", "Это г. Москва."]),
        ("zh", "我很高兴。你呢？他说：“好的。”然后走了。",
         ["我很高兴。", "你呢？", "他说：“好的。”", "然后走了。"]),
        ("ja", "今日は天気がいい。行きましょう！ はい。",
         ["今日は天気がいい。", "行きましょう！", "はい。"]),
        ("hi", "यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        ("en", "A line that was\nwrapped. A heading\nAn item\n\nand more",
         ["A line that was\nwrapped.", "A heading", "An item", "and more"]),
        ("en", "See https://a.org/b.c?d=1. Mail a.b@c.org! It costs $3.50. At 12.30 p.m. I left.",
         ["See https://a.org/b.c?d=1.", "Mail a.b@c.org!", "It costs $3.50.",
          "At 12.30 p.m. I left."]),
        ("en", "1. First point.\n2. Second point.\n- item one\n- item two\n\nHeading\nText.",
         ["1.", "First point.", "2.", "Second point.", "-", "item one", "-", "item two", "Heading",
          "Text."]),
        ("en", "\"Why?\" she asked. Hm... Yes. Wait... what?",
         ["\"Why?\" she asked.", "Hm...", "Yes.", "Wait... what?"]),
        ("en", "Version 2.0.1 is out! Node.js rocks. i.e. this, e.g. that. U.S. troops left.",
         ["Version 2.0.1 is out!", "Node.js rocks.", "i.e. this, e.g. that.",
          "U.S. troops left."]),
        ("de", "Am 3. Oktober kam Dr. Meier z. B. nach Bonn. Das kostet 1.234,50 EUR. Nein!",
         ["Am 3. Oktober kam Dr. Meier z. B. nach Bonn.", "Das kostet 1.234,50 EUR.", "Nein!"]),
        ("fr", "M. Dupont est parti. « Oui ! » dit-il. Rien…",
         ["M. Dupont est parti.", "« Oui ! » dit-il.", "Rien…"]),
        ("es", "¿Qué hora es? ¡Vamos! El Sr. López llegó.",
         ["¿Qué hora es?", "¡Vamos!", "El Sr. López llegó."]),
        ("ru", "Он родился в 1990 г. в Туле. Т.е. там. «Да!» — сказал он.",
         ["Он родился в 1990 г. в Туле.", "Т.е. там.", "«Да!»", "— сказал он."]),
        ("zh", "你好。2008年见！“真的吗？”他问。是的……价格是3.5元。好?好.",
         ["你好。", "2008年见！", "“真的吗？”", "他问。", "是的……价格是3.5元。", "好?", "好."]),
        ("ja", "今日は。「はい。」と言った。2020年です！終わり？",
         ["今日は。", "「はい。」", "と言った。", "2020年です！", "終わり？"]),
        ("th", "สวัสดีครับ วันนี้อากาศดี", ["สวัสดีครับ วันนี้อากาศดี"]),
        ("", "He left.No space here.Next one! Done.", ["He left.No space here.Next one!", "Done."]),
    ],
)  # fmt: skip
def test_sentences_in_several_languages(language, text, sentences):
    assert pieces_of(text, language) == sentences
    assert "".join(split_sentences(text, language=language)) == text


def test_any_code_of_a_language_selects_its_rules():
    text = "Am 3. Oktober kam er. Er blieb."
    for language in ("deu", "ger", "DE_at"):
        assert pieces_of(text, language) == ["Am 3. Oktober kam er.", "Er blieb."]
    assert pieces_of(text, "English")[0] == "Am 3."  # older versions could save such a name


@given(text=TEXTS, language=LANGUAGES)
def test_joined_parts_are_the_text(text, language):
    parts = split_sentences(text, language=language)
    assert "".join(parts) == text
    assert all(part.isspace() or part == part.strip() != "" for part in parts)


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000"])
def test_white_space_that_sentencex_cannot_handle(space):
    text = f"I saw plan B{space}. It was good. So I went."
    assert split_sentences(text, language="en")[-3:] == ["It was good.", " ", "So I went."]


def test_blank_lines_of_a_long_text_are_kept():
    text = "\n\n".join(f"This is sentence {i} of a long text. So it is." for i in range(2000))
    assert "".join(split_sentences(text)) == text
    assert len(pieces_of(text, "en")) == 4000


def test_panic_in_sentencex_leaves_the_line_uncut(monkeypatch):
    class PanicException(BaseException):  # has the name of Rust's exception
        pass

    def fail(error):
        def segment(code, line):
            raise error

        monkeypatch.setattr(sentencex, "segment", segment)

    fail(PanicException("end byte index 4 is not a char boundary"))
    assert split_sentences("One. Two.\nThree.") == ["One. Two.", "\n", "Three."]
    fail(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        split_sentences("One. Two.")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("one, two three four", ["one, two", " ", "three four"]),  # the first clause is too short
        ("one two, three, four five", ["one two, three,", " ", "four five"]),
        ("one  two", ["one", "  ", "two"]),
        ("aaaaaaaaaaaaaaaa bc", ["aaaaaaaaaaaaaaaa", " ", "bc"]),
        ("我们，去公园吧走吧走吧", ["我们，", "去公园吧走吧走吧"]),
        ("abcdef", ["abc", "def"]),
        ("3.5,000:1", ["3.5,", "000:1"]),
        ("e\u0301e\u0301e\u0301", ["e\u0301", "e\u0301e\u0301"]),
        ("👩‍👩‍👧👩‍👩‍👧", ["👩‍👩‍👧", "👩‍👩‍👧"]),
        ("a\u0301\u0301\u0301", ["a\u0301", "\u0301\u0301"]),
    ],
)
def test_texts_are_cut_in_half_at_natural_boundaries(text, parts):
    assert halve(text) == parts


@given(text=TEXTS, language=LANGUAGES, most=st.integers(1, 20))
def test_pieces_fit_and_are_checked_once(text, language, most):
    judged = []

    def fits(pieces):
        judged.extend(pieces)
        return [len(piece) <= most for piece in pieces]

    [parts, again] = cut_to_fit([split_sentences(text, language=language)] * 2, fits=fits)
    assert "".join(parts) == text
    assert parts == again
    assert all(part.isspace() or len(part) <= most for part in parts)
    assert len(judged) == len(set(judged))
    if all(len(part) <= most for part in split_sentences(text, language=language)):
        assert parts == split_sentences(text, language=language)


def test_single_character_is_never_cut():
    assert cut_to_fit([["ab c"]], fits=lambda pieces: [False] * len(pieces)) == [
        ["a", "b", " ", "c"]
    ]


def test_huge_texts_take_seconds():
    start = time.monotonic()
    for text in (
        "a" * 300_000,
        "a " * 150_000,
        " " * 300_000 + "a",
        "我" * 300_000,
        "a, " * 99_000,
        "a." * 50_000 + "xyz no. Yes.",
        "你好。再见！" * 40_000,
        "A!b?" * 25_000,
    ):
        [parts] = cut_to_fit(
            [split_sentences(text)], fits=lambda pieces: [len(p) <= 500 for p in pieces]
        )
        assert "".join(parts) == text
    assert time.monotonic() - start < 60


def test_translations_replace_the_pieces():
    parts = [" ", "a", "\n\n", "b", "  ", "a", "\t"]
    assert join_translations(parts, {"a": "AA", "b": ""}) == " AA\n\n  AA\t"
    halves = ["aaa", "bbb"]
    assert join_translations(halves, {"aaa": "x", "bbb": "y"}) == "xy", "halves of one word"
    chinese = ["你好。", "再见。"]
    assert join_translations(chinese, {"你好。": "Hi.", "再见。": "Bye."}) == "Hi. Bye."
    assert join_translations(chinese, {"你好。": "はい。", "再见。": "では。"}) == "はい。では。"
    assert join_translations(chinese, {"你好。": "", "再见。": "Bye."}) == "Bye."


@given(
    number=st.sampled_from(["3.14", "1,234.50", "10.000.000", "192.168.0.1", "2.0.1", "12.30"]),
    before=st.sampled_from(["It is ", "Es kostet ", "Это ", "价格是", ""]),
    after=st.sampled_from([" now.", ". Then more.", "元。好。", "!"]),
    language=LANGUAGES,
)
def test_numbers_are_not_cut(number, before, after, language):
    assert any(
        number in part for part in split_sentences(before + number + after, language=language)
    )


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "A child is in the water Three people sit there.", 2),
        ("en", "He hangs out of a window A man in a shirt jumps Two dogs run", 3),
        ("en", "A lack of vitamin A deficiency and of plan A is rare; from A to B.", 1),
        ("en", "She has a severe vitamin A deficiency today. A car passes A man sits", 3),
        ("en", "He read The Times in The Hague, in World War Two and The House", 1),
        ("en", "We saw <b> The Two Towers and THE end", 1),
        ("de", "Ein Hund im Wasser Ein Mann sitzt daneben", 2),
        ("de", "Er las im Magazin Der Spiegel über Die Zeit, ob Sie kommen", 1),
        ("fr", "Un chien dans l'eau Deux hommes marchent", 2),
        ("fr", "Il vient de La Rochelle et de Les Halles", 1),
        ("es", "un hombre en el agua Una mujer", 1),  # there are no openers for Spanish
    ],
)
def test_sentences_without_a_mark_between_them(language, text, sentences):
    found = split_sentences(text, language=language)
    assert "".join(found) == text
    assert sum(not part.isspace() for part in found) == sentences


def test_list_marks_are_cut_off():
    text = "- One thing.\n * Another - thing.\n— Yes. — No.\n-5 degrees"
    assert split_sentences(text, language="en") == [
        *("-", " ", "One thing.", "\n ", "*", " ", "Another - thing.", "\n"),
        *("—", " ", "Yes.", " ", "— No.", "\n", "-5 degrees"),
    ]


def test_marks_of_headings_and_quotations_are_cut_off():
    text = "## One thing.\n> Another > thing.\n#tag is none. # Nor this.\n####### Nor that"
    assert split_sentences(text, language="en") == [
        *("##", " ", "One thing.", "\n", ">", " ", "Another > thing.", "\n"),
        *("#tag is none.", " ", "# Nor this.", "\n", "####### Nor that"),
    ]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("## **Bold**", ["##", "**Bold**"]),
        ('> "Quoted," she said.', [">", '"Quoted," she said.']),
        ("> > x", ["> >", "x"]),
        (">> x", [">>", "x"]),
        ("- # x", ["- #", "x"]),
        ("> - *This* is it.", ["> -", "*This* is it."]),
        ("- [A link](b)", ["-", "[A link](b)"]),
        ("- ¿Qué?", ["-", "¿Qué?"]),
        ("— « Oui ! »", ["—", "« Oui ! »"]),
        ("# #tag here", ["#", "#tag here"]),
        # Marks before an amount.
        ("> 5 kg", [">", "5 kg"]),
        ("# 1 hit", ["#", "1 hit"]),
        ("- 3 °C", ["-", "3 °C"]),
        ("> -3 °C", [">", "-3 °C"]),
        ("* * *", ["* *", "*"]),
        # Not marks.
        ("> = 5 kg", ["> = 5 kg"]),
        ("+ / - 3 °C", ["+ / - 3 °C"]),
        ("#hashtag", ["#hashtag"]),
        ("-3 °C", ["-3 °C"]),
        ("**Bold** text", ["**Bold** text"]),
        (">5 kg", [">5 kg"]),
        ("--", ["--"]),
        ("a > b", ["a > b"]),
    ],
)
def test_marks_at_the_start_of_a_line(text, pieces):
    assert pieces_of(text, "en") == pieces
    assert "".join(split_sentences(f"One.\n{text}\nTwo.", language="en")) == f"One.\n{text}\nTwo."
