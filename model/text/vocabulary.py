"""SentencePiece vocabularies, which convert texts to token ids and back, without TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import sentencepiece

from tt.model.errors import UserError, explain_denied
from tt.model.json_files import parse_fields, parse_json
from tt.model.text.normalization import WORD_BOUNDARY, TextNormalization
from tt.model.text.spans import PLACEHOLDERS

if TYPE_CHECKING:  # not at run time, so that `tt COMMAND --help` stays fast
    import numpy as np
    import numpy.typing as npt

PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3
SPECIAL_NAMES = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<bos>", EOS_ID: "<eos>"}
VOCABULARY_FILE = "vocabulary.json"
SHARED_MODEL = "vocabulary.spm"
SOURCE_MODEL = "source.spm"
TARGET_MODEL = "target.spm"

# Advice for a missing or damaged file in a dataset folder or model folder.
INCOMPLETE = "Copy the folder again from its source, or create it again"
SIZE_MULTIPLE = 8  # matrix products on GPUs are faster if dimensions are multiples of 8
# Unicode categories of letters, marks and symbols, which include emoji. Punctuation, numbers, white
# space and invisible characters do not count, because scripts share them: an English model knows
# the punctuation and the numbers in "Да, 2024.", but none of its letters.
_COUNTED = ("L", "M", "S")

Reader = Callable[[str], bytes]


def read_local(path: str) -> bytes:
    """Return the content of a file on this machine."""
    return Path(path).read_bytes()


class FlatIds(NamedTuple):
    """The ids of many texts, one text after the other."""

    ids: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]  # index after the last id of each text

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of ids of each text."""
        import numpy as np

        return np.diff(self.ends, prepend=0)


def count_letters(text: str) -> int:
    """Return the number of letters, marks and symbols in a text.

    >>> count_letters("Да, 2024."), count_letters("👍 a_b!")
    (2, 3)
    """
    return sum(map(_is_counted, text.replace(WORD_BOUNDARY, " ")))


@functools.lru_cache(maxsize=1 << 14)
def _is_counted(character: str) -> bool:
    return unicodedata.category(character)[0] in _COUNTED


