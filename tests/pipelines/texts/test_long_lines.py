"""Long lines take time in proportion to their length, and lose no character."""

import random
import time

import pytest
from fakes import Reverser

from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.segments import split_sentences
from tt.pipelines.texts.translating import translate_texts

PUMPS = [
    "![", "A `` ", "« a ", "a “ ", "“a", "‘ a", "`", "``a`",
    "မြန်မာ။", "ሰላም።", "هل؟", "नमस्ते।", "a。",
]  # fmt: skip
OTHERS = ["*a ", "[](", "<b>", "&lt;", "a. ", "1.2.", "aB ", "a/b/", "-5 ", "@a", "★ ", "A_"]
SIGNS = [
    *"ab A1 .,!?;:'\"`*_[](){}<>/|&#-+=\n“”«»。።؟।éя中½→",
    "&lt;",
    "http://",
    "<b>",
    "{x}",
    "![",
]
MOST_ATTEMPTS = 3  # measurements on a busy machine


def random_pumps(seed, count):
    generator = random.Random(seed)
    return ["".join(generator.choices(SIGNS, k=generator.randint(2, 6))) for _ in range(count)]


def cpu_seconds(pump, length, texts):
    text = (pump * (length // len(pump) + 1))[:length]
    options = TextOptions(texts=texts, source_language="en", target_language="de")
    start = time.process_time()
    [made] = translate_texts([text.encode()], translator=Reverser(), options=options).translations
    assert made.status in ("ok", "split", "copied", "empty", "too_long")
    return time.process_time() - start


def grows_in_proportion(pump, texts, *, length):
    """Return whether twice the length takes about twice the time; quadratic work takes 4 times."""
    for _ in range(MOST_ATTEMPTS):
        longer = cpu_seconds(pump, 2 * length, texts)
        if longer < 0.2 or longer < 3 * cpu_seconds(pump, length, texts):
            return True
    return False


@pytest.mark.parametrize("pump", PUMPS)
def test_time_grows_in_proportion_to_the_length(pump):
    assert grows_in_proportion(pump, "plain", length=50_000)


@pytest.mark.parametrize("texts", ["plain", "markdown", "html"])
def test_time_of_any_repeated_text_grows_in_proportion(texts):
    pumps = [*PUMPS[:4], *OTHERS, *random_pumps(seed=52, count=6)]
    assert [p for p in pumps if not grows_in_proportion(p, texts, length=5_000)] == []


@pytest.mark.parametrize("code", ["en", "de", "my", "ar", ""])
def test_long_lines_lose_no_character(code):
    for pump in [*PUMPS, *OTHERS, *random_pumps(seed=7, count=40)]:
        text = (pump * (9_000 // len(pump)))[:9_000]
        assert "".join(split_sentences(text, language=code)) == text


def test_long_line_is_cut_into_the_sentences_of_its_parts():
    sentences = [f"Dr. Jones saw {i} dogs in the U.S. at 5 p.m. today." for i in range(1_000)]
    parts = split_sentences(" ".join(sentences), language="en")
    assert parts[::2] == sentences
    assert set(parts[1::2]) == {" "}
    words = "word " * 3_000  # no sentence ends
    assert "".join(split_sentences(words, language="en")) == words
    assert all(not part.startswith("ord") for part in split_sentences(words, language="en"))
