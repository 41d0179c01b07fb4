"""The files of a CTranslate2 model: which model it is, its tokens and its sizes; no CTranslate2."""

from __future__ import annotations

import dataclasses
import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

from model.errors import UserError
from model.folders.json_files import read_json, read_text

CTRANSLATE2_FILE = "model.bin"  # the weights, beside a config.json
CTRANSLATE2_CONFIG = "config.json"
# CTranslate2 has a table of positions, we compute them: its own default cuts sources at 1024.
POSITIONS = 2048
TRANSFORMER = "TransformerSpec"  # an encoder and a decoder: what translates

_SIDES = ("shared", "source", "target")
_OLDEST = 5  # version of model.bin from which on it is read here, in 2021
_ITEM_BYTES = (4, 1, 2, 4, 2, 2)  # of float32, int8, int16, int32, float16, bfloat16
# Weights by whose rows sizes are known.
_SOURCE, _TARGET = "encoder/embeddings_0/weight", "decoder/embeddings/weight"
_POSITIONS = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a model.bin says of itself.

    Attributes:
      kind: Kind of model; `TRANSFORMER` is one that translates.
      source: Rows of the source embeddings; 0 where that is not known.
      target: Rows of the target embeddings, likewise.
      positions: Most tokens of a source, or of a translation, special ones counted.
    """

    kind: str = TRANSFORMER
    source: int = 0
    target: int = 0
    positions: int = POSITIONS


def token_file(folder: Path, side: str) -> Path | None:
    """Returns the file that names the ids of a side, "source" or "target"; None if missing."""
    names = [f"{name}_vocabulary.{end}" for name in ("shared", side) for end in ("json", "txt")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def token_files(folder: Path) -> list[str]:
    """Returns the names of all files that name the ids of a side."""
    found = {file for side in _SIDES[1:] if (file := token_file(folder, side)) is not None}
    return sorted(file.name for file in found)


def load_tokens(folder: Path, side: str) -> list[str]:
    """Returns CTranslate2's names of the ids of a side, "source" or "target".

    Raises:
      UserError: There is no such file, or it cannot be read.
    """
    path = token_file(folder, side)
    if path is None:
        raise UserError(
            f"{folder} has no {side}_vocabulary.json or .txt, and no shared_vocabulary.json or "
            ".txt: copy the whole folder again from where it came"
        )
    try:
        if path.suffix == ".json":
            tokens: list[Any] = read_json(path, list)
        else:
            # Only \n ends a line: U+2028 and the like may be a part of a token.
            text = read_text(path).replace("\r\n", "\n")
            tokens = text.removesuffix("\n").split("\n")
        if not all(isinstance(token, str) for token in tokens):
            raise ValueError("a token in it is no text")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read: {error}. Write the folder again with `tt export` or the "
            "converter that it is of"
        ) from error
    return tokens


def load_settings(folder: Path) -> dict[str, Any]:
    """Returns the content of config.json with CTranslate2's defaults, as of a missing one.

    Raises:
      UserError: It cannot be read.
    """
    path = folder / CTRANSLATE2_CONFIG
    settings: dict[str, Any] = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "decoder_start_token": "<s>",
        "add_source_bos": False,
        "add_source_eos": False,
    }
    try:
        read = settings | read_json(path, dict)
        for name, default in settings.items():
            has_none = name == "decoder_start_token" and read[name] is None
            if type(read[name]) is not type(default) and not has_none:
                raise ValueError(f"{name} must be a {type(default).__name__}")
        return read
    except FileNotFoundError:
        return settings
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as CTranslate2's ({error}): convert the model again"
        ) from error


def read_sizes(folder: Path) -> Sizes:
    """Reads the header of a model.bin, and the shapes of its weights; not the weights.

    Of one that was written before 2021 little is known.

    Raises:
      UserError: It is not CTranslate2's, or it is cut off.
    """
    path = folder / CTRANSLATE2_FILE
    try:
        with path.open("rb") as file:
            version = _number(file, "I")
            kind = _string(file)
            _number(file, "I")  # its revision
            if not kind.isascii() or not kind.isidentifier():
                raise ValueError("no kind of model is named")
            if version < _OLDEST:
                return Sizes(kind=kind)
            shapes = _read_shapes(file, end=path.stat().st_size)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. See why") from error
    except (struct.error, ValueError) as error:
        raise UserError(
            f"{path} is cut off, or no weights of CTranslate2's ({error}): copy it again from "
            "where it came, or convert the model with one of CTranslate2's converters"
        ) from error
    rows = {name: shape[0] for name, shape in shapes.items() if shape}
    positions = [rows[name] for name in _POSITIONS if name in rows]
    source = rows.get(_SOURCE, rows.get("encoder/embeddings/weight", 0))
    return Sizes(
        kind=kind,
        source=source,
        target=rows.get(_TARGET, 0),
        positions=min([*positions, POSITIONS]),
    )


def _read_shapes(file: BinaryIO, *, end: int) -> dict[str, list[int]]:
    """Returns the shapes of weights by their names, and by their other names.

    Raises:
      ValueError, struct.error: The file ends before they do.
    """
    shapes: dict[str, list[int]] = {}
    for _ in range(_number(file, "I")):
        name = _string(file)
        shapes[name] = [_number(file, "I") for _ in range(_number(file, "B"))]
        item = _number(file, "B")
        content = _number(file, "I")
        # CTranslate2 reads all bytes into memory for the shape, whatever their number.
        if item >= len(_ITEM_BYTES) or content != math.prod(shapes[name]) * _ITEM_BYTES[item]:
            raise ValueError(f"{name!r} has {content:,} bytes, which is not the size of its shape")
        if file.tell() + content > end:
            raise ValueError(f"{name!r} should have {content:,} bytes")
        file.seek(content, 1)
    for _ in range(_number(file, "I")):
        alias = _string(file)
        shapes[alias] = shapes.get(_string(file), [])
    return shapes


def _number(file: BinaryIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0])


def _string(file: BinaryIO) -> str:
    length = _number(file, "H")
    return file.read(length).rstrip(b"\0").decode()
