"""Trains SentencePiece vocabularies on a deterministic sample of the training lines.

The sample is the k lines with the least hashes, of distinct, normalised lines: the same whoever
read which line, and in whatever order.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
import sentencepiece

from model.errors import UserError
from model.vocabulary import BOS_ID, EOS_ID, PAD_ID, SIZE_MULTIPLE, UNK_ID

SAMPLE_SCHEMA = pa.schema([("hash", pa.uint64()), ("line", pa.large_string())])

# SentencePiece's result depends on the number of threads, so it is the same on every machine.
TRAINER_THREADS = 4

# Share of Han, kana and Hangul among the letters of a side from which on the rarest 0.05 % of
# its characters are left to UNK, as SentencePiece's authors advise for such scripts.
_LARGE_SCRIPT_SHARE = 0.2
_LARGE_SCRIPT_COVERAGE = 0.9995
_LARGE_SCRIPT_RANGES = (
    (0x1100, 0x1200),  # Hangul jamo
    (0x2E80, 0x2FE0),  # radicals
    (0x3040, 0x3130),  # hiragana, katakana, bopomofo
    (0x3130, 0x3190),  # Hangul compatibility jamo
    (0x31A0, 0x31C0),
    (0x31F0, 0x3200),
    (0x3400, 0x4DC0),  # Han, extension A
    (0x4E00, 0xA000),  # Han
    (0xAC00, 0xD7B0),  # Hangul syllables
    (0xF900, 0xFB00),
    (0x20000, 0x32000),  # Han, further extensions
)
_COVERAGE_LINES = 100_000


def _hash_line(line: str) -> bytes:
    # Another hash than the one that decides the split, so that the two are independent.
    return hashlib.blake2b(line.encode(), digest_size=8, person=b"tt sample").digest()


def least_lines(lines: Sequence[str], *, limit: int) -> pa.Table:
    """Returns the distinct lines with the least hashes, at most `limit`, by hash.

    >>> least_lines(["b", "a", "b"], limit=2)["line"].to_pylist()
    ['a', 'b']
    """
    hashes = np.frombuffer(b"".join([_hash_line(line) for line in lines]), "<u8")
    return _least(pa.table([hashes, lines], schema=SAMPLE_SCHEMA), limit=limit)


def _least(table: pa.Table, *, limit: int) -> pa.Table:
    # An equal hash is taken for an equal line: of 10^9 lines one may be lost, and no harm done.
    _, first = np.unique(table["hash"].to_numpy(), return_index=True)
    # take() copies: a slice would keep, and pickle, the buffers of the whole.
    return table.take(first[:limit]).combine_chunks()


class LeastLines(beam.CombineFn):
    """Combines tables of `least_lines` into one of at most `limit` lines."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit

    def create_accumulator(self) -> list[pa.Table]:
        """Starts with nothing."""
        return []

    def add_input(self, accumulator: list[pa.Table], table: pa.Table) -> list[pa.Table]:
        """Adds a table; reduces when twice the limit waits."""
        accumulator.append(table)
        waiting = sum(part.num_rows for part in accumulator)
        return self._reduce(accumulator) if waiting > 2 * self._limit else accumulator

    def merge_accumulators(self, accumulators: Sequence[list[pa.Table]]) -> list[pa.Table]:
        """Reduces several to one."""
        merged: list[pa.Table] = []
        for accumulator in accumulators:
            merged = self._reduce([*merged, *accumulator])
        return merged

    def compact(self, accumulator: list[pa.Table]) -> list[pa.Table]:
        """Reduces before it is sent."""
        return self._reduce(accumulator)

    def extract_output(self, accumulator: list[pa.Table]) -> pa.Table:
        """Returns the one table."""
        reduced = self._reduce(accumulator)
        return reduced[0] if reduced else SAMPLE_SCHEMA.empty_table()

    def _reduce(self, tables: list[pa.Table]) -> list[pa.Table]:
        if not tables:
            return []
        return [_least(pa.concat_tables(tables), limit=self._limit)]


def has_large_script(lines: Sequence[str]) -> bool:
    """Says whether a fifth or more of the letters are Han, kana or Hangul.

    >>> has_large_script(["the dog", "das Pferd"]), has_large_script(["我有一只狗", "dog"])
    (False, True)
    """
    text = "".join(lines).encode("utf-32-le", errors="ignore")
    points = np.frombuffer(text, "<u4")
    letters = int(np.count_nonzero(points > 0x40))
    large = sum(
        int(np.count_nonzero((points >= begin) & (points < end)))
        for begin, end in _LARGE_SCRIPT_RANGES
    )
    return large >= _LARGE_SCRIPT_SHARE * max(letters, 1)


def train_vocabulary(
    sample: pa.Table,
    *,
    name: str,
    size: int,
    kind: str,
    normalization_rule: str,
    character_coverage: float | None = None,
    byte_fallback: bool = False,
    user_symbols: Sequence[str] = (),
) -> bytes:
    """Trains a SentencePiece model.

    Args:
      sample: Lines, of `SAMPLE_SCHEMA`.
      name: "shared", "source" or "target", for messages.
      size: Number of pieces, the 4 special ones counted; for "char" the most there may be.
      kind: "unigram", "bpe" or "char".
      normalization_rule: SentencePiece's own, such as "nmt_nfkc".
      character_coverage: Share of all characters that get a piece; None chooses by script.
      byte_fallback: Have 256 pieces for bytes, of which characters without a piece are made.
      user_symbols: Texts that are always a piece of their own.

    Returns:
      The bytes of the model file.

    Raises:
      UserError: There are no lines, or the size does not suit them.
    """
    if not sample.num_rows:
        raise UserError(
            f"no text to train the {name} vocabulary on: the corpus has no pair with text on "
            "both sides"
        )
    if character_coverage is None:
        some = sample["line"].slice(0, _COVERAGE_LINES).to_pylist()
        character_coverage = _LARGE_SCRIPT_COVERAGE if has_large_script(some) else 1.0
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(sample),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            character_coverage=character_coverage,
            normalization_rule_name=normalization_rule,
            byte_fallback=byte_fallback,
            user_defined_symbols=list(user_symbols),
            num_threads=TRAINER_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _size_error(str(error), name=name, size=size) or error from None
    return model.getvalue()


def _lines(sample: pa.Table) -> Iterator[str]:
    for batch in sample.to_batches(max_chunksize=4096):
        yield from batch.column("line").to_pylist()


def _size_error(message: str, *, name: str, size: int) -> UserError | None:
    if found := re.search(r"Vocabulary size too high.*?<= (\d+)", message):
        most = int(found[1])
        fits = most // SIZE_MULTIPLE * SIZE_MULTIPLE or most
        return UserError(
            f"a {name} vocabulary of {size} pieces is larger than this corpus allows, which is "
            f"{most}: pass --vocabulary-size {fits} or less"
        )
    if found := re.search(
        r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)", message
    ):
        least = int(found[1])
        return UserError(
            f"a {name} vocabulary of {size} pieces is smaller than the characters of this corpus "
            f"need, which is {least}: pass --vocabulary-size {least} or more"
        )
    if "!sentences_.empty()" in message:
        return UserError(
            f"no text to train the {name} vocabulary on: no line is shorter than 4,192 bytes"
        )
    return None
