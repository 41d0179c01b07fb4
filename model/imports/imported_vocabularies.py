"""Vocabularies with our ids (PAD 0, UNK 1, BOS 2, EOS 3) from the tokens of another program.

The other program has its own list of tokens. SentencePiece models split the texts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tt.model.formats.foreign import check_share, piece_names
from tt.model.text.tokenization import load_pieces
from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SIZE_MULTIPLE, UNK_ID

_OUR_SPECIAL = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
_FIRST_ID = len(_OUR_SPECIAL)
_NO_ROW = -1

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

    names: list[str]
    end: int  # id of </s>
    unknown: int  # id of <unk>


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
