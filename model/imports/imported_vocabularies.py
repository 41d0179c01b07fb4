"""Vocabularies with our ids (PAD 0, UNK 1, BOS 2, EOS 3) from the tokens of another program.

The other program numbers its tokens like a SentencePiece model, or like a list of tokens such as
`vocab.yml`. SentencePiece splits the texts in both cases.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import regex
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tt.model.errors import UserError, first_line
from tt.model.formats.foreign import check_share, piece_names
from tt.model.json_files import read_text
from tt.model.text.tokenization import load_pieces
from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SIZE_MULTIPLE, UNK_ID

_END, _UNKNOWN = "</s>", "<unk>"  # special tokens in a list of tokens
_LISTS = (".yml", ".yaml", ".json")
_LANGUAGE = regex.compile(r">>\S+<<")
_OUR_SPECIAL = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
_FIRST_ID = len(_OUR_SPECIAL)
_NO_ROW = -1
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # keeps tokens such as "no" as strings

# Kinds of pieces, and the fields that this module changes, with their numbers in SentencePiece's
# `sentencepiece_model.proto`. SentencePiece's Python module for this file is no alternative: it
# needs another version of protobuf than Beam.
_NORMAL, _UNKNOWN_KIND, _CONTROL, _UNUSED = 1, 2, 3, 5
_FIELDS = {
    "Piece": [("piece", 1, "STRING"), ("score", 2, "FLOAT"), ("type", 3, "INT32")],
    "Trainer": [
        ("vocab_size", 4, "INT32"), ("unk_id", 40, "INT32"), ("bos_id", 41, "INT32"),
        ("eos_id", 42, "INT32"), ("pad_id", 43, "INT32"), ("unk_piece", 45, "STRING"),
        ("bos_piece", 46, "STRING"), ("eos_piece", 47, "STRING"), ("pad_piece", 48, "STRING"),
    ],
    "Model": [("pieces", 1, "Piece"), ("trainer_spec", 2, "Trainer")],
}  # fmt: skip


@functools.cache
def _model_class() -> Any:
    """Return the protobuf class of a SentencePiece model."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tt.proto", package="tt", syntax="proto2")
    for message, fields in _FIELDS.items():
        added = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = added.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL)
            if kind in _FIELDS:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".tt.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind}")
    file.message_type[-1].field[0].label = kinds.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tt.Model"))


@dataclasses.dataclass(frozen=True)
class NumberedTokens:
    """The tokens of the source or the target, in the order of the other program."""

    path: Path  # file with the tokens
    names: list[str]
    end: int  # id of </s>
    unknown: int  # id of <unk>

    @classmethod
    def of_pieces(cls, path: Path) -> NumberedTokens:
        """Return the pieces of a SentencePiece model as tokens.

        Raises:
          UserError: The file is missing, is not a SentencePiece model, or has no piece </s>.
        """
        processor = load_pieces(path)
        names, end = piece_names(processor), processor.eos_id()
        if end < 0:
            raise UserError(f"{path} has no piece {_END}. Set `vocab` to the model's vocab.yml")
        return cls(path, names, end, processor.unk_id())

    @classmethod
    def load(cls, path: Path) -> NumberedTokens:
        """Read a list of tokens: YAML or JSON that maps tokens to ids, or one token per line.

        Raises:
          UserError: The file cannot be read, or is not a list of tokens.
        """
        try:
            text = read_text(path)
            if path.suffix in _LISTS:
                ids = {token: int(i) for token, i in yaml.load(text, Loader=_LOADER).items()}
                names = sorted(ids, key=ids.__getitem__)
                if [ids[name] for name in names] != list(range(len(ids))):
                    raise ValueError(f"its {len(ids):,} tokens are not numbered from 0")
            else:
                # Only \n ends a line, because a token may contain U+2028 or other line separators.
                names = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
                if len(set(names)) < len(names):
                    raise ValueError("a token occurs twice")
            return cls(path, names, names.index(_END), names.index(_UNKNOWN))
        except OSError as error:
            raise UserError(
                f"no list of tokens at {path} ({error.strerror}). Check the path"
            ) from error
        except Exception as error:  # PyYAML raises errors of many types for damaged files
            raise UserError(
                f"{path} is not a list of tokens ({first_line(error)}). Choose the model's "
                "vocab.yml"
            ) from error

    def check(self, *, rows: int, side: str, model: Path) -> None:
        """Check that the tokens fit a model.

        Args:
          rows: Rows of the model's embedding table.
          side: "source" or "target".
          model: The model's file, for the message.

        Raises:
          UserError: The number of tokens is wrong, or the model needs language tokens.
        """
        if len(self.names) != rows:
            raise UserError(
                f"{self.path} has {len(self.names):,} tokens, but {model} has {rows:,} {side} "
                "embeddings. Choose the vocabulary that the model was trained with"
            )
        if language := next((name for name in self.names if _LANGUAGE.fullmatch(name)), None):
            raise UserError(
                f"{self.path} has language tokens such as {language}, which `tt` cannot import "
                "from Marian. Convert the model with `ct2-marian-converter`, and use "
                "`tt import ctranslate2`"
            )


