"""Measure how often flags fire on human translations, and how much deliberate damage they find.

    .venv/bin/python tests/bench/flags.py --only Tatoeba

Reads the real corpora of `../shared/data`. For each corpus, in both directions, the limits are
those that a model of its training pairs would store: quantiles of the token ratio, with a
vocabulary of 8,000 (4,000 for the few labeled pairs). Prints the flagged rows per 10,000 human
translations, the share of damaged translations that the flags find, and how often flags fire on the
outputs of real systems.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import random
import re
import string
import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from real_corpora import CORPORA, MESSY, Pairs, make_vocabulary, read_newstest, read_pairs, read_tsv

from tt.model.dataset.manifest import ratio_places
from tt.model.formats.model_card import About, TrainingData, ratio_quantiles
from tt.model.text.vocabulary import Vocabulary
from tt.pipelines.preprocess.filters import Filters, text_reasons, token_reasons
from tt.pipelines.texts.flags import (
    COPY,
    FLAGS,
    LONG,
    NUMBER,
    REPEATS,
    SHORT,
    WRONG_SCRIPT,
    Limits,
    Sentence,
    find_lost_ends,
    flag_sentence,
    has_lost_end,
)
from tt.pipelines.texts.numbers import find_numbers

SHAPE = (REPEATS, COPY, SHORT, LONG)  # documented to fire on at most 5 of 10,000
UNSPACED = ("zh",)
RUSSIAN, CHINESE = "Он не знает, почему собака лает. ", "他不知道那条狗为什么叫。"


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The training pairs and held-out pairs of a corpus, in one direction."""

    name: str
    train: Pairs
    test: Pairs
    source: str  # the codes of the languages
    target: str

    def turned(self) -> Corpus:
        """Return the corpus in the other direction."""
        train, test = ([(b, a) for a, b in pairs] for pairs in (self.train, self.test))
        return Corpus(self.name, train, test, self.target, self.source)


def corpora() -> Iterator[Corpus]:
    """Yield each corpus in its first direction.

    The labeled pairs have no training pairs. The pairs that are not judged valid replace them, as a
    crawled corpus. For newstest, every second set is training data.
    """
    for name, (folder, train, held_out, languages) in CORPORA.items():
        test = [pair for split in held_out for pair in read_pairs(folder, split, languages)]
        yield Corpus(name, read_pairs(folder, train, languages), test, *languages)
    _, rows = read_newstest()
    sets = sorted({row[0] for row in rows})
    train, test = ([(row[1], row[2]) for row in rows if row[0] in part]
                   for part in (sets[::2], sets[1::2]))  # fmt: skip
    yield Corpus("newstest de", train, test, "en", "de")
    for code in MESSY:
        rows = read_tsv(f"messy/web_en_{code}.labelled.tsv.gz", columns=3)
        kept = [row for row in rows if row[0] and row[1]]
        valid = [(row[0], row[1]) for row in kept if row[2] == "V"]
        others = [(row[0], row[1]) for row in kept if row[2] != "V"]
        yield Corpus(f"messy {code}", others, valid, "en", code)


def count(vocabulary: Vocabulary, texts: list[str]) -> np.ndarray:
    """Count tokens, including BOS and EOS."""
    known = _COUNTED.setdefault(vocabulary, {})
    new = [text for text in dict.fromkeys(texts) if text not in known]
    known.update(zip(new, map(len, vocabulary.encode(new)), strict=True))
    return np.array([known[text] for text in texts], np.int64)


_COUNTED: weakref.WeakKeyDictionary[Vocabulary, dict[str, int]] = weakref.WeakKeyDictionary()


def find_limits(corpus: Corpus, vocabulary: Vocabulary) -> Limits:
    """Return the limits that a model of the corpus would have, after the default filters."""
    sources, targets = (list(side) for side in zip(*corpus.train, strict=True))
    lengths = count(vocabulary, sources), count(vocabulary, targets)
    filters = Filters()
    out = {*text_reasons(sources, targets, filters=filters)}
    out |= token_reasons(lengths[0] - 2, lengths[1] - 2, filters=filters).keys()
    kept = np.setdiff1d(np.arange(len(sources)), list(out))
    places = ratio_places(lengths[0][kept], lengths[1][kept])
    is_lost = np.array(find_lost_ends(sources, targets))[kept]
    data = TrainingData(
        source_language=corpus.source,
        target_language=corpus.target,
        pairs=len(kept),
        length_ratios=ratio_quantiles(np.bincount(places).tolist()),
        lost_end_ratios=np.bincount(places[is_lost], minlength=1).tolist(),
    )
    return Limits.of(About(data=data))


