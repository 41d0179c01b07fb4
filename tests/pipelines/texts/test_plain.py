"""The shortcut for plain texts gives the same translations as the full way."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import regex
from fakes import UNKNOWN, Reverser, reverse
from hypothesis import given
from hypothesis import strategies as st

from tt.model.engines.translator import Hypothesis, Translation
from tt.model.text.spans import Protection
from tt.model.transformer.search_options import Decoding
from tt.pipelines.texts import inputs, translating
from tt.pipelines.texts.limits import Limits
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.segments import find_plain, split_sentences

# Languages with their own rules in sentencex, and some languages without rules.
LANGUAGES = """
am ar as bg bn brx ca da de el en es fa fi fr gom gu he hi hu hy id it ja ka kk kn ks ky mai ml mr
ms my ne nl or pa pl pt ro ru sa sd sk sl sq sr sv sw ta te th tr uk ur uz vi zh xx
""".split()  # noqa: SIM905
WORDS = st.sampled_from(
    """
    a A An The Three people Tom's vitamin Mr Dr z B etc It Est un Il Ein einen und Zwei à naïve
    Männer который Тогда λόγος 我们 他说 カレー е-mail well-known U S no No vs i e g
    """.split()  # noqa: SIM905
)
MARKS = st.sampled_from(
    [" ", " ", " ", " ", ", ", ": ", ":", " - ", "-", "—", " – ", "，", "、", "(", ") ", '"', "“",
     "” ", "„", "'", "’", "«", "»", "  ", ". ", ".", "! ", "。", "; ", "\n", "\u00a0", "1", "…"]
)  # fmt: skip
TEXTS = st.builds(
    lambda parts, end: "".join(word + mark for word, mark in parts).strip() + end,
    st.lists(st.tuples(WORDS, MARKS), max_size=12),
    st.sampled_from(["", ".", "!", "?", "。", "?!", '."', ")", " "]),
)
# Texts that are often plain, so that the property is tested on enough plain texts.
PLAIN = st.builds(
    lambda words, end: " ".join(words) + end,
    st.lists(WORDS, min_size=1, max_size=9),
    st.sampled_from(["", ".", "?", "。"]),
)


def check(texts, language):
    """Check that texts found to be plain are plain, and return their number."""
    plain = find_plain(texts, language=language)
    for text, is_plain in zip(texts, plain, strict=True):
        if is_plain:
            assert split_sentences(text, language=language) == [text]
            assert Protection().find(text) == []
            assert regex.search(r"\p{L}", text)
    return sum(plain)


@given(
    texts=st.lists(st.one_of(PLAIN, TEXTS, st.text(max_size=20)), min_size=1, max_size=8),
    languages=st.sets(st.sampled_from(LANGUAGES), min_size=4, max_size=4),
)
def test_plain_texts_are_one_sentence_without_spans(texts, languages):
    for language in sorted(languages):
        check(texts, language)


CORPORA = {
    "multi30k": ("train.fr",), "tatoeba_de_en": ("train.de",), "ted_ru_en": ("test.ru",),
    "news_zh_en": ("train.zh", "train.en"),
}  # fmt: skip


def sample(folder: Path, name: str, count: int) -> list[str]:
    lines = gzip.decompress((folder / f"{name}.gz").read_bytes()).decode().split("\n")
    return random.Random(1).sample(lines, count)


class Copier(Reverser):
    """Reverses some texts and copies others; some translations are incomplete, and some fail."""

    decoding = Decoding(n_best=2)

    def __init__(self):
        super().__init__(n_best=2)

    def translate(self, inputs):
        found, work = super().translate(inputs)
        return [self._spoil(each) for each in found], work

    def _spoil(self, found: Translation) -> Translation:
        size = len(found.text)
        if size == 13:
            raise ValueError("a thirteenth letter")
        turned = size % 3 == 0
        text = reverse(found.text) if turned else found.text
        text += " ⟦2⟧" * (size % 5 == 0)
        best, other = found.hypotheses
        is_complete = size % 7 > 0
        return Translation((Hypothesis(text, best.score, is_complete, size + 1), other))


OPTIONS = (
    TextOptions(source_language="en"),
    TextOptions(source_language="de", placeholders=8),
    TextOptions(on_flag="null", split="never", max_source_tokens=20),
    TextOptions(split="long", max_source_tokens=12),
    TextOptions(source_language="ru", on_too_long="truncate", max_source_tokens=9),
    TextOptions(protection=Protection(protect=False)),
    TextOptions(protection=Protection(protect_regex=("people",)), flags=("copy",)),
)
LIMITS = Limits(target_script="Latin", shortest=0.4, usual=1.0, longest=2.5, least_score=-2.0)


def check_ways(texts, options):
    """Check that the translations are the same without the shortcut, and return them."""

    def translate():
        return translating.translate_texts(
            [text.encode() for text in texts], translator=Copier(), options=options, limits=LIMITS
        )

    quick = translate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "find_plain", lambda texts, **_: [False] * len(texts))
        assert translate() == quick
    return quick


@given(
    texts=st.lists(
        st.one_of(PLAIN, TEXTS, st.sampled_from(["", " ", UNKNOWN, f"{UNKNOWN}a"])), max_size=8
    ),
    options=st.sampled_from(OPTIONS),
)
def test_shortcut_gives_the_same_translations(texts, options):
    check_ways(texts, options)


@pytest.mark.parametrize("corpus", CORPORA)
def test_shortcut_gives_the_same_translations_for_real_corpora(corpus, shared_data):
    for name in CORPORA[corpus]:
        lines = sample(shared_data / corpus, name, 1000)
        # Most lines of captions and short sentences are plain.
        least = 0.9 if corpus in ("multi30k", "tatoeba_de_en") else 0.3
        assert check(lines, name.split(".")[1]) / len(lines) > least
        for options in OPTIONS:
            found = check_ways(lines[:100], options)
            assert len(found.translations) == 100
