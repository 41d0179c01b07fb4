"""Vocabularies: trained on a deterministic sample of lines, written, checked and loaded.

The sample is the k distinct, normalized lines with the least hashes: the same in whatever order
the lines were read, and by however many workers.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import regex
import sentencepiece

from tt.model.dataset.manifest import digest_file
from tt.model.errors import UnfinishedError, UserError
from tt.model.text import vocabulary
from tt.model.text.vocabulary import VocabularyPair, load_vocabularies
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.plan import DatasetPlan
from tt.pipelines.storage import files
from tt.pipelines.storage.paths import join

# The errors of the trainer if options and texts do not go together.
_REFUSALS = (RuntimeError, ValueError, TypeError, OverflowError)
SAMPLE_SCHEMA = pa.schema([("hash", pa.uint64()), ("line", pa.large_string())])
_QUIET = 2  # the trainer's log level for errors only

# SentencePiece's result depends on the number of threads, so it is the same on every machine.
TRAINER_THREADS = 4

# Share of Han, kana and Hangul among the letters of a side from which on the rarest 0.05 % of
# its characters are left to UNK, as SentencePiece's authors advise for such scripts.
_LARGE_SCRIPT_SHARE = 0.2
_LARGE_SCRIPT_COVERAGE = 0.9995

_LARGE_SCRIPT = regex.compile(r"[\p{Han}\p{Bopomofo}\p{Hiragana}\p{Katakana}\p{Hangul}]")
_LETTER = regex.compile(r"[^\0-@]")  # about

_COVERAGE_LINES = 100_000


# No text of the sample may have them, and U+0020 always has its piece.
_KEPT_WHITESPACE = ("\t", "\n", "\r")


def _hash_line(line: str) -> bytes:
    # Another hash than the one that decides the split, so that the two are independent.
    return hashlib.blake2b(line.encode(), digest_size=8, person=b"tt sample").digest()


def distinct_lines(lines: Sequence[str], limit: int | None = None) -> pa.Table:
    """Return the distinct lines with the least hashes, by hash, as `SAMPLE_SCHEMA`.

    >>> distinct_lines(["b", "a", "b"])["line"].to_pylist()
    ['a', 'b']
    """
    hashes = np.frombuffer(b"".join([_hash_line(line) for line in lines]), "<u8")
    return _least_lines(pa.table([hashes, lines], schema=SAMPLE_SCHEMA), limit)


def _least_lines(table: pa.Table, limit: int | None) -> pa.Table:
    # Equal hashes are taken for equal lines: of 10^9 lines one may be lost, which does no harm.
    _, first = np.unique(table["hash"].to_numpy(), return_index=True)
    return table.take(first[:limit])


@dataclasses.dataclass(frozen=True)
class Sample:
    """The lines with the least hashes of some units."""

    tables: dict[str, pa.Table]  # of `SAMPLE_SCHEMA`, by the file of the vocabulary
    rejected: collections.Counter[str]  # pairs left out, by reason


def merge_samples(samples: Iterable[Sample], limit: int) -> Sample:
    """Merge samples into one of at most `limit` lines per vocabulary, holding few at a time."""
    tables: dict[str, pa.Table] = {}
    rejected: collections.Counter[str] = collections.Counter()
    for sample in samples:
        rejected.update(sample.rejected)
        for file, table in sample.tables.items():
            held = pa.concat_tables([tables[file], table]) if file in tables else table
            tables[file] = _least_lines(held, limit) if held.num_rows > 2 * limit else held
    return Sample({file: _least_lines(held, limit) for file, held in tables.items()}, rejected)


def has_large_script(lines: Sequence[str]) -> bool:
    """Says whether a fifth or more of the letters are Han, kana or Hangul.

    >>> has_large_script(["the dog", "das Pferd"]), has_large_script(["我有一只狗", "dog"])
    (False, True)
    """
    text = "".join(lines)
    letters, large = len(_LETTER.findall(text)), len(_LARGE_SCRIPT.findall(text))
    return large >= _LARGE_SCRIPT_SHARE * max(letters, 1)


def train_vocabulary(sample: pa.Table, options: PreprocessOptions, *, file: str) -> bytes:
    """Train a SentencePiece model on lines of `SAMPLE_SCHEMA`; return the bytes of its file.

    Unless the options give a size, a sample that is too small for the default size gets the
    greatest size that it allows.

    Raises:
      UserError: The size does not suit the lines.
    """
    coverage = options.character_coverage
    if coverage is None:
        some = sample["line"].slice(0, _COVERAGE_LINES).to_pylist()
        coverage = _LARGE_SCRIPT_COVERAGE if has_large_script(some) else 1.0
    symbols = [*options.all_symbols]
    keeps_whitespace = not options.normalization.clean_whitespace
    if keeps_whitespace:
        symbols += [s for s in _KEPT_WHITESPACE if s not in symbols]
    is_target = file == vocabulary.TARGET_MODEL
    size = options.wanted_tokens
    while True:
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(str, sample["line"]),
                model_writer=model,
                minloglevel=_QUIET,
                vocab_size=size,
                model_type=options.vocabulary_type[-1 if is_target else 0],
                pad_id=vocabulary.PAD_ID,
                unk_id=vocabulary.UNK_ID,
                bos_id=vocabulary.BOS_ID,
                eos_id=vocabulary.EOS_ID,
                character_coverage=coverage,
                normalization_rule_name=options.normalization_rule,
                byte_fallback=options.byte_fallback,
                user_defined_symbols=symbols,
                remove_extra_whitespaces=not keeps_whitespace,
                num_threads=TRAINER_THREADS,
            )
            return model.getvalue()
        except _REFUSALS as error:
            reason = " ".join(str(error).split()).rpartition("] ")[2].rstrip(".")
            found = re.search(r"Vocabulary size too high.*?<= (\d+)", reason)
            most = int(found[1]) if found else 0
            is_given = options.vocabulary_size is not None
            if is_given or not vocabulary.SIZE_MULTIPLE <= most < size:
                raise UserError(
                    f"SentencePiece cannot train {file} of {size} tokens: {reason}. Check "
                    "`vocabulary_size` and the other options of vocabularies"
                ) from error
            size = most


def write_vocabulary(plan: DatasetPlan, name: str, content: bytes) -> str:
    """Write a vocabulary, and then its digest to the work folder; return the digest."""
    with plan.work.write_whole(join(plan.options.output, name)) as file:
        file.write(content)
    digest = digest_file(content)
    plan.work.write_text(plan.work.digest(name), digest)
    return digest


def find_vocabularies(plan: DatasetPlan) -> dict[str, str] | None:
    """Return the digests of the vocabularies by file name; None unless all files are whole."""
    digests = {}
    for name in plan.options.model_files:
        path, noted = join(plan.options.output, name), plan.work.digest(name)
        if not (files.is_there(path) and files.is_there(noted)):
            return None
        digests[name] = digest_file(files.read_bytes(path))
        if files.read_bytes(noted) != digests[name].encode():
            return None
    return digests


def delete_vocabularies(plan: DatasetPlan) -> None:
    """Delete vocabularies that are not whole, so that nobody takes them for finished ones."""
    paths = [join(plan.options.output, name) for name in plan.options.model_files]
    files.delete([path for path in paths if files.is_there(path)])


def load_planned(folder: str, digests: Mapping[str, str]) -> VocabularyPair:
    """Load the vocabularies of a dataset folder if they have these digests, by file name.

    Raises:
      UnfinishedError: A file has changed.
    """

    def read(path: str) -> bytes:
        content = files.read_bytes(path)
        expected = digests.get(path.rpartition("/")[2])
        if expected not in (None, digest_file(content)):
            raise UnfinishedError(
                f"{path} has changed since the job began. Run the same command again, which "
                "makes the file again"
            )
        return content

    return load_vocabularies(folder, read=read)
