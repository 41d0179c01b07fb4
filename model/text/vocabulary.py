"""Text <-> token ids by SentencePiece vocabularies, without TensorFlow."""

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

if TYPE_CHECKING:  # the help of a command needs none
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

# What to do where a file of a dataset folder or of a model folder is missing or damaged.
INCOMPLETE = "copy the folder again from where it came, or make it again"
SIZE_MULTIPLE = 8  # matrix products on GPUs want dimensions that are multiples of 8
# Unicode's general categories: letters, the marks on them, and symbols (emoji are symbols). Not
# punctuation, numbers, white space and what is invisible: scripts share those, so that they say
# nothing of whether a model can read the rest. In "Да, 2024." no letter is known.
_COUNTED = ("L", "M", "S")

Reader = Callable[[str], bytes]


def read_local(path: str) -> bytes:
    """Reads a file of this machine."""
    return Path(path).read_bytes()


class FlatIds(NamedTuple):
    """The ids of many texts, one text after the other."""

    ids: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]  # where those of each text end

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of ids of each text."""
        import numpy as np

        return np.diff(self.ends, prepend=0)


class UnknownParts(NamedTuple):
    """What of a text is unknown."""

    unknown_characters: int  # letters and symbols in unknown tokens
    characters: int  # letters and symbols
    unknown_tokens: int  # without a piece in the vocabulary, one for a run of such characters
    tokens: int  # all of them, but for word boundaries that stand alone

    def describe(self) -> str | None:
        """Says how much of the letters and symbols, or of the tokens, is unknown, if over half is.

        >>> UnknownParts(21, 26, 1, 6).describe()
        '21 of 26 letters and symbols are unknown to the model'
        >>> UnknownParts(2, 7, 2, 3).describe()
        '2 of 3 tokens are unknown to the model'
        """
        if 2 * self.unknown_characters > self.characters:
            counts = f"{self.unknown_characters} of {self.characters} letters and symbols"
        elif 2 * self.unknown_tokens > self.tokens:
            counts = f"{self.unknown_tokens} of {self.tokens} tokens"
        else:
            return None
        return f"{counts} are unknown to the model"


def count_letters(text: str) -> int:
    """Returns how many letters, marks and symbols a text has.

    >>> count_letters("Да, 2024."), count_letters("👍 a_b!")
    (2, 3)
    """
    return sum(map(_is_counted, text.replace(WORD_BOUNDARY, " ")))


@functools.lru_cache(maxsize=1 << 14)
def _is_counted(character: str) -> bool:
    return unicodedata.category(character)[0] in _COUNTED


class Vocabulary:
    """One side's SentencePiece model with the normalisation that goes before it.

    Ids: PAD 0, UNK 1, BOS 2, EOS 3. `size` is the number of pieces rounded up to a multiple of 8;
    ids from `piece_count` on have an embedding and no text.

    Raises:
      UserError: The file is missing, is no SentencePiece model, or has other special ids.
    """

    def __init__(
        self,
        path: str | Path,
        normalization: TextNormalization,
        *,
        read: Reader = read_local,
        remedy: str = "name a SentencePiece model file (*.spm)",
    ) -> None:
        self.normalization = normalization
        try:
            model = read(str(path))
        except OSError as error:
            missing = UserError(f"no vocabulary at {path}: {remedy}")
            raise explain_denied(error) or missing from error
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError) as error:
            raise UserError(
                f"{path} is not a SentencePiece model ({str(error).split(' [')[0]}): {remedy}"
            ) from error
        processor = self._processor
        received = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if received != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise UserError(
                f"{path} must have the ids PAD 0, UNK 1, BOS 2, EOS 3. Received: {received} "
                "(train it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3)"
            )
        self.piece_count: int = processor.get_piece_size()
        self.size = -(-self.piece_count // SIZE_MULTIPLE) * SIZE_MULTIPLE

    @property
    def has_placeholders(self) -> bool:
        """Whether each placeholder is always a token of its own."""
        processor = self._processor
        return all(
            (i := processor.piece_to_id(placeholder)) != UNK_ID
            and i in processor.encode(f"a{placeholder}a")
            for placeholder in PLACEHOLDERS
        )

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalises texts and encodes them, BOS and EOS added."""
        # One thread: many processes encode at once.
        normalized = self.normalization(texts)
        return list(self._processor.encode(normalized, add_bos=True, add_eos=True, num_threads=1))

    def encode_flat(self, texts: list[str]) -> FlatIds:
        """Encode normalized texts, BOS and EOS added, as `encode` does, into one array."""
        import numpy as np

        rows = self._processor.encode(texts, add_bos=True, add_eos=True, num_threads=1)
        ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        count = int(ends[-1]) if rows else 0
        return FlatIds(np.fromiter(itertools.chain.from_iterable(rows), np.int32, count), ends)

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown; it costs several times what encoding it does.

        Word boundaries that stand alone are no tokens: "👍" becomes one, and UNK: all is unknown.
        """
        pieces = self._pieces(text)
        # Of an unknown token, SentencePiece gives the characters.
        unknown = [piece for piece in pieces if self._is_unknown(piece)]
        return UnknownParts(
            unknown_characters=count_letters("".join(unknown)),
            characters=count_letters("".join(pieces)),
            unknown_tokens=len(unknown),
            tokens=len(pieces) - pieces.count(WORD_BOUNDARY),
        )

    def find_unknown(self, text: str) -> list[str]:
        """Return the parts of a text that become UNK, as they stand in the text."""
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
        """Decodes ids to texts; UNK is " ⁇ ", special ids and those without a piece add nothing."""
        if not ids:
            return []  # SentencePiece would take it for one text without ids
        pieces = self.piece_count
        skipped = (PAD_ID, BOS_ID, EOS_ID)
        plain = [[i for i in row if i not in skipped and i < pieces] for row in ids]
        return list(self._processor.decode(plain, num_threads=1))

    def piece(self, i: int) -> str:
        """Returns the piece of an id below `piece_count`; U+2581 begins a word."""
        return str(self._processor.id_to_piece(i))

    def names(self, ids: Iterable[int]) -> list[str]:
        """Name ids by their pieces; special ids and ids without a piece get a name in <>."""
        return [
            SPECIAL_NAMES.get(i) or (self.piece(i) if i < self.piece_count else f"<id {i}>")
            for i in ids
        ]

    def learnt_pieces(self) -> dict[str, tuple[int, float]]:
        """Returns the id and the score of each piece that SentencePiece learnt from text.

        Scores are log-probabilities in a unigram model and negated ranks in BPE.
        """
        processor = self._processor
        scores = {i: processor.get_score(i) for i in range(self.piece_count)}
        # Pieces that were not learnt have the score 0; the first merge of BPE has -0.
        return {
            self.piece(i): (i, score)
            for i, score in scores.items()
            if math.copysign(1, score) < 0 and not processor.is_byte(i)
        }


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
    info = {"shared": shared, "normalization": normalization.as_json()}
    return json.dumps(info, indent=2) + "\n"


def load_vocabularies(folder: str | Path, *, read: Reader = read_local) -> VocabularyPair:
    """Loads the vocabularies of a dataset or model folder, by `read` where that is remote.

    Raises:
      UserError: The folder has no `vocabulary.json`, or it or a model cannot be read.
    """
    path = f"{folder}/{VOCABULARY_FILE}"
    try:
        info = parse_json(read(path), dict)
        parse_fields(TextNormalization, info["normalization"])
        normalization = TextNormalization(**info["normalization"])
        shared = info["shared"]
    except FileNotFoundError:
        raise UserError(
            f"{folder} has no {VOCABULARY_FILE}: it is neither a dataset nor a model folder"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}): {INCOMPLETE}") from error
    names = [SHARED_MODEL, SHARED_MODEL] if shared else [SOURCE_MODEL, TARGET_MODEL]
    models = {
        n: Vocabulary(f"{folder}/{n}", normalization, read=read, remedy=INCOMPLETE)
        for n in dict.fromkeys(names)
    }
    return VocabularyPair(*(models[name] for name in names))


def is_empty(ids: list[int]) -> bool:
    """Says whether an encoded text is BOS and EOS alone: normalisation left nothing of it.

    >>> is_empty([BOS_ID, EOS_ID]), is_empty([BOS_ID, 17, EOS_ID])
    (True, False)
    """
    return len(ids) <= 2
