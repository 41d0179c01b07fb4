"""Marian's tokens and our ids: PAD 0, UNK 1, BOS 2, EOS 3, and all others in Marian's order.

Marian numbers its tokens by a SentencePiece model, or by a file that lists them (`vocab.yml`) where
texts are cut outside of it. It has no PAD and no BOS.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import regex

from model.errors import UserError
from model.folders.json_files import read_text
from model.formats.marian_pieces import (
    CONTROL,
    UNKNOWN,
    UNUSED,
    Piece,
    PieceFile,
)
from model.formats.marian_yaml_text import parse_yaml
from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SIZE_MULTIPLE, UNK_ID

_END, _UNKNOWN = "</s>", "<unk>"  # in a list of tokens
_LISTS = (".yml", ".yaml", ".json")
_LANGUAGE = regex.compile(r">>\S+<<")
_OUR_SPECIAL = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
_FIRST_ID = len(_OUR_SPECIAL)
_MOST_MISSING = 0.2  # of the pieces, in a list of tokens that is this model's
_NO_ROW = -1


@dataclasses.dataclass(frozen=True)
class MarianTokens:
    """The tokens of a side in Marian's order."""

    path: Path  # of the file that lists them
    names: list[str]
    end: int  # id of </s>
    unknown: int  # id of <unk>

    @classmethod
    def of_pieces(cls, file: PieceFile) -> MarianTokens:
        """Takes the pieces of a SentencePiece model, which is Marian's own vocabulary.

        Raises:
          UserError: It has no end of a text.
        """
        if file.end < 0:
            raise UserError(
                f"{file.path} has no piece {_END}, as Marian's vocabularies have: name the list of "
                "tokens, vocab.yml, with `vocab`"
            )
        return cls(file.path, [piece.text for piece in file.pieces], file.end, file.unknown)

    @classmethod
    def load(cls, path: Path) -> MarianTokens:
        """Reads a list of tokens: YAML or JSON of ids by tokens, or a token a line.

        Raises:
          UserError: It is missing, or is none.
        """
        try:
            names = _read_list(path)
        except OSError as error:
            raise UserError(
                f"no list of tokens at {path} ({error.strerror}): name another"
            ) from error
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{path} is no list of Marian's tokens ({reason}): name the vocab.yml of the model"
            ) from error
        missing = [token for token in (_END, _UNKNOWN) if token not in names]
        if missing:
            raise UserError(
                f"{path} is no list of Marian's tokens (it has no {missing[0]}): name the "
                "vocab.yml of the model"
            )
        return cls(path, names, names.index(_END), names.index(_UNKNOWN))

    def check(self, *, rows: int, side: str, model: Path) -> None:
        """Checks that they are those of a model with so many rows of embeddings.

        Raises:
          UserError: They are not, or tt cannot give them to the model.
        """
        if len(self.names) != rows:
            raise UserError(
                f"{self.path} has {len(self.names):,} tokens, and {model} {rows:,} for {side}s: "
                "name the vocabulary that the model was trained with"
            )
        if language := next((name for name in self.names if _LANGUAGE.fullmatch(name)), None):
            raise UserError(
                f"{self.path} has tokens of languages such as {language}, which are put before "
                "sources: import the model for CTranslate2, with its `ct2-marian-converter` and "
                "`tt import ctranslate2`"
            )


def _read_list(path: Path) -> list[str]:
    text = read_text(path)
    if path.suffix not in _LISTS:
        # Only \n ends a line: U+2028 and the like may be a part of a token.
        lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        if len(set(lines)) < len(lines):
            raise ValueError("a token comes twice")
        return lines
    # Tokens such as "no" and "1" are strings.
    ids = parse_yaml(text, all_strings=True)
    if not isinstance(ids, dict) or not all(isinstance(i, str) for i in ids.values()):
        raise ValueError("it does not give each token a number")
    names = {int(i): token for token, i in ids.items()}
    if sorted(names) != list(range(len(ids))):
        raise ValueError(f"its {len(ids):,} tokens are not numbered from 0 on, each once")
    return [names[i] for i in range(len(names))]


@dataclasses.dataclass(frozen=True)
class OurVocabulary:
    """A side as we have it: a SentencePiece model with our ids, and Marian's row for each id."""

    content: bytes  # of the file
    rows: npt.NDArray[np.int64]  # [size], Marian's ids; -1 of ids that it has not
    is_chosen: npt.NDArray[np.bool_]  # [size], whether Marian may choose the id

    @property
    def size(self) -> int:
        """Ids, with those that have no piece."""
        return len(self.rows)


def pieces_beside(file: PieceFile, tokens: MarianTokens) -> list[str]:
    """Returns the pieces that a text can be cut into and Marian does not know.

    Raises:
      UserError: They are so many that the SentencePiece model is another model's.
    """
    known = set(tokens.names)
    cut = [p.text for p in file.pieces if p.kind not in (UNKNOWN, CONTROL, UNUSED)]
    missing = [text for text in cut if text not in known]
    if len(missing) > _MOST_MISSING * len(cut):
        raise UserError(
            f"{file.path} is another model's: {len(missing):,} of its {len(cut):,} pieces, "
            f"{missing[0]!r} for example, are not in {tokens.path}. Name the one that the model "
            "was trained with"
        )
    return missing


def to_ours(file: PieceFile, tokens: MarianTokens, *, beside: Iterable[str]) -> OurVocabulary:
    """Returns a side's vocabulary as we have it.

    What Marian does not know stays a piece, so that texts are cut as before, and has the row of the
    unknown token: that is what Marian takes it for.
    """
    of_text = {piece.text: piece for piece in file.pieces}
    special = (tokens.unknown, tokens.end)
    others = [i for i in range(len(tokens.names)) if i not in special]
    extra = list(dict.fromkeys(beside))
    names = [*(tokens.names[i] for i in others), *extra]
    taken = {*names, tokens.names[tokens.unknown], tokens.names[tokens.end]}
    pieces = [
        Piece(_free_name("<pad>", taken), 0.0, CONTROL),
        Piece(tokens.names[tokens.unknown], 0.0, UNKNOWN),
        Piece(_free_name("<s>", taken), 0.0, CONTROL),
        Piece(tokens.names[tokens.end], 0.0, CONTROL),
    ]
    least = min((piece.score for piece in file.pieces), default=0.0) - 1
    pieces += [of_text.get(name, Piece(name, least, UNUSED)) for name in names]
    size = -(-len(pieces) // SIZE_MULTIPLE) * SIZE_MULTIPLE
    rows = np.full([size], _NO_ROW)
    rows[[UNK_ID, EOS_ID]] = special
    rows[_FIRST_ID : _FIRST_ID + len(others)] = others
    is_chosen = rows != _NO_ROW
    rows[_FIRST_ID + len(others) : len(pieces)] = tokens.unknown
    content = file.with_pieces(pieces, special=_OUR_SPECIAL)
    return OurVocabulary(content, rows, is_chosen)


def _free_name(name: str, taken: set[str]) -> str:
    """Returns a name for a special piece that no token has."""
    while name in taken:
        name = f"<{name}>"
    return name
