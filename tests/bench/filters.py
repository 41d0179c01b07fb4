"""Measure the language filter, the alignment filter and two flags on real pairs.

    .venv/bin/python tests/bench/filters.py --pairs 2000

The script reads the corpora of `../shared/data`. For labeled web pairs, it prints the share of each
label that the filters reject. The filters are the character filters, then also the language filter,
then also an alignment filter with which all filters reject 1 % of the valid pairs. A first table
has the languages that the encoder supports, and a second table has all languages. A third table
shows how often the flag `wrong_language` fires on the outputs of real systems.

For each clean corpus, the script prints the share of pairs that the language filter rejects, the
share without the pairs that the character filters reject, too, and quantiles of the cosines. It
also prints how often `wrong_language` fires on human translations and on texts in another language,
and how often `unrelated` fires on swapped translations.
"""

from __future__ import annotations

import argparse
import collections
import random

import numpy as np
from real_corpora import CORPORA, MESSY, read_newstest, read_pairs, read_tsv

from tt.model.text.languages import find_language
from tt.pipelines.preprocess.filters import Filters, text_reasons
from tt.pipelines.texts.languages import OTHER, compare_language
from tt.pipelines.texts.similarity import LANGUAGES, cosines

LABELS = ("V", "F", "E", "T", "MT", "A", "L")
COST = 0.01  # share of the valid pairs that may be lost
UNUSUAL = 0.001  # quantile of the flag `unrelated`


def is_other(pair: tuple[str, str], codes: tuple[str, str]) -> bool:
    """Return whether the language filter rejects a pair."""
    return any(
        compare_language(text, code=code) == OTHER for text, code in zip(pair, codes, strict=True)
    )


def judge_web(codes: list[str]) -> None:
    """Print the rejected share of each label for web pairs with English."""
    labels: list[str] = []
    rejected: dict[str, list[bool]] = collections.defaultdict(list)
    similarity: list[float] = []
    for code in codes:
        rows = read_tsv(f"messy/web_en_{code}.labelled.tsv.gz", columns=3)
        rows = [row for row in rows if row[0] and row[1]]
        sources, targets = [row[0] for row in rows], [row[1] for row in rows]
        reasons = text_reasons(sources, targets, filters=Filters(
            target_script=getattr(find_language(code), "script", "")
        ))  # fmt: skip
        labels += [row[2] for row in rows]
        rejected["characters"] += [i in reasons for i in range(len(rows))]
        rejected["languages"] += [
            is_other(pair, ("en", code)) for pair in zip(sources, targets, strict=True)
        ]
        is_known = code in LANGUAGES
        similarity += cosines(sources, targets).tolist() if is_known else [1.0] * len(rows)
    label, cosine = np.array(labels), np.array(similarity)
    without = np.array(rejected["characters"]) | np.array(rejected["languages"])
    is_valid = label == "V"
    kept = np.sort(cosine[is_valid & ~without])
    threshold = kept[max(0, int(COST * is_valid.sum()) - (without & is_valid).sum())]
    columns = {
        "characters": np.array(rejected["characters"]),
        "and languages": without,
        f"and cosine < {threshold:.3f}": without | (cosine < threshold),
    }
    print(f"\nRejected web pairs: English and {', '.join(codes)}")
    print(f"{'label':<8}{'pairs':>7}" + "".join(f"{name:>22}" for name in columns))
    for each in LABELS:
        own = label == each
        cells = (f"{mask[own].sum():>8,} = {mask[own].mean():>8.2%}" for mask in columns.values())
        print(f"{each:<8}{own.sum():>7,}" + "".join(f"{cell:>22}" for cell in cells))


def judge_clean(pairs_per_corpus: int) -> None:
    """Print the false alarms and the recall in corpora that people translated."""
    print(f"\n{'corpus':<14}{'pairs':>8}{'rejected':>10}{'only here':>11}{'wrong_language':>16}"
          f"{'other language':>16}{'0.1 %':>8}{'1 %':>7}{'5 %':>7}{'50 %':>7}"
          f"{'swapped found':>15}")  # fmt: skip
    everything = {
        name: (read_pairs(folder, train, languages), languages)
        for name, (folder, train, _, languages) in CORPORA.items()
    }
    _, rows = read_newstest()
    everything["newstest de"] = [(row[1], row[2]) for row in rows], ("en", "de")
    total = lost = only = 0
    for name, (pairs, codes) in everything.items():
        others = [i for i, pair in enumerate(pairs) if is_other(pair, codes)]
        rejected = len(others)
        scripts = [getattr(find_language(code), "script", "") for code in codes]
        known = text_reasons(*map(list, zip(*pairs, strict=True)), filters=Filters(
            source_script=scripts[0], target_script=scripts[1]
        ))  # fmt: skip
        new = sum(i not in known for i in others)
        alarms = sum(compare_language(t, code=codes[1]) == OTHER for _, t in pairs)
        copied = sum(compare_language(s, code=codes[1]) == OTHER for s, _ in pairs)
        some = random.Random(1).sample(pairs, min(pairs_per_corpus, len(pairs)))
        sources, targets = [s for s, _ in some], [t for _, t in some]
        similarity = cosines(sources, targets)
        quantiles = np.quantile(similarity, [UNUSUAL, 0.01, 0.05, 0.5])
        swapped = cosines(sources, targets[1:] + targets[:1])
        total, lost, only = total + len(pairs), lost + rejected, only + new
        print(f"{name:<14}{len(pairs):>8,}{rejected / len(pairs):>10.3%}"
              f"{new / len(pairs):>11.3%}"
              f"{1e4 * alarms / len(pairs):>13.1f}/10k{copied / len(pairs):>16.1%}"
              + "".join(f"{each:>7.3f}" for each in quantiles)
              + f"{(swapped < quantiles[0]).mean():>15.1%}", flush=True)  # fmt: skip
    print(f"{'all':<14}{total:>8,}{lost / total:>10.3%}{only / total:>11.3%}")


def judge_systems() -> None:
    """Print how often `wrong_language` fires on the outputs of real systems."""
    names, rows = read_newstest()
    print("\n`wrong_language` on newstest, English to German, per 10,000 translations")
    for place, name in enumerate(names[3:], 3):
        texts = [row[place] for row in rows if row[place]]
        alarms = sum(compare_language(text, code="de") == OTHER for text in texts)
        print(f"    {name:<20}{1e4 * alarms / len(texts):.1f} of {len(texts):,}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5000, help="Compare N pairs per corpus.")
    given = parser.parse_args()
    judge_web([code for code in MESSY if code in LANGUAGES])
    judge_web(list(MESSY))
    judge_systems()
    judge_clean(given.pairs)


if __name__ == "__main__":
    main()