def judge(pairs: Pairs, *, limits: Limits, vocabulary: Vocabulary) -> list[tuple[str, ...]]:
    """Return the flags of each pair."""
    source_tokens = count(vocabulary, [source for source, _ in pairs]) - 2
    target_tokens = count(vocabulary, [target for _, target in pairs]) - 2
    return [
        tuple(flag_sentence(Sentence(source, target, limits, int(s), int(t))))
        for (source, target), s, t in zip(pairs, source_tokens, target_tokens, strict=True)
    ]


# Kinds of damage


def loop(text: str, generator: random.Random, *, is_spaced: bool) -> str:
    """Repeat 1 to 4 words, or letters in text without spaces, so that they occur 5 to 20 times."""
    parts = text.split() if is_spaced else list(text)
    size = generator.randint(1, min(4, len(parts)))
    start = generator.randint(0, len(parts) - size)
    times = generator.randint(5, 20)
    looped = parts[: start + size] + parts[start : start + size] * (times - 1)
    return (" " if is_spaced else "").join(looped + parts[start + size :])


def cut(pairs: Pairs, share: float, vocabulary: Vocabulary) -> Pairs:
    """Keep only a share of the translation's tokens, and at least one token."""
    ids = [row[1:-1] for row in vocabulary.encode([target for _, target in pairs])]
    left = vocabulary.decode([row[: max(1, int(share * len(row)))] for row in ids])
    return [(source, target) for (source, _), target in zip(pairs, left, strict=True)]


