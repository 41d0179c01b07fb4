"""The file of a Marian model: arrays by name in a `.npz`, its configuration among them as YAML."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from model.errors import UserError
from model.formats.archives import DAMAGED, check_members
from model.formats.marian_yaml_text import parse_yaml

Array = npt.NDArray[np.float32]
Settings = Mapping[str, Any]

_SETTINGS = "special:model.yml"  # bytes, whose end may be NULs
_SPECIAL = "special:"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Arrays:
    """The arrays of a model, each taken by its name.

    Args:
      path: The file, for messages.
      arrays: All of them, by name.
    """

    def __init__(self, path: Path, arrays: Mapping[str, Array]) -> None:
        self.path = path
        self._arrays = arrays
        self._taken: set[str] = set()

    @property
    def size(self) -> int:
        """The number of all values."""
        return sum(values.size for values in self._arrays.values())

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def take(self, name: str, *, shape: tuple[int, ...]) -> Array:
        """Returns an array in a shape; Marian's vectors are [1, n].

        Raises:
          UserError: It is not there, or its shape is another one.
        """
        found = self._arrays.get(name)
        wanted = (1, *shape) if len(shape) == 1 else shape
        if found is None or found.shape != wanted:
            there = "is not there" if found is None else f"is {_spell(found.shape)}"
            raise UserError(
                f"{self.path} is not what its configuration says: {name} must be {_spell(wanted)} "
                f"and {there}. Copy the file again from where it came"
            )
        self._taken.add(name)
        return found.reshape(shape)

    def check_all_taken(self) -> None:
        """Checks that nothing is left.

        Raises:
          UserError: There are arrays that nobody took.
        """
        if left := sorted(set(self._arrays) - self._taken):
            raise UserError(
                f"{self.path} holds {left[0]}, one of {len(left)} arrays that a transformer of its "
                "configuration has not: it is another kind of model. Name another"
            )


def read_archive(path: Path) -> tuple[Settings, Arrays]:
    """Reads a model: its configuration, and its arrays.

    Raises:
      UserError: It is no model of Marian's, it is cut off, or its numbers are no plain floats.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: name the .npz of the Marian model in it")
    try:
        with path.open("rb") as file:
            is_archive = zipfile.is_zipfile(file)
        if not is_archive:  # of which NumPy would say that it may be unsafe
            raise UserError(f"{path} is cut off or no .npz: copy it again from where it came")
        with zipfile.ZipFile(path) as archive:
            members = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
            if _SETTINGS not in members:
                raise _not_marian(path)
            check_members(archive.infolist(), archive_bytes=path.stat().st_size)
            text = _read_array(archive, members.pop(_SETTINGS)).tobytes()
            arrays = {name: _read_array(archive, member) for name, member in members.items()}
    except FileNotFoundError as error:
        raise UserError(f"no model at {path}: name the .npz of a Marian model") from error
    except MemoryError as error:
        raise UserError(
            f"{path} has more weights than this machine has memory for: import it on a machine "
            "with more memory"
        ) from error
    except DAMAGED as error:
        raise UserError(
            f"{path} is cut off or no .npz ({_one_line(error)}): copy it again from where it came"
        ) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}. See why") from error
    arrays = {name: values for name, values in arrays.items() if not name.startswith(_SPECIAL)}
    for name, values in arrays.items():
        if values.dtype.kind != "f":
            raise UserError(
                f"{path} must hold plain floats; {name} is {values.dtype}, as in a model that was "
                "quantised. Name the model that it was made of"
            )
        if not np.isfinite(values).all():
            raise UserError(
                f"{path} holds weights that are not finite ({name}): name another checkpoint"
            )
    floats = {name: values.astype(np.float32) for name, values in arrays.items()}
    return _read_settings(path, text), Arrays(path, floats)


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Read a member of a `.npz`, which must have as many bytes as its header says.

    Raises:
      ValueError: It is no array of numbers, or another size; and what `archives.DAMAGED` names.
    """
    with archive.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
            read_header = _HEADERS[version]
            shape, is_fortran, dtype = read_header(file)
        except (SyntaxError, TokenError, MemoryError, KeyError, TypeError) as error:
            raise ValueError(f"the header of {member.filename!r} is no array's") from error
        size = math.prod(shape) * dtype.itemsize
        there = member.file_size - file.tell()
        if dtype.hasobject or min(shape, default=0) < 0 or size != there:
            raise ValueError(
                f"{member.filename!r} has {there:,} bytes, and its header says {_spell(shape)} "
                f"numbers of type {dtype}"
            )
        values = np.frombuffer(file.read(), dtype)
    return values.reshape(shape, order="F" if is_fortran else "C")


def _read_settings(path: Path, text: bytes) -> Settings:
    try:
        settings = parse_yaml(text.partition(b"\0")[0])
        if not isinstance(settings, dict):
            raise ValueError("it is no mapping")
        return settings
    except ValueError as error:
        raise UserError(
            f"{path} has a configuration that cannot be read ({_one_line(error)}): copy it again "
            "from where it came"
        ) from error


def _not_marian(path: Path) -> UserError:
    return UserError(
        f"{path} is no model of Marian's: it must be a .npz with {_SETTINGS}. Name another file"
    )


def _spell(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
