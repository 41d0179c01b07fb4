"""Train vocabularies on a deterministic sample of lines, and write, check and load them.

The sample contains the k distinct normalized lines with the smallest hashes. It depends neither on
the order of the lines nor on the number of workers.
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
from tt.model.storage import files, listing
from tt.model.storage.paths import join
from tt.model.text import vocabulary
from tt.model.text.vocabulary import VocabularyPair, load_vocabularies
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.plan import DatasetPlan

# SentencePiece's trainer raises these errors if the options do not fit the texts.
_TRAINER_ERRORS = (RuntimeError, ValueError, TypeError, OverflowError)
SAMPLE_SCHEMA = pa.schema([("hash", pa.uint64()), ("line", pa.large_string())])
_ERRORS_ONLY = 2  # a log level of the trainer
_LINE_BYTES = 4192  # the trainer's default: it drops longer lines
_MOST_LINE_BYTES = 1 << 20  # more than any line that the filters keep
_SPECIAL, _BYTES = 4, 256  # the tokens for padding and the like, and the tokens of single bytes

# The result of SentencePiece depends on the number of threads, so this number is fixed.
TRAINER_THREADS = 4

# If the letters of a side contain at least this share of Han, kana and Hangul, the rarest 0.05 % of
# its characters get no token, as SentencePiece's authors advise for such scripts.
_LARGE_SCRIPT_SHARE = 0.2
_LARGE_SCRIPT_COVERAGE = 0.9995

_LARGE_SCRIPT = regex.compile(r"[\p{Han}\p{Bopomofo}\p{Hiragana}\p{Katakana}\p{Hangul}]")
_FIRST_LETTER = ord("A")  # an approximation: all characters from "A" on count as letters

_COVERAGE_LINES = 100_000


# These characters need tokens if the options keep white space. U+0020 always has a token.
_KEPT_WHITESPACE = ("\t", "\n", "\r")


def _hash_line(line: str) -> bytes:
    # This hash is independent of the hash that decides the split.
    return hashlib.blake2b(line.encode(), digest_size=8, person=b"tt sample").digest()


def distinct_lines(lines: Sequence[str], limit: int | None = None) -> pa.Table:
    """Return the distinct lines with the smallest hashes, sorted by hash, in `SAMPLE_SCHEMA`.

    >>> distinct_lines(["b", "a", "b"])["line"].to_pylist()
    ['a', 'b']
    """
    hashes = np.frombuffer(b"".join([_hash_line(line) for line in lines]), "<u8")
    return _least_lines(pa.table([hashes, lines], schema=SAMPLE_SCHEMA), limit)


def _least_lines(table: pa.Table, limit: int | None) -> pa.Table:
    # Lines with equal hashes count as equal. This may lose one of 10^9 lines, which does no harm.
    _, first = np.unique(table["hash"].to_numpy(), return_index=True)
    return table.take(first[:limit])


@dataclasses.dataclass(frozen=True)
class Sample:
    """A sample of lines of some units: the lines with the smallest hashes."""

    tables: dict[str, pa.Table]  # tables of `SAMPLE_SCHEMA`, by the file name of the vocabulary
    rejected: collections.Counter[str]  # number of rejected pairs, by reason


def merge_samples(samples: Iterable[Sample], limit: int) -> Sample:
    """Merge samples into one with at most `limit` lines per vocabulary, using little memory."""
    tables: dict[str, pa.Table] = {}
    rejected: collections.Counter[str] = collections.Counter()
    for sample in samples:
        rejected.update(sample.rejected)
        for file, table in sample.tables.items():
            held = pa.concat_tables([tables[file], table]) if file in tables else table
            tables[file] = _least_lines(held, limit) if held.num_rows > 2 * limit else held
    return Sample({file: _least_lines(held, limit) for file, held in tables.items()}, rejected)


def has_large_script(lines: Sequence[str]) -> bool:
    """Return whether at least a fifth of the letters are Han, kana or Hangul.

    >>> has_large_script(["the dog", "das Pferd"]), has_large_script(["我有一只狗", "dog"])
    (False, True)
    """
    counts = np.bincount(np.frombuffer("".join(lines).encode("utf-32-le"), "<u4"))
    characters = np.flatnonzero(counts)
    letters = int(counts[_FIRST_LETTER:].sum())
    large = sum(int(counts[each]) for each in characters if _LARGE_SCRIPT.match(chr(each)))
    return large >= _LARGE_SCRIPT_SHARE * max(letters, 1)


def train_vocabulary(sample: pa.Table, options: PreprocessOptions, *, file: str) -> bytes:
    """Train a SentencePiece model on lines of `SAMPLE_SCHEMA`, and return the bytes of its file.

    If the options give no size and the sample is too small for the default size, the vocabulary
    gets the largest size that the sample allows.

    Raises:
      UserError: The sample is too small for the given size, or the options do not fit it.
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
    size, longest = options.wanted_tokens, _LINE_BYTES
    while True:
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(str, sample["line"]),
                model_writer=model,
                minloglevel=_ERRORS_ONLY,
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
                max_sentence_length=longest,
                num_threads=TRAINER_THREADS,
            )
            return model.getvalue()
        except _TRAINER_ERRORS as error:
            reason = " ".join(str(error).split()).rpartition("] ")[2].rstrip(".")
            if longest == _LINE_BYTES and "sentences_.empty()" in reason:
                # All lines are too long for SentencePiece's default, which drops them.
                longest = _MOST_LINE_BYTES
                continue
            found = re.search(r"Vocabulary size too high.*?<= (\d+)", reason)
            most = int(found[1]) if found else 0
            is_given = options.vocabulary_size is not None
            if is_given or not vocabulary.SIZE_MULTIPLE <= most < size:
                least = _SPECIAL + len(symbols) + _BYTES * options.byte_fallback
                raise UserError(
                    f"SentencePiece cannot train {file} of {size} tokens: "
                    f"{_explain(reason, most=most, least=least)}"
                ) from error
            size = most