def damages(
    corpus: Corpus, limits: Limits, vocabulary: Vocabulary
) -> Iterator[tuple[str, str, Pairs]]:
    """Yield each kind of damage, its flag or an empty string, and the damaged pairs."""
    generator = random.Random(1)
    is_spaced = corpus.target not in UNSPACED
    yield "loop", REPEATS, [
        (s, loop(t, generator, is_spaced=is_spaced)) for s, t in corpus.test
    ]  # fmt: skip
    ended = [(s, t) for s, t in corpus.test if has_lost_end("a", source=s)]
    for name, share in (("2/3", 2 / 3), ("1/2", 1 / 2), ("1/3", 1 / 3)):
        yield f"cut {name}", SHORT, cut(corpus.test, share, vocabulary)
        yield f"ended {name}", SHORT, cut(ended, share, vocabulary)
    yield "copy", COPY, [(s, s) for s, _ in corpus.test]
    other = CHINESE if limits.target_script == "Cyrillic" else RUSSIAN
    repeated = [(s, (other * (1 + len(t) // len(other)))[: len(t)]) for s, t in corpus.test]
    yield "script", WRONG_SCRIPT, repeated
    half = [(s, t[: len(t) // 2] + f[len(t) // 2 :])
            for (s, t), (_, f) in zip(corpus.test, repeated, strict=True)]  # fmt: skip
    yield "half script", WRONG_SCRIPT, half
    targets = [t for _, t in corpus.test]
    generator.shuffle(targets)
    yield "swapped", "", [(s, t) for (s, _), t in zip(corpus.test, targets, strict=True) if _ != t]
    for name, change in DIGITS.items():
        yield f"digit {name}", NUMBER, [
            (s, changed) for s, t in corpus.test
            if (changed := damage_digit(t, change, generator, source=s, limits=limits)) is not None
        ]  # fmt: skip

    for name, forms in SIGNS.items():
        yield f"lost {name}", "", [
            lost for s, t in corpus.test if (lost := lose_sign(s, t, forms, generator)) is not None
        ]  # fmt: skip


# Forms of a number that a source has, while its translation has only the number.
SIGNS = {"signs": ("-{}", "−{}", "+{}", "±{}"), "fractions": ("{}½", "{}¼", "{} 1/2", "{}.5")}
_ALONE = re.compile(r"(?<!\S)\d{1,3}(?!\S)")


def lose_sign(
    source: str, text: str, forms: Sequence[str], generator: random.Random
) -> tuple[str, str] | None:
    """Give a number of the source a sign or a fraction; None if the sides share no number."""
    places = [place for place in _ALONE.finditer(source) if place[0] in _ALONE.findall(text)]
    if not places:
        return None
    place = generator.choice(places)
    number = generator.choice(forms).format(place[0])
    return source[: place.start()] + number + source[place.end() :], text


# Changes of one digit, given the digit and another digit.
DIGITS = {
    "changed": lambda digit, other: other,
    "dropped": lambda digit, other: "",
    "doubled": lambda digit, other: digit * 2,
    "added": lambda digit, other: digit + other,
}


def damage_digit(
    text: str,
    change: Callable[[str, str], str],
    generator: random.Random,
    *,
    source: str,
    limits: Limits,
) -> str | None:
    """Change one digit of a translation, and return the translation.

    The result is None if the figures of the translation differ from the source's, or if the
    change keeps all values, as in "2.50" and "2.5".
    """
    places = [place for place, letter in enumerate(text) if letter in string.digits]
    languages = limits.source_language, limits.target_language
    ours, theirs = (
        [number.values for number in find_numbers(each, language=code)]
        for each, code in zip((source, text), languages, strict=True)
    )
    if (
        not places
        or len(ours) != len(theirs)
        or NUMBER in flag_sentence(Sentence(source, text, limits))
    ):
        return None
    place = generator.choice(places)
    other = generator.choice([each for each in string.digits if each != text[place]])
    changed = text[:place] + change(text[place], other) + text[place + 1 :]
    values = [number.values for number in find_numbers(changed, language=languages[1])]
    return changed if values != theirs else None


# Tables


class Report:
    """The rows of a table, and their sums."""

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])

    def add(self, name: str, found: int, rows: int) -> None:
        """Add to a column of the sum."""
        self.counts[name][0] += found
        self.counts[name][1] += rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="Use only corpora with this name prefix.")
    given = parser.parse_args()
    damaged = Report()
    references: list[tuple[str, int, collections.Counter[str]]] = []
    for first in corpora():
        if not first.name.startswith(given.only):
            continue
        lines = [side for pair in first.train for side in pair]
        size = 4000 if first.name.startswith("messy") else 8000
        vocabulary = make_vocabulary(lines, size=size)
        for corpus in (first, first.turned()):
            limits = find_limits(corpus, vocabulary)
            name = f"{corpus.name} > {corpus.target}"
            found = judge(corpus.test, limits=limits, vocabulary=vocabulary)
            counts = collections.Counter(flag for each in found for flag in each)
            counts["shape"] = sum(bool(set(each) & set(SHAPE)) for each in found)
            counts["any"] = sum(map(bool, found))
            references.append((name, len(found), counts))
            for kind, flag, pairs in damages(corpus, limits, vocabulary):
                if not pairs:
                    continue
                judged = judge(pairs, limits=limits, vocabulary=vocabulary)
                own = sum(flag in each for each in judged) if flag else 0
                every = sum(bool(each) for each in judged)
                damaged.add(kind, every, len(pairs))
                damaged.add(f"{kind}: {flag}", own, len(pairs))
                print(f"    {kind:<12}{len(pairs):>7,} rows {own / len(pairs):>8.1%} {flag:<13}"
                      f"{every / len(pairs):>8.1%} any flag")  # fmt: skip
    print_references(references)
    print("\nDamage that flags find, all corpora:")
    for kind, (found, rows) in damaged.counts.items():
        print(f"    {kind:<24}{rows:>9,} rows {found / rows:>8.2%}")
    if not given.only:
        print_systems()


def print_references(found: list[tuple[str, int, collections.Counter[str]]]) -> None:
    """Print the flagged rows per 10,000 human translations."""
    names = ["shape", *(flag for flag in FLAGS if any(c[flag] for _, _, c in found)), "any"]
    print("\nFlagged per 10,000 human translations (shape: repeats, copy, short, long)")
    print(f"{'':<20}{'rows':>8}" + "".join(f"{name:>14}" for name in names))
    for title, chosen in (
        ("all", found),
        ("all but TED", [each for each in found if not each[0].startswith("TED")]),
    ):
        total = sum((each[2] for each in chosen), collections.Counter())
        found = [*found, (title, sum(each[1] for each in chosen), total)]
    for name, rows, counts in found:
        shown = "".join(f"{1e4 * counts[each] / rows:>14.1f}" for each in names)
        print(f"{name:<20}{rows:>8,}{shown}")


def print_systems() -> None:
    """Print how often flags fire on the outputs of real systems, with the limits of newstest."""
    names, rows = read_newstest()
    vocabulary = make_vocabulary([text for row in rows for text in row[1:3]], size=8000)
    human = Corpus("newstest", [(row[1], row[2]) for row in rows], [], "en", "de")
    limits = find_limits(human, vocabulary)
    print("\nFlagged per 10,000 translations of newstest, English to German")
    for i, name in enumerate(names[2:], 2):
        judged = judge([(row[1], row[i]) for row in rows], limits=limits, vocabulary=vocabulary)
        counts = collections.Counter(flag for each in judged for flag in each)
        shown = ", ".join(f"{1e4 * n / len(rows):.1f} {flag}" for flag, n in counts.most_common())
        print(f"    {name:<20}{shown or 'none'}")


if __name__ == "__main__":
    main()
