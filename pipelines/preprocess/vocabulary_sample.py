"""Trains SentencePiece vocabularies on a deterministic sample of the training lines.

The sample is the k distinct, normalised lines with the least hashes: the same in whatever order
the lines were read, and by however many workers.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import sentencepiece

from model.errors import UserError
from model.text import vocabulary
from pipelines.preprocess.held_out import HELD_OUT_SOURCE, HELD_OUT_TARGET
from pipelines.preprocess.rejected import describe_reasons
from pipelines.preprocess.sources import INVALID_UTF8

# The errors of the trainer if options and texts do not go together.
_REFUSALS = (RuntimeError, ValueError, TypeError, OverflowError)
SAMPLE_SCHEMA = pa.schema([("hash", pa.uint64()), ("line", pa.large_string())])
_GREATEST = 2**64 - 1  # of hashes
_QUIET = 2  # the trainer's log level for errors only

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
_SHOWN_NAMES = 3  # of corpora, in a message


# No text of the sample may have them, and U+0020 always has its piece.
_KEPT_WHITESPACE = ("\t", "\n", "\r")


def _hash_line(line: str) -> bytes:
    # Another hash than the one that decides the split, so that the two are independent.
    return hashlib.blake2b(line.encode(), digest_size=8, person=b"tt sample").digest()


def distinct_lines(lines: Sequence[str]) -> pa.Table:
    """Returns the distinct lines with their hashes, by hash, as `SAMPLE_SCHEMA`.

    >>> distinct_lines(["b", "a", "b"])["line"].to_pylist()
    ['a', 'b']
    """
    hashes = np.frombuffer(b"".join([_hash_line(line) for line in lines]), "<u8")
    return _distinct(pa.table([hashes, lines], schema=SAMPLE_SCHEMA))


def _distinct(table: pa.Table, limit: int | None = None) -> pa.Table:
    # Equal hashes are taken for equal lines: of 10^9 lines one may be lost, which does no harm.
    _, first = np.unique(table["hash"].to_numpy(), return_index=True)
    return table.take(first[:limit])


def _up_to(table: pa.Table, bound: int) -> pa.Table:
    """Returns the lines of `distinct_lines` whose hash is at most a bound."""
    hashes = table["hash"].to_numpy()
    return table.slice(0, int(np.searchsorted(hashes, np.uint64(bound), side="right")))


class Sample:
    """The lines with the least hashes of each side, of the units that were added.

    What it holds is bounded: twice the lines of a sample, and those that were added last.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit  # lines of a side
        self._tables: dict[str, list[pa.Table]] = {}  # by side, each of distinct lines, by hash
        self._bounds: dict[str, int] = {}  # by side: above it, no hash is among the least
        self.rejected: collections.Counter[str] = collections.Counter()  # pairs left out, by reason

    def add_lines(self, side: str, lines: Sequence[str]) -> None:
        """Adds lines of a side."""
        self._add(side, distinct_lines(lines))

    def merge(self, other: Sample) -> None:
        """Adds what another has."""
        self.rejected.update(other.rejected)
        for side, tables in other._tables.items():
            for table in tables:
                self._add(side, table)

    def table(self, side: str) -> pa.Table:
        """Returns the lines of a side with the least hashes, by hash, as `SAMPLE_SCHEMA`."""
        self._compact(side)
        return self._tables[side][0]

    def compact(self) -> None:
        """Drops all that is not among the least."""
        for side in self._tables:
            self._compact(side)

    def _add(self, side: str, table: pa.Table) -> None:
        tables = self._tables.setdefault(side, [])
        tables.append(_up_to(table, self._bounds.get(side, _GREATEST)))
        if sum(table.num_rows for table in tables) > 2 * self._limit:
            self._compact(side)

    def _compact(self, side: str) -> None:
        tables = self._tables.get(side, [])
        least = _distinct(pa.concat_tables([SAMPLE_SCHEMA.empty_table(), *tables]), self._limit)
        self._tables[side] = [least]
        if least.num_rows == self._limit:
            self._bounds[side] = least["hash"][-1].as_py()

    def __getstate__(self) -> dict[str, Any]:
        self.compact()
        tables = {side: _to_bytes(table) for side, [table] in self._tables.items()}
        return vars(self) | {"_tables": tables}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tables = {side: [_from_bytes(content)] for side, content in state["_tables"].items()}
        vars(self).update(state | {"_tables": tables})


