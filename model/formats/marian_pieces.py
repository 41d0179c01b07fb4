"""The file of a SentencePiece model: its pieces and its special ids; all else is kept as it is.

SentencePiece's own Python module for this file asks for one version of protobuf, Beam for another.
The numbers of the fields are those of SentencePiece's `sentencepiece_model.proto`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from model.errors import UserError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # kinds of pieces

_SPECIAL = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}  # ids of special pieces; 5 on, their names


class Piece(NamedTuple):
    """A piece, by which a text is cut where its kind is `NORMAL`, `USER_DEFINED` or `BYTE`."""

    text: str
    score: float
    kind: int


class PieceFile:
    """A SentencePiece model's file.

    Raises:
      UserError: It is missing, or is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = path.read_bytes()
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)
            self._message = _message_class()()
            self._message.ParseFromString(content)
            if not all(isinstance(each.piece, str) for each in self._message.pieces):
                raise DecodeError("a piece is not UTF-8")  # protobuf returns bytes then
        except OSError as error:
            raise UserError(
                f"no SentencePiece model at {path} ({error.strerror}): name another"
            ) from error
        except (RuntimeError, DecodeError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{path} is not a SentencePiece model ({reason}): name a *.spm file"
            ) from error

    @functools.cached_property
    def pieces(self) -> list[Piece]:
        """All pieces by their ids."""
        return [Piece(each.piece, each.score, each.type) for each in self._message.pieces]

    @property
    def unknown(self) -> int:
        """The id of what is unknown."""
        return int(self._processor.unk_id())

    @property
    def end(self) -> int:
        """The id of the end of a text; -1 if there is none."""
        return int(self._processor.eos_id())

    def with_pieces(self, pieces: list[Piece], *, special: dict[str, int]) -> bytes:
        """Returns the content of a file that cuts texts as this one does, with other ids.

        Args:
          pieces: All pieces by their ids.
          special: The ids of "unk", "bos", "eos" and "pad"; -1 where there is none.
        """
        message = _message_class()()
        message.CopyFrom(self._message)
        del message.pieces[:]
        for piece in pieces:
            message.pieces.add(piece=piece.text, score=piece.score, type=piece.kind)
        message.trainer_spec.vocab_size = len(pieces)
        for name, i in special.items():
            setattr(message.trainer_spec, f"{name}_id", i)
            text = pieces[i].text if i >= 0 else f"<{name}>"
            setattr(message.trainer_spec, f"{name}_piece", text)
        content: bytes = message.SerializeToString()
        return content


@functools.cache
def _message_class() -> Any:
    """Returns the class of the file's message, with the fields that are used."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="tt_piece_file.proto", package="tt_piece_file", syntax="proto2"
    )

    def add(message: Any, name: str, number: int, kind: int, *, of: str = "") -> Any:
        field = message.field.add(name=name, number=number, type=kind)
        field.label = kinds.LABEL_OPTIONAL
        if of:
            field.type_name = f".tt_piece_file.{of}"
        return field

    piece = file.message_type.add(name="Piece")
    add(piece, "piece", 1, kinds.TYPE_STRING)
    add(piece, "score", 2, kinds.TYPE_FLOAT)
    add(piece, "type", 3, kinds.TYPE_INT32)
    piece.field[2].default_value = str(NORMAL)
    spec = file.message_type.add(name="TrainerSpec")
    add(spec, "vocab_size", 4, kinds.TYPE_INT32)
    for name, number in _SPECIAL.items():
        add(spec, f"{name}_id", number, kinds.TYPE_INT32)
        add(spec, f"{name}_piece", number + 5, kinds.TYPE_STRING)
    model = file.message_type.add(name="Model")
    pieces = add(model, "pieces", 1, kinds.TYPE_MESSAGE, of="Piece")
    pieces.label = kinds.LABEL_REPEATED
    add(model, "trainer_spec", 2, kinds.TYPE_MESSAGE, of="TrainerSpec")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tt_piece_file.Model"))
