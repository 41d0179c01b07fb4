"""Read the real corpora of `../shared/data`, and train vocabularies on them."""

from __future__ import annotations

import csv
import gzip
import tempfile
from pathlib import Path

from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import SHARED_MODEL, Vocabulary
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.vocabularies import distinct_lines, train_vocabulary

Pairs = list[tuple[str, str]]

DATA = Path(__file__).resolve().parents[2].parent / "shared/data"
CORPORA = {  # folder, training split, held-out splits, languages
    "Multi30k de": ("multi30k", "train", ("val", "test_2016_flickr"), ("en", "de")),
    "Multi30k fr": ("multi30k", "train", ("val", "test_2016_flickr"), ("en", "fr")),
    "Tatoeba de": ("tatoeba_de_en", "train", ("dev", "test"), ("de", "en")),
    "Tatoeba zh": ("tatoeba_zh_en", "train", ("dev", "test"), ("zh", "en")),
    "TED ru": ("ted_ru_en", "train_not_ted", ("dev", "test"), ("ru", "en")),
    "news zh": ("news_zh_en", "train", ("dev", "test"), ("zh", "en")),
}
MESSY = ("de", "fr", "ga", "el", "mt", "pt")  # the languages of labeled web pairs with English
_NORMALIZATION = TextNormalization()


def read_pairs(folder: str, split: str, languages: tuple[str, str]) -> Pairs:
    """Read a split, normalized, without the pairs in which a side is empty."""
    paths = [DATA / folder / f"{split}.{code}.gz" for code in languages]
    texts = [gzip.decompress(path.read_bytes()).decode() for path in paths]
    sides = [_NORMALIZATION(text.split("\n")) for text in texts]
    return [pair for pair in zip(*sides, strict=True) if all(pair)]


def read_tsv(path: str, *, columns: int) -> list[list[str]]:
    """Read a TSV file without its malformed lines."""
    text = gzip.decompress((DATA / path).read_bytes()).decode()
    rows = csv.reader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [_NORMALIZATION(row) for row in rows if len(row) == columns]


def read_newstest() -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the rows with a human translation in column 2."""
    names, *rows = read_tsv("newstest_en_de/newstest.tsv.gz", columns=7)
    return names, [row for row in rows if row[2]]


def train_model(lines: list[str], *, size: int, protect: bool = False) -> bytes:
    """Train a SentencePiece model of both sides; with `protect`, it has tokens for placeholders."""
    options = PreprocessOptions(
        output="", vocabulary_size=size, sentencepiece_rule="nmt_nfkc", protect=protect
    )
    return train_vocabulary(distinct_lines(lines), options, file=SHARED_MODEL)


def make_vocabulary(lines: list[str], *, size: int) -> Vocabulary:
    """Train a vocabulary of both sides."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.spm"
        path.write_bytes(train_model(lines, size=size))
        return Vocabulary(path, _NORMALIZATION)