@dataclasses.dataclass(frozen=True)
class OurVocabulary:
    """A vocabulary with our ids, and the other program's row for each id."""

    content: bytes  # content of the SentencePiece model file
    rows: npt.NDArray[np.int64]  # [size], the other program's ids; -1 for missing tokens
    is_chosen: npt.NDArray[np.bool_]  # [size], whether the other program may choose the id

    @property
    def size(self) -> int:
        """The number of ids, including ids without a piece."""
        return len(self.rows)


def find_missing_pieces(path: Path, tokens: NumberedTokens) -> list[str]:
    """Return the pieces of a SentencePiece model that are missing in the tokens.

    Raises:
      UserError: So many pieces are missing that the SentencePiece model belongs to another model.
    """
    processor, known = load_pieces(path), set(tokens.names)
    cut = [
        name
        for i, name in enumerate(piece_names(processor))
        if not (processor.is_unknown(i) or processor.is_control(i) or processor.is_unused(i))
    ]
    check_share(path, cut, known)
    return [name for name in cut if name not in known]


def to_ours(path: Path, tokens: NumberedTokens, *, missing: Iterable[str]) -> OurVocabulary:
    """Return a vocabulary with our ids.

    The missing pieces remain in the SentencePiece model, so that it splits texts as before. They
    have the row of the unknown token, because the other program treats them as unknown.

    Args:
      path: The SentencePiece model.
      tokens: The other program's tokens.
      missing: Pieces of the SentencePiece model that are missing in the tokens.
    """
    special = (tokens.unknown, tokens.end)
    others = [i for i in range(len(tokens.names)) if i not in special]
    names = [*(tokens.names[i] for i in others), *dict.fromkeys(missing)]
    taken = {*names, *(tokens.names[i] for i in special)}
    model = _model_class().FromString(path.read_bytes())
    before = {piece.piece: (piece.score, piece.type or _NORMAL) for piece in model.pieces}
    least = min((score for score, _ in before.values()), default=0.0) - 1
    del model.pieces[:]
    for name, kind in (
        (_free_name("<pad>", taken), _CONTROL),
        (tokens.names[tokens.unknown], _UNKNOWN_KIND),
        (_free_name("<s>", taken), _CONTROL),
        (tokens.names[tokens.end], _CONTROL),
    ):
        model.pieces.add(piece=name, score=0.0, type=kind)
    for name in names:
        score, kind = before.get(name, (least, _UNUSED))
        model.pieces.add(piece=name, score=score, type=kind)
    count = model.trainer_spec.vocab_size = len(model.pieces)
    for name, i in _OUR_SPECIAL.items():
        setattr(model.trainer_spec, f"{name}_id", i)
        setattr(model.trainer_spec, f"{name}_piece", model.pieces[i].piece)
    rows = np.full([-(-count // SIZE_MULTIPLE) * SIZE_MULTIPLE], _NO_ROW)
    rows[[UNK_ID, EOS_ID]] = special
    rows[_FIRST_ID : _FIRST_ID + len(others)] = others
    is_chosen = rows != _NO_ROW
    rows[_FIRST_ID + len(others) : count] = tokens.unknown
    return OurVocabulary(model.SerializeToString(), rows, is_chosen)


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name for a special piece that differs from the names of all tokens."""
    while name in taken:
        name = f"<{name}>"
    return name