class Vocabulary:
    """A SentencePiece model for one side, with the normalization that precedes it.

    The special ids are PAD 0, UNK 1, BOS 2 and EOS 3. `size` is the number of pieces, rounded up to
    a multiple of 8. Ids from `piece_count` on have an embedding, but no text.

    Args:
      path: The SentencePiece model.
      normalization: The normalization.
      read: Function that reads a file.
      remedy: Advice for a file that is missing or damaged.

    Raises:
      UserError: The file is missing, is not a SentencePiece model, or has other special ids.
    """

    def __init__(
        self,
        path: str | Path,
        normalization: TextNormalization,
        *,
        read: Reader = read_local,
        remedy: str = "Choose a SentencePiece model file (*.spm)",
    ) -> None:
        self.normalization = normalization
        try:
            model = read(str(path))
        except OSError as error:
            missing = UserError(f"no vocabulary at {path}. {remedy}")
            raise explain_denied(error) or missing from error
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError) as error:
            raise UserError(
                f"{path} is not a SentencePiece model ({str(error).split(' [')[0]}). {remedy}"
            ) from error
        processor = self._processor
        received = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if received != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise UserError(
                f"{path} must have the ids PAD 0, UNK 1, BOS 2, EOS 3. Received: {received}. "
                "Train the model with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3"
            )
        self.piece_count: int = processor.get_piece_size()
        self.size = -(-self.piece_count // SIZE_MULTIPLE) * SIZE_MULTIPLE

    @property
    def has_placeholders(self) -> bool:
        """Whether each placeholder is always a single token."""
        processor = self._processor
        return all(
            (i := processor.piece_to_id(placeholder)) != UNK_ID
            and i in processor.encode(f"a{placeholder}a")
            for placeholder in PLACEHOLDERS
        )

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalize texts and encode them with BOS and EOS."""
        # One thread is enough, because many processes encode at once.
        normalized = self.normalization(texts)
        return list(self._processor.encode(normalized, add_bos=True, add_eos=True, num_threads=1))

    def encode_flat(self, texts: list[str]) -> FlatIds:
        """Encode normalized texts with BOS and EOS into one array."""
        import numpy as np

        rows = self._processor.encode(texts, add_bos=True, add_eos=True, num_threads=1)
        ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        count = int(ends[-1]) if rows else 0
        return FlatIds(np.fromiter(itertools.chain.from_iterable(rows), np.int32, count), ends)

    def find_unknown(self, text: str) -> list[str]:
        """Return the parts of a text that become UNK."""
        return [
            piece.replace(WORD_BOUNDARY, " ").strip()
            for piece in self._pieces(text)
            if self._is_unknown(piece)
        ]

    def _pieces(self, text: str) -> list[str]:
        return list(self._processor.encode(self.normalization([text])[0], out_type=str))

    def _is_unknown(self, piece: str) -> bool:
        return bool(self._processor.piece_to_id(piece) == UNK_ID)

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Decode ids to texts. UNK becomes " ⁇ "; other ids without a text are ignored."""
        if not ids:
            return []  # SentencePiece would return one empty text
        pieces = self.piece_count
        skipped = (PAD_ID, BOS_ID, EOS_ID)
        plain = [[i for i in row if i not in skipped and i < pieces] for row in ids]
        return list(self._processor.decode(plain, num_threads=1))

    def piece(self, i: int) -> str:
        """Return the piece of an id below `piece_count`; U+2581 marks the start of a word."""
        return str(self._processor.id_to_piece(i))

    def names(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces of ids; special ids and ids without a piece get a name in <>."""
        return [
            SPECIAL_NAMES.get(i) or (self.piece(i) if i < self.piece_count else f"<id {i}>")
            for i in ids
        ]

    def learned_pieces(self) -> dict[str, tuple[int, float]]:
        """Return the id and the score of each piece that SentencePiece learned from text.

        Scores are log-probabilities in a unigram model and negated ranks in a BPE model.
        """
        processor = self._processor
        scores = {i: processor.get_score(i) for i in range(self.piece_count)}
        # Other pieces have the score 0. The first merge of BPE has the score -0.
        return {
            self.piece(i): (i, score)
            for i, score in scores.items()
            if math.copysign(1, score) < 0 and not processor.is_byte(i)
        }


@dataclasses.dataclass(frozen=True)
class VocabularyPair:
    """The vocabularies of both sides. A shared vocabulary is the same object twice."""

    source: Vocabulary
    target: Vocabulary

    @property
    def is_shared(self) -> bool:
        """Whether both sides use the same vocabulary."""
        return self.source is self.target

    @property
    def files(self) -> list[str]:
        """The names of all vocabulary files, `vocabulary.json` first."""
        models = [SHARED_MODEL] if self.is_shared else [SOURCE_MODEL, TARGET_MODEL]
        return [VOCABULARY_FILE, *models]


def vocabulary_json(*, shared: bool, normalization: TextNormalization) -> str:
    """Return the text of `vocabulary.json`, which contains the normalization.

    Args:
      shared: Whether both sides use the same SentencePiece model.
      normalization: The normalization.
    """
    info = {"shared": shared, "normalization": normalization.as_json()}
    return json.dumps(info, indent=2) + "\n"


def load_vocabularies(folder: str | Path, *, read: Reader = read_local) -> VocabularyPair:
    """Load the vocabularies of a dataset folder or model folder.

    Args:
      folder: The folder.
      read: Function that reads a file; pass one that can read remote files if necessary.

    Raises:
      UserError: `vocabulary.json` or a SentencePiece model is missing or cannot be read.
    """
    path = f"{folder}/{VOCABULARY_FILE}"
    try:
        content = read(path)
    except FileNotFoundError:
        raise UserError(
            f"{folder} has no {VOCABULARY_FILE}, so it is not a dataset folder or model folder. "
            "Choose a folder that `tt preprocess` or `tt train` wrote"
        ) from None
    try:
        info = parse_json(content, dict)
        parse_fields(TextNormalization, info["normalization"])
        normalization = TextNormalization(**info["normalization"])
        shared = info["shared"]
    except (ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(f"{path} cannot be read ({error}). {INCOMPLETE}") from error
    names = [SHARED_MODEL, SHARED_MODEL] if shared else [SOURCE_MODEL, TARGET_MODEL]
    models = {
        n: Vocabulary(f"{folder}/{n}", normalization, read=read, remedy=INCOMPLETE)
        for n in dict.fromkeys(names)
    }
    return VocabularyPair(*(models[name] for name in names))


def is_empty(ids: list[int]) -> bool:
    """Return whether an encoded text is empty: it contains only BOS and EOS.

    >>> is_empty([BOS_ID, EOS_ID]), is_empty([BOS_ID, 17, EOS_ID])
    (True, False)
    """
    return len(ids) <= 2
