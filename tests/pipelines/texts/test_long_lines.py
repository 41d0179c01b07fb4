"""Long lines take time in proportion to their length, and lose no character."""

import random
import time

import pytest
from fakes import Reverser

from tt.model.text.glossary import Glossary
from tt.pipelines.texts.flags import Limits
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.sentences import split_sentences
from tt.pipelines.texts.translating import translate_texts

PUMPS = [
    "![", "A `` ", "« a ", "a “ ", "‘ a", "``a`", "မြန်မာ။", "هل؟", "a。", "*a_ ", "[](", "<b>",
    "&lt;b ", "a. ", "1.2.", "a/b/", "★ ", "<!--", "<a \" =\"", "> ", "[a]: b\n", "| a ",
    "the dog ", "1234567 ", "{x} ", "tea <b>dog</b> ", "<img alt='a dog'> ",
]  # fmt: skip
SIGNS = [
    *"ab A1 .,!?;:'\"`*_[](){}<>/|&#-+=\n“”«»።؟éя中½→", "&lt;", "http://", "<b>", "{x}", "!["
]  # fmt: skip
LIMITS = Limits(target_script="Latin", shortest=0.4, usual=1.0, longest=2.5, least_score=-2.0)
MOST_ATTEMPTS = 3  # measurements on a busy machine


def random_pumps(seed, count):
    generator = random.Random(seed)
    return ["".join(generator.choices(SIGNS, k=generator.randint(2, 6))) for _ in range(count)]


def cpu_seconds(pump, length, texts):
    text = (pump * (length // len(pump) + 1))[:length]
    options = TextOptions(texts=texts, source_language="en", target_language="de", placeholders=8)
    start = time.process_time()
    [made] = translate_texts(
        [text.encode()], translator=Reverser(), options=options,
        glossary=Glossary({"tea": "Tee"}, {}), limits=LIMITS,
    ).translations  # fmt: skip
    assert made.status in ("ok", "split", "copied", "empty", "too_long")
    return time.process_time() - start


def grows_in_proportion(pump, texts, *, length):
    """Return whether twice the length takes about twice the time; quadratic work takes 4 times."""
    for _ in range(MOST_ATTEMPTS):
        longer = cpu_seconds(pump, 2 * length, texts)
        if longer < 0.2 or longer < 3 * cpu_seconds(pump, length, texts):
            return True
    return False


@pytest.mark.parametrize("texts", ["plain", "markdown", "html"])
def test_time_of_any_repeated_text_grows_in_proportion(texts):
    pumps = [*PUMPS, *random_pumps(seed=52, count=3)]
    assert [p for p in pumps if not grows_in_proportion(p, texts, length=5_000)] == []


@pytest.mark.parametrize("code", ["en", "my", ""])
def test_long_lines_lose_no_character(code):
    for pump in [*PUMPS, *random_pumps(seed=7, count=20)]:
        text = (pump * (9_000 // len(pump)))[:9_000]
        assert "".join(split_sentences(text, language=code)) == text