def _explain(reason: str, *, most: int, least: int) -> str:
    """Return the cause of an error of the trainer, with a fix that works.

    Args:
      reason: The trainer's own message.
      most: The largest possible size, or 0 if the size is not too large.
      least: The number of tokens that are not characters.
    """
    if 0 < most < vocabulary.SIZE_MULTIPLE:
        return (
            f"the texts allow only {most}, and a vocabulary has at least "
            f"{vocabulary.SIZE_MULTIPLE}. Choose a larger corpus"
        )
    if most:
        return f"the texts allow at most {most}. Set `vocabulary_size={most}`, or omit it"
    if needed := re.search(r"required_chars. \d+ vs (\d+)", reason):
        return (
            f"the texts have {int(needed[1]) - least} characters, so at least {needed[1]} tokens "
            f"are necessary. Set `vocabulary_size={needed[1]}` or more"
        )
    if "(vocab_size) >= (0)" in reason:
        return (
            f"at least {least} tokens are necessary for symbols. Set `vocabulary_size={least + 1}` "
            "or more"
        )
    return f"{reason}. Change `vocabulary_size` or the other vocabulary options"


def write_vocabulary(plan: DatasetPlan, name: str, content: bytes) -> str:
    """Write a vocabulary to the dataset, then its digest to the work folder; return the digest."""
    with plan.work.write_whole(join(plan.options.output, name)) as file:
        file.write(content)
    digest = digest_file(content)
    plan.work.write_text(plan.work.digest(name), digest)
    return digest


def find_vocabularies(plan: DatasetPlan) -> dict[str, str] | None:
    """Return the digests of the vocabularies by file name; None unless all are complete."""
    digests = {}
    for name in plan.options.model_files:
        path, noted = join(plan.options.output, name), plan.work.digest(name)
        if not (listing.exists(path) and listing.exists(noted)):
            return None
        digests[name] = digest_file(files.read_bytes(path))
        if files.read_bytes(noted) != digests[name].encode():
            return None
    return digests


def delete_vocabularies(plan: DatasetPlan) -> None:
    """Delete the vocabularies of an incomplete set, so that nobody uses them."""
    paths = [join(plan.options.output, name) for name in plan.options.model_files]
    files.delete([path for path in paths if listing.exists(path)])


def load_planned(folder: str, digests: Mapping[str, str]) -> VocabularyPair:
    """Load the vocabularies of a dataset folder, and check their digests, given by file name.

    Raises:
      UnfinishedError: A file has changed.
    """

    def read(path: str) -> bytes:
        content = files.read_bytes(path)
        expected = digests.get(path.rpartition("/")[2])
        if expected not in (None, digest_file(content)):
            raise UnfinishedError(
                f"{path} has changed since the job began. Run the same command again to make the "
                "file again"
            )
        return content

    return load_vocabularies(folder, read=read)
