"""Text <-> ids: the normalisation of text and the SentencePiece vocabularies, without TensorFlow.

Training data and the text to translate go through the same two steps, `TextNormalization` and
`Vocabulary.encode`; the options of the first lie beside the second in `vocabulary.json`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import unicodedata
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sentencepiece

from model.errors import UserError

PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3

VOCABULARY_FILE = "vocabulary.json"
SHARED_MODEL = "vocabulary.spm"
SOURCE_MODEL = "source.spm"
TARGET_MODEL = "target.spm"

SIZE_MULTIPLE = 8  # matrix products on GPUs want dimensions that are multiples of 8

UnicodeForm = Literal["NFC", "NFKC", "none"]

# What str.split() does not take for white space and no reader sees: C0 and C1 controls, soft
# hyphen, zero-width space, word joiner, byte order mark. ZWNJ and ZWJ stay: Persian and the
# scripts of India spell with them.
_INVISIBLE = [
    *range(0x00, 0x09),
    *range(0x0E, 0x1C),
    *range(0x7F, 0x85),
    *range(0x86, 0xA0),
    0xAD,
    0x200B,
    0x2060,
    0xFEFF,
]
_DELETE_INVISIBLE = dict.fromkeys(_INVISIBLE)

# Texts in which this RE2 pattern finds nothing are already clean; testing all of them in Arrow
# and mending the few that are not is several times cheaper than rewriting all.
_UNCLEAN = (
    r"  |^ | $"
    r"|[\x00-\x1f\x7f-\xa0\xad\x{1680}\x{2000}-\x{200b}\x{2028}\x{2029}"
    r"\x{202f}\x{205f}\x{2060}\x{3000}\x{feff}]"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextNormalization:
    """What is done to a text before it is split into pieces, in training and in translation.

    Attributes:
      unicode_form: The Unicode normal form, or "none".
      clean_whitespace: Delete control and invisible characters, turn every run of white space
        (line separators and no-break spaces too) into one space, and strip the ends.
    """

    unicode_form: UnicodeForm = "NFC"
    clean_whitespace: bool = True

    def __post_init__(self) -> None:
        if self.unicode_form not in ("NFC", "NFKC", "none"):
            raise UserError(
                f"Unicode form must be NFC, NFKC or none. Received: {self.unicode_form!r}"
            )

    def __call__(self, texts: list[str]) -> list[str]:
        r"""Normalises texts.

        >>> TextNormalization()(["  a\u00a0 b\u200b ", "c"])
        ['a b', 'c']
        """
        if self.unicode_form != "none":
            form = self.unicode_form
            texts = [unicodedata.normalize(form, text) for text in texts]
        if self.clean_whitespace and texts:
            unclean = pc.match_substring_regex(pa.array(texts, pa.large_string()), _UNCLEAN)
            if pc.any(unclean).as_py():
                texts = list(texts)
                for i in np.flatnonzero(unclean.to_numpy(zero_copy_only=False)):
                    texts[i] = " ".join(texts[i].translate(_DELETE_INVISIBLE).split())
        return texts


def is_empty(ids: list[int]) -> bool:
    """Says whether an encoded text is BOS and EOS alone: normalisation left nothing of it.

    >>> is_empty([BOS_ID, EOS_ID]), is_empty([BOS_ID, 17, EOS_ID])
    (True, False)
    """
    return len(ids) <= 2


class Vocabulary:
    """One side's SentencePiece model with the normalisation that goes before it.

    Ids: PAD 0, UNK 1, BOS 2, EOS 3. `size` is the number of pieces rounded up to a multiple of
    8; ids from `piece_count` on have an embedding and no text.

    Raises:
      UserError: The file is missing, is no SentencePiece model, or has other special ids.
    """

    def __init__(self, path: str | Path, normalization: TextNormalization) -> None:
        self.path = Path(path)
        self.normalization = normalization
        if not self.path.is_file():
            raise UserError(f"no vocabulary at {path}: name a SentencePiece model file (*.spm)")
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (RuntimeError, OSError) as error:
            raise UserError(f"{path} is not a SentencePiece model: {error}") from error
        processor = self._processor
        received = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if received != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise UserError(
                f"{path} must have the ids PAD 0, UNK 1, BOS 2, EOS 3. Received: {received} "
                "(train it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3)"
            )
        self.piece_count: int = processor.get_piece_size()
        self.size = -(-self.piece_count // SIZE_MULTIPLE) * SIZE_MULTIPLE

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalises texts and encodes them, BOS and EOS added."""
        return self.encode_normalized(self.normalization(texts))

    def encode_normalized(self, texts: list[str]) -> list[list[int]]:
        """Encodes texts that have been normalised already, BOS and EOS added."""
        # One thread: the callers are themselves one of many workers.
        ids: list[list[int]] = self._processor.encode(
            texts, add_bos=True, add_eos=True, num_threads=1
        )
        return ids

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Decodes ids to texts; special ids and those without a piece add nothing.

        UNK is SentencePiece's own mark for the unknown, " ⁇ ".
        """
        if not ids:
            return []  # SentencePiece would take it for one text without ids
        pieces = self.piece_count
        skipped = (PAD_ID, BOS_ID, EOS_ID)
        plain = [[i for i in row if i not in skipped and i < pieces] for row in ids]
        texts: list[str] = self._processor.decode(plain, num_threads=1)
        return texts


@dataclasses.dataclass(frozen=True)
class VocabularyPair:
    """The vocabularies of both sides; with a shared one, the same object twice."""

    source: Vocabulary
    target: Vocabulary

    @property
    def is_shared(self) -> bool:
        """Whether both sides use one vocabulary."""
        return self.source is self.target

    @property
    def files(self) -> list[str]:
        """The names of all files that belong to the pair, `vocabulary.json` first."""
        models = [SHARED_MODEL] if self.is_shared else [SOURCE_MODEL, TARGET_MODEL]
        return [VOCABULARY_FILE, *models]


def vocabulary_json(*, shared: bool, normalization: TextNormalization) -> str:
    """Returns the text of `vocabulary.json`: which models lie beside it, and the normalisation."""
    info = {"shared": shared, "normalization": dataclasses.asdict(normalization)}
    return json.dumps(info, indent=2) + "\n"


def load_vocabularies(folder: str | Path) -> VocabularyPair:
    """Loads the vocabularies of a dataset folder or of an exported model folder.

    Raises:
      UserError: The folder has no `vocabulary.json`, or it or a model cannot be read.
    """
    path = Path(folder) / VOCABULARY_FILE
    try:
        info = json.loads(path.read_text("utf-8"))
        normalization = TextNormalization(**info["normalization"])
        shared = info["shared"]
    except FileNotFoundError:
        raise UserError(
            f"{folder} has no {VOCABULARY_FILE}: it is neither a dataset nor a model folder"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    load = functools.partial(Vocabulary, normalization=normalization)
    if shared:
        vocabulary = load(Path(folder) / SHARED_MODEL)
        return VocabularyPair(vocabulary, vocabulary)
    return VocabularyPair(load(Path(folder) / SOURCE_MODEL), load(Path(folder) / TARGET_MODEL))