def _to_bytes(table: pa.Table) -> bytes:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def describe_rejected(rejected: collections.Counter[str], *, corpora: Sequence[str]) -> str:
    """Says why a sample of these corpora holds no line."""
    if not rejected:
        names = list(dict.fromkeys(corpora))
        shown = [*names[:_SHOWN_NAMES], *(["..."] if len(names) > _SHOWN_NAMES else [])]
        verb = "has" if len(names) == 1 else "have"
        return (
            f"{', '.join(shown)} {verb} no pairs, or all are held out: a dataset needs at least "
            "two pairs with different sources"
        )
    encoding = ", the `encoding`" if INVALID_UTF8 in rejected else ""
    by_a_side = {HELD_OUT_SOURCE, HELD_OUT_TARGET} & rejected.keys()
    held_out = "; `held_out_by=pair` holds out no text by itself" if by_a_side else ""
    return (
        f"all {rejected.total():,} pairs were rejected ({describe_reasons(rejected)}). Check the "
        f"corpus, its columns and languages{encoding}, or the filters of these reasons{held_out}"
    )


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySpec:
    """A vocabulary to train."""

    name: str  # "shared", "source" or "target"
    size: int  # number of tokens, the 4 special ones counted; for "char" the most there may be
    # Whether the user wants that number; if not, a sample that is too small for it gets the
    # greatest that it allows.
    is_size_given: bool = True
    kind: str  # "unigram", "bpe" or "char"
    normalization_rule: str  # SentencePiece's own, such as "identity"
    # Share of all characters that get a token; None chooses by script.
    character_coverage: float | None = None
    # Have 256 tokens for bytes, of which characters without a token are made.
    byte_fallback: bool = False
    user_symbols: Sequence[str] = ()  # texts that are always a token of their own
    # Leave runs of spaces and those at the ends, and have a token for each of the other white space
    # that lines and columns are made with.
    keep_whitespace: bool = False

    @property
    def file(self) -> str:
        """Name of its file in the dataset folder."""
        return {
            "shared": vocabulary.SHARED_MODEL,
            "source": vocabulary.SOURCE_MODEL,
            "target": vocabulary.TARGET_MODEL,
        }[self.name]


def train_vocabulary(sample: pa.Table, spec: VocabularySpec) -> bytes:
    """Train a SentencePiece model on lines of `SAMPLE_SCHEMA`; return the bytes of its file.

    Raises:
      UserError: There are no lines, or the size does not suit them.
    """
    if not sample.num_rows:
        raise UserError(f"no text to train the {spec.name} vocabulary on")
    coverage = spec.character_coverage
    if coverage is None:
        some = sample["line"].slice(0, _COVERAGE_LINES).to_pylist()
        coverage = _LARGE_SCRIPT_COVERAGE if has_large_script(some) else 1.0
    symbols = [*spec.user_symbols]
    if spec.keep_whitespace:
        symbols += [s for s in _KEPT_WHITESPACE if s not in spec.user_symbols]
    options = {
        "model_type": spec.kind,
        "pad_id": vocabulary.PAD_ID,
        "unk_id": vocabulary.UNK_ID,
        "bos_id": vocabulary.BOS_ID,
        "eos_id": vocabulary.EOS_ID,
        "character_coverage": coverage,
        "normalization_rule_name": spec.normalization_rule,
        "byte_fallback": spec.byte_fallback,
        "user_defined_symbols": symbols,
        "remove_extra_whitespaces": not spec.keep_whitespace,
        "num_threads": TRAINER_THREADS,
    }
    size = spec.size
    while True:
        try:
            return _train(sample, options | {"vocab_size": size})
        except _REFUSALS as error:
            most = _greatest_size(str(error))
            if spec.is_size_given or not vocabulary.SIZE_MULTIPLE <= most < size:
                raise UserError(_trainer_message(str(error), name=spec.name, size=size)) from error
            size = most


def _train(sample: pa.Table, options: dict[str, Any]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_lines(sample), model_writer=model, minloglevel=_QUIET, **options
    )
    return model.getvalue()


def _lines(sample: pa.Table) -> Iterator[str]:
    for batch in sample.to_batches(max_chunksize=4096):
        yield from batch.column("line").to_pylist()


def _greatest_size(message: str) -> int:
    """Returns the greatest size that the trainer says is possible, or 0."""
    found = re.search(r"Vocabulary size too high.*?<= (\d+)", message)
    return int(found[1]) if found else 0


def _trainer_message(message: str, *, name: str, size: int) -> str:
    """Return a message of the trainer as one that says what the user can do."""
    most = _greatest_size(message)
    if most >= vocabulary.SIZE_MULTIPLE:
        return (
            f"a {name} vocabulary of {size} tokens is larger than this corpus allows, which is "
            f"{most}. Pass `vocabulary_size={most}` or less"
        )
    reason = " ".join(message.split())
    return f"SentencePiece cannot train the {name} vocabulary: {reason}. Check its options"
