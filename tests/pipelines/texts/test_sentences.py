"""Texts are cut into pieces that fit, and no character is lost."""

from __future__ import annotations

import pytest
import sentencex
from fakes import Reverser
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import COPIED, EMPTY, OK, SPLIT
from tt.pipelines.texts.sentences import halve, join_translations, split_sentences
from tt.pipelines.texts.translating import translate_texts

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
        ("en", "1. First point.\n2. Second point.\n- item one\n- item two\n\nHeading\nText.",
         ["1.", "First point.", "2.", "Second point.", "-", "item one", "-", "item two", "Heading",
          "Text."]),
        ("en", "Version 2.0.1 is out! Node.js rocks. i.e. this, e.g. that. U.S. troops left.",
         ["Version 2.0.1 is out!", "Node.js rocks.", "i.e. this, e.g. that.",
          "U.S. troops left."]),
        ("fr", "M. Dupont est parti. « Oui ! » dit-il. Rien…",
         ["M. Dupont est parti.", "« Oui ! » dit-il.", "Rien…"]),
        ("es", "¿Qué hora es? ¡Vamos! El Sr. López llegó.",
         ["¿Qué hora es?", "¡Vamos!", "El Sr. López llegó."]),
        ("", "He left.No space here.Next one! Done.", ["He left.No space here.Next one!", "Done."]),
    ],
)  # fmt: skip
def test_sentences_in_several_languages(language, text, sentences):
    assert pieces_of(text, language) == sentences
    assert "".join(split_sentences(text, language=language)) == text


@given(text=TEXTS, language=LANGUAGES)
def test_joined_parts_are_the_text(text, language):
    parts = split_sentences(text, language=language)
    assert "".join(parts) == text
    assert all(part.isspace() or part == part.strip() != "" for part in parts)


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000"])
def test_white_space_that_sentencex_cannot_handle(space):
    text = f"I saw plan B{space}. It was good. So I went."
    assert split_sentences(text, language="en")[-3:] == ["It was good.", " ", "So I went."]


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
        ("我们，去公园吧走吧走吧", ["我们，", "去公园吧走吧走吧"]),
        ("e\u0301e\u0301e\u0301", ["e\u0301", "e\u0301e\u0301"]),
        ("👩‍👩‍👧👩‍👩‍👧", ["👩‍👩‍👧", "👩‍👩‍👧"]),
    ],
)
def test_texts_are_cut_in_half_at_natural_boundaries(text, parts):
    assert halve(text) == parts


@given(text=TEXTS, language=LANGUAGES.filter("xx".__ne__), most=st.integers(1, 20))
def test_parts_of_long_sentences_fit_and_are_translated_once(text, language, most):
    translator = Reverser()  # a character is a token
    options = TextOptions(source_language=language, max_source_tokens=most + 2, texts="plain")
    [found] = translate_texts([text], translator=translator, options=options).translations
    parts = translator.translated
    assert found.status in (OK, SPLIT, COPIED, EMPTY)
    assert all(len(part) <= most for part in parts)
    assert len(parts) == len(set(parts))


