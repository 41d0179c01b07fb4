"""Generate a parallel corpus, and a vocabulary for it, for the preprocessing benchmark.

The words are built from syllables and drawn by Zipf's law, so that a SentencePiece model splits
them roughly as it splits a natural corpus. The same arguments give the same rows on every machine.

    python tests/bench/corpus.py --pairs 1000000
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import hashlib
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sentencepiece
from processes import cache_folder

ROW_GROUP_PAIRS = 1 << 16  # generated, and held in memory, at a time

_CORPUS_VERSION = 1  # increase it if the same arguments give other rows
_SEED = 7

_VOCABULARY_SIZE = 32_000
_VOCABULARY_PAIRS = 100_000  # 200,000 lines
_VOCABULARY_THREADS = 2

_WORDS = 200_000
_ZIPF_EXPONENT = 1.05
_MEDIAN_WORDS = 21  # per sentence; the mean is about 24
_LENGTH_DEVIATION = 0.5  # of the logarithm of the words per sentence
_RATIO_DEVIATION = 0.12  # of target words to source words
_MOST_WORDS = 120
_TOO_LONG_WORDS = (300, 600)

_DUPLICATE_SHARE = 0.05
_EMPTY_SHARE = 0.005
_IDENTICAL_SHARE = 0.005
_TOO_LONG_SHARE = 0.005
_UNCLEAN_SHARE = 0.01

# The table contains every word once in each of these forms. A sentence is a list of numbers in that
# table, and Arrow joins the words.
_FORMS = (
    "{word}", "{capital}", "{word},", "{word}.", "{word}?", "{word}!", "{capital}.", " {word}",
    "{word}\x07", "\u200b{word}", "{word}\u00a0",
)  # fmt: skip
_PLAIN, _CAPITAL, _COMMA, _FULL_STOP, _QUESTION, _EXCLAMATION, _ONLY_WORD, _UNCLEAN = range(8)
_COMMA_SHARE = 0.05
_NAME_SHARE = 0.03

Integers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Language:
    """The parts that words are built from.

    Attributes:
      seed: The seed that its words are drawn with.
      consonants: The beginnings of syllables.
      vowels: The ends of syllables.
      endings: The ends of words.
    """

    seed: int
    consonants: tuple[str, ...]
    vowels: tuple[str, ...]
    endings: tuple[str, ...]

    def word_forms(self) -> pa.Array:
        """Return all words in all forms. Form f of word w has number f * words + w."""
        generator = random.Random(self.seed)
        words: dict[str, None] = {}  # a set that keeps its order
        while len(words) < _WORDS:
            # Frequent words, which come first, are short.
            most = 2 + (len(words) > 200) + (len(words) > 5_000)
            syllables = [
                generator.choice(self.consonants) + generator.choice(self.vowels)
                for _ in range(generator.randint(1, most))
            ]
            words["".join(syllables) + generator.choice(self.endings)] = None
        return pa.array(
            form.format(word=word, capital=word.capitalize()) for form in _FORMS for word in words
        )


SOURCE_LANGUAGE = Language(
    seed=1,
    consonants=(*"bcdfghjklmnprstvwz", "sh", "st", "tr", "ch", "pl", "br"),
    vowels=(*"aeiou", "ea", "ou", "ai", "ee"),
    endings=("", "", "", "s", "t", "ing", "ed", "er", "ly"),
)
TARGET_LANGUAGE = Language(
    seed=2,
    consonants=(*"bdfghjklmnprstvwz", "sch", "st", "tr", "ch", "pf", "br"),
    vowels=(*"aeiou", "ie", "ei", "au", "ä", "ö", "ü"),
    endings=("", "", "", "n", "t", "en", "er", "ung", "ß"),
)


def make_corpus(pairs: int, *, cache: Path) -> Path:
    """Return a Parquet file of pairs, columns `source` and `target`; make it if it is missing."""
    path = cache / f"corpus-v{_CORPUS_VERSION}-{pairs}.parquet"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        schema = pa.schema([("source", pa.string()), ("target", pa.string())])
        with pq.ParquetWriter(temporary, schema) as writer:
            for table in generate(pairs):
                writer.write_table(table.cast(schema), row_group_size=ROW_GROUP_PAIRS)
        temporary.replace(path)
    return path


def read_texts(texts: Sequence[Path]) -> pa.Table:
    """Return the pairs of two line-aligned text or .gz files."""
    sides = []
    for path in texts:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            sides.append(file.read().removesuffix("\n").split("\n"))
    return pa.table(dict(zip(("source", "target"), sides, strict=True)))


def copy_corpus(texts: Sequence[Path], *, pairs: int, cache: Path) -> tuple[Path, Path]:
    """Write the first pairs of a real corpus as Parquet, and train a vocabulary of all pairs."""
    table = read_texts(texts)
    if table.num_rows < pairs:
        raise SystemExit(f"{texts[0]} has {table.num_rows:,} lines. Set --pairs to at most this")
    digest = hashlib.sha256("\n".join(map(str, texts)).encode()).hexdigest()[:12]
    path = cache / f"texts-{digest}-{pairs}.parquet"
    pq.write_table(table.slice(0, pairs), path)
    return path, make_vocabulary(cache=cache, name=f"texts-{digest}", table=table, size=8000)


def make_vocabulary(
    *,
    cache: Path,
    name: str = f"unigram-v{_CORPUS_VERSION}",
    table: pa.Table | None = None,
    size: int = _VOCABULARY_SIZE,
) -> Path:
    """Return a unigram model for both sides; train it if it is missing."""
    path = cache / f"{name}-{size}.spm"
    if not path.exists():
        if table is None:
            table = pq.read_table(make_corpus(_VOCABULARY_PAIRS, cache=cache))
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with temporary.open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(table["source"].to_pylist() + table["target"].to_pylist()),
                model_writer=file, model_type="unigram", vocab_size=size, character_coverage=1.0,
                hard_vocab_limit=False,  # a small corpus has fewer pieces
                pad_id=0, unk_id=1, bos_id=2, eos_id=3, num_threads=_VOCABULARY_THREADS,
                minloglevel=2,
            )  # fmt: skip
        temporary.replace(path)
    return path


def generate(pairs: int) -> Iterator[pa.Table]:
    """Generate pairs, in tables of at most `ROW_GROUP_PAIRS` rows."""
    source_forms, target_forms = SOURCE_LANGUAGE.word_forms(), TARGET_LANGUAGE.word_forms()
    earlier: pa.Table | None = None  # a sample of all tables so far, for duplicates
    for index, first in enumerate(range(0, pairs, ROW_GROUP_PAIRS)):
        rows = min(ROW_GROUP_PAIRS, pairs - first)
        generator = np.random.default_rng([_SEED, index])
        source_words, target_words = _sentence_lengths(rows, generator=generator)
        sources = _sentences(source_words, forms=source_forms, generator=generator)
        targets = _sentences(target_words, forms=target_forms, generator=generator)
        kind = generator.random(rows)
        is_identical = kind < _IDENTICAL_SHARE
        empty = generator.random(rows)
        has_no_source = empty < _EMPTY_SHARE / 2
        has_no_target = (empty >= _EMPTY_SHARE / 2) & (empty < _EMPTY_SHARE)
        targets = pc.if_else(pa.array(is_identical), sources, targets)
        table = pa.table(
            {
                "source": pc.if_else(pa.array(has_no_source), "", sources),
                "target": pc.if_else(pa.array(has_no_target), "", targets),
            }
        )
        if earlier is None:
            earlier = table
        yield _with_duplicates(table, earlier, generator=generator)
        # Reservoir sampling: each table has the same share of the sample.
        is_replaced = generator.random(earlier.num_rows) < 1 / (index + 1)
        choice = np.where(
            is_replaced,
            earlier.num_rows + generator.integers(rows, size=earlier.num_rows),
            np.arange(earlier.num_rows),
        )
        earlier = pa.concat_tables([earlier, table]).take(choice).combine_chunks()


def _sentence_lengths(rows: int, *, generator: np.random.Generator) -> tuple[Integers, Integers]:
    """Draw the number of words per sentence of both sides. A few sentences exceed every model."""
    lengths = generator.lognormal(np.log(_MEDIAN_WORDS), _LENGTH_DEVIATION, rows)
    lengths = np.clip(lengths, 1, _MOST_WORDS)
    is_too_long = generator.random(rows) < _TOO_LONG_SHARE
    lengths[is_too_long] = generator.uniform(*_TOO_LONG_WORDS, is_too_long.sum())
    ratios = np.clip(generator.normal(1, _RATIO_DEVIATION, rows), 0.5, 2)
    return lengths.astype(np.int64), np.maximum(1, lengths * ratios).astype(np.int64)


def _sentences(lengths: Integers, *, forms: pa.Array, generator: np.random.Generator) -> pa.Array:
    """Make a sentence of each length, with words by Zipf's law, capitals and punctuation."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    total = int(ends[-1])
    # The bounded Pareto distribution, rounded down, is Zipf's law over the ranks 1 to _WORDS.
    power = 1 - _ZIPF_EXPONENT
    ranks = (1 - generator.random(total) * (1 - (_WORDS + 1.0) ** power)) ** (1 / power)
    words = np.minimum(ranks.astype(np.int64), _WORDS) - 1

    share = generator.random(total)
    form = np.full(total, _PLAIN)
    form[share < _COMMA_SHARE + _NAME_SHARE] = _CAPITAL
    form[share < _COMMA_SHARE] = _COMMA
    form[starts] = _CAPITAL
    marks = [_FULL_STOP, _QUESTION, _EXCLAMATION]
    form[ends - 1] = generator.choice(marks, len(lengths), p=[0.9, 0.07, 0.03])
    form[starts[lengths == 1]] = _ONLY_WORD
    unclean = np.flatnonzero(generator.random(len(lengths)) < _UNCLEAN_SHARE)
    place = starts[unclean] + generator.integers(lengths[unclean])
    form[place] = generator.integers(_UNCLEAN, len(_FORMS), len(unclean))

    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    split = pa.ListArray.from_arrays(offsets, forms.take(pa.array(form * _WORDS + words)))
    return pc.binary_join(split, " ")


def _with_duplicates(
    table: pa.Table, earlier: pa.Table, *, generator: np.random.Generator
) -> pa.Table:
    """Overwrite some rows with earlier rows."""
    choice = np.arange(table.num_rows)
    copies = generator.choice(table.num_rows, int(table.num_rows * _DUPLICATE_SHARE), replace=False)
    choice[copies] = table.num_rows + generator.integers(earlier.num_rows, size=len(copies))
    return pa.concat_tables([table, earlier]).take(choice).combine_chunks()


def _parse(arguments: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description="Make a corpus and a vocabulary for benchmarks.")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), help="Keep the files in this folder."
    )
    parser.add_argument(
        "--texts", type=Path, action="append", help="Copy this side of a real corpus (give both)."
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = _parse()
    if options.texts:
        print(*copy_corpus(options.texts, pairs=options.pairs, cache=options.cache), sep="\n")
    else:
        print(make_corpus(options.pairs, cache=options.cache))
        print(make_vocabulary(cache=options.cache))
