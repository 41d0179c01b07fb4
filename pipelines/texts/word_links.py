"""Find the words that belong together in a sentence and its translation.

If the words between two tags are removed from the source, the words of the translation that belong
to them become less probable. This method works with every model. The meaning of attention weights
differs between the layers and heads of a model.

The method is known as prediction difference: Li et al., "On the Word Alignment from Neural Machine
Translation", ACL 2019.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tt.model.engines.translator import Languages, ScoredText, Scorer, Translator
from tt.pipelines.texts.calling import call_on_parts
from tt.pipelines.texts.inline_tags import Links, find_words

_LEAST_DROP = 1.0  # in nats; a word that loses less in total has weaker links


class Pair(NamedTuple):
    """A sentence as the model receives it, and its translation."""

    source: str
    target: str
    atoms: tuple[str, ...] = ()  # parts of both texts that count as one word
    cuts: tuple[int, ...] = ()  # the places of tags in the source


class Linked(NamedTuple):
    """The links of a pair, and whether they come from the model."""

    links: Links  # [T, S]
    is_certain: bool = True


def find_links(
    pairs: Iterable[Pair], *, translator: Translator, languages: Languages
) -> dict[Pair, Linked]:
    """Return the share of each source word in each word of the translation, for each pair.

    A row of zeros means that the word of the translation depends on no source word.

    Args:
      pairs: Sentences and translations.
      translator: The model. If it cannot score translations, the relative positions of the
        words give the links.
      languages: Codes of the source and the target language, or "".
    """
    distinct = list(dict.fromkeys(pairs))
    if not isinstance(translator, Scorer):
        return {pair: Linked(_link_by_position(pair), is_certain=False) for pair in distinct}
    rows: list[tuple[str, str]] = []  # sources and targets
    groups = {pair: _group(pair) for pair in distinct}
    for pair in distinct:
        text = pair.source
        rows.append((text, pair.target))
        rows += [(text[:start] + text[end:], pair.target) for start, end, _ in groups[pair]]

    def score(some: list[tuple[str, str]]) -> list[ScoredText]:
        sources = translator.prepare([source for source, _ in some], languages=languages)
        return translator.score(
            [(source, target) for source, (_, target) in zip(sources, some, strict=True)]
        )

    results: list[ScoredText | Exception]
    results = call_on_parts(score, rows, is_input_error=translator.is_input_error)
    scored = iter(results)
    found = {}
    for pair in distinct:
        whole, *without = itertools.islice(scored, len(groups[pair]) + 1)
        sizes = [size for _, _, size in groups[pair]]
        shares = _share(pair, whole, without)  # [T, G]
        found[pair] = Linked(np.repeat(shares / np.array(sizes or [1]), sizes, axis=1))
    return found


def _group(pair: Pair) -> list[tuple[int, int, int]]:
    """Group the words between two tags; a word with a tag inside is a group of its own.

    Returns:
      For each group, its first character, the character after it, and its number of words.
    """
    groups: list[tuple[int, int, int]] = []
    cuts = sorted(pair.cuts)
    before = 0  # the start of the last word
    for start, end in find_words(pair.source, atoms=pair.atoms):
        if groups and bisect.bisect_right(cuts, before) == bisect.bisect_left(cuts, end):
            first, _, size = groups.pop()
            groups.append((first, end, size + 1))
        else:
            groups.append((start, end, 1))
        before = start
    return groups


def _share(
    pair: Pair, whole: ScoredText | Exception, without: Sequence[ScoredText | Exception]
) -> Links:
    """Return the share of each group in each word of the translation, [T, G]."""
    words = find_words(pair.target, atoms=pair.atoms)
    drops = np.zeros((len(words), len(without)))  # [T, G]
    if not drops.size or isinstance(whole, Exception) or not whole.ends:
        return drops
    # If the model fails at a source without a group, this group gets no links.
    rows = [whole if isinstance(each, Exception) else each for each in without]
    scores = np.array([each.scores for each in rows]).T  # [tokens, G]
    lost = np.maximum(np.array(whole.scores)[:, None] - scores, 0)
    starts = [0, *whole.ends[:-1]]
    for j, (start, end) in enumerate(words):
        first = bisect.bisect_right(whole.ends, start)
        drops[j] = sum(lost[first : bisect.bisect_left(starts, end)])
    totals = drops.sum(1, keepdims=True)
    shares: Links = drops / np.maximum(totals, _LEAST_DROP)
    return shares


def _link_by_position(pair: Pair) -> Links:
    source, target = (len(find_words(text, atoms=pair.atoms)) for text in pair[:2])
    links: npt.NDArray[np.float64] = np.zeros((target, source))
    for j in range(target if source else 0):
        links[j, j * source // target] = 1
    return links