@pytest.mark.parametrize(
    ("parts", "translations", "joined"),
    [
        ([" ", "a", "\n\n", "b", "  ", "a", "\t"], [" ", "A", "\n\n", "", "  ", "B", "\t"],
         " A\n\n  B\t"),
        (["aaa", "bbb"], ["x", "y"], "xy"),  # halves of one word
        (["你好。", "再见。"], ["Hi.", "Bye."], "Hi. Bye."),
        (["你好。", "再见。"], ["はい。", "では。"], "はい。では。"),
        (["你好。", "再见。"], ["", "Bye."], "Bye."),
        (["<b>", "你好。", "</b>"], ["<b>", "Hi.", "</b>"], "<b>Hi.</b>"),
        (["Hi.", " ", "Bye."], ["你好。", " ", "再见。"], "你好。再见。"),
        (["यह है।", "वह है।"], ["It is.", "He is."], "It is. He is."),
    ],
)  # fmt: skip
def test_translations_are_joined(parts, translations, joined):
    assert join_translations(parts, translations) == joined


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("my", "သူလာသည်။ငါသွားသည်။", ["သူလာသည်။", "ငါသွားသည်။"]),
        ("am", "ሰላም ነው። ደህና ነህ፧ እሺ።", ["ሰላም ነው።", "ደህና ነህ፧", "እሺ።"]),
        ("am", "ሰላም ነው።ደህና", ["ሰላም ነው።", "ደህና"]),
        ("ar", "هل أنت بخير؟ نعم. شكرا", ["هل أنت بخير؟", "نعم.", "شكرا"]),
        ("ur", "یہ گھر ہے۔ وہ باغ ہے۔", ["یہ گھر ہے۔", "وہ باغ ہے۔"]),
        ("hi", "यह है।वह है॥ ठीक", ["यह है।", "वह है॥", "ठीक"]),
        ("km", "ខ្ញុំទៅ។អ្នកមក។ល។ ចប់៕", ["ខ្ញុំទៅ។", "អ្នកមក។ល។", "ចប់៕"]),
        ("bo", "བོད་ཡིག །དེ་རིང་། ཡིན།", ["བོད་ཡིག །", "དེ་རིང་།", "ཡིན།"]),
        ("hy", "Այո։ Ոչ։", ["Այո։", "Ոչ։"]),
    ],
)  # fmt: skip
def test_stops_of_other_scripts(language, text, sentences):
    assert pieces_of(text, language) == sentences


STOPS = "။።፧؟۔।॥។།։。？.!?…;«'\"()—⸮᠃᱾꫰߹"


@pytest.mark.parametrize(
    "letters", ["မြန်မာ", "ሰላም", "نعم", "यह", "ខ្មែរ", "བོད་", "Այո", "你", "a", "A"]
)
def test_the_splitter_gets_few_characters_at_once(letters, monkeypatch):
    """The time of the splitter grows with the square of the length that it gets at once."""
    lengths = []
    segment = sentencex.segment

    def count(code, line):
        lengths.append(len(line))
        return segment(code, line)

    monkeypatch.setattr(sentencex, "segment", count)
    for stop in STOPS:
        for space in ("", " "):
            text = (f"{letters}{stop}{space}" * 20_000)[:20_000]
            lengths.clear()
            assert "".join(split_sentences(text, language="en")) == text
            assert sum(lengths) < 3 * len(text)
            assert max(lengths) <= 4000
            assert stop not in "။።፧؟۔։" or sum(length > 1000 for length in lengths) < 6


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "A child is in the water Three people sit there.", 2),
        ("en", "He hangs out of a window A man in a shirt jumps Two dogs run", 3),
        ("en", "He read The Times in The Hague, in World War Two and The House", 1),
        ("de", "Ein Hund im Wasser Ein Mann sitzt daneben", 2),
        ("de", "Er las im Magazin Der Spiegel über Die Zeit, ob Sie kommen", 1),
        ("fr", "Un chien dans l'eau Deux hommes marchent", 2),
        ("es", "un hombre en el agua Una mujer", 1),  # there are no openers for Spanish
    ],
)
def test_sentences_without_a_mark_between_them(language, text, sentences):
    found = split_sentences(text, language=language)
    assert "".join(found) == text
    assert sum(not part.isspace() for part in found) == sentences


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("## **Bold**", ["##", "**Bold**"]),
        ('> "Quoted," she said.', [">", '"Quoted," she said.']),
        (">> x", [">>", "x"]),
        ("- # x", ["- #", "x"]),
        ("- [A link](b)", ["-", "[A link](b)"]),
        ("— « Oui ! »", ["—", "« Oui ! »"]),
        # Marks before an amount.
        ("> 5 kg", [">", "5 kg"]),
        ("- 3 °C", ["-", "3 °C"]),
        ("* * *", ["* *", "*"]),
        # Not marks.
        ("> = 5 kg", ["> = 5 kg"]),
        ("#hashtag", ["#hashtag"]),
        ("**Bold** text", ["**Bold** text"]),
        ("-3 °C", ["-3 °C"]),
        (">5 kg", [">5 kg"]),
        ("--", ["--"]),
        ("a > b", ["a > b"]),
        ("+ / - 3 °C", ["+ / - 3 °C"]),
    ],
)
def test_marks_at_the_start_of_a_line(text, pieces):
    assert pieces_of(text, "en") == pieces
    assert "".join(split_sentences(f"One.\n{text}\nTwo.", language="en")) == f"One.\n{text}\nTwo."
