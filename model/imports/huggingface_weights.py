"""The arrays of a model in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import safetensors

from tt.model.errors import UserError, first_line
from tt.model.imports.huggingface import weight_files
from tt.model.imports.pytorch_files import PyTorchFile

Array = npt.NDArray[np.float32]


class _File(Protocol):
    @property
    def names(self) -> list[str]: ...

    def read(self, name: str) -> npt.NDArray[Any]: ...


class _SafetensorsFile:
    """The arrays in a safetensors file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            opened: Any = safetensors.safe_open
            self._file = opened(path, framework="numpy")
            self.names: list[str] = list(self._file.keys())
        except Exception as error:  # the library raises errors of its own
            raise self._explain(error) from error

    def read(self, name: str) -> npt.NDArray[Any]:
        try:
            values: npt.NDArray[Any] = self._file.get_tensor(name)
        except Exception as error:
            raise self._explain(error) from error
        return values

    def _explain(self, error: Exception) -> UserError:
        return UserError(
            f"{self._path} cannot be read as a safetensors file: {first_line(error)}. Download the "
            "model again"
        )


class Weights:
    """The arrays of a model by name, which are read one at a time.

    Args:
      folder: The folder of the model.

    Raises:
      UserError: The folder has no weights that this module reads, or a file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[str, _File] = {}
        for path in weight_files(folder):
            is_safe = path.suffix == ".safetensors"
            file: _File = _SafetensorsFile(path) if is_safe else PyTorchFile(path)
            self._places.update(dict.fromkeys(file.names, file))

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def read(self, name: str, *, shape: tuple[int, ...]) -> Array:
        """Return an array as float32.

        Args:
          name: The name of the array.
          shape: The shape according to the configuration.

        Raises:
          UserError: The array is missing, has another shape, or contains other numbers than finite
            floats.
        """
        if name not in self._places:
            raise UserError(
                f"the weights in {self._folder} have no array {name}, so they do not fit "
                "config.json. Download the model again, or choose another one"
            )
        values = self._places[name].read(name)
        if values.shape != shape:
            raise UserError(
                f"the array {name} in {self._folder} must have the shape {shape} according to "
                f"config.json. Received: {values.shape}. Download the model again, or choose "
                "another one"
            )
        floats = np.ascontiguousarray(values, np.float32)
        if values.dtype.kind not in "fV" or not np.isfinite(floats).all():
            raise UserError(
                f"the array {name} in {self._folder} must contain finite floats, but does not "
                f"({values.dtype}). The model may be quantized or damaged. Choose another model"
            )
        return floats

    def first(self, names: Iterable[str]) -> str:
        """Return the first of these names that exists, or the last name."""
        names = list(names)
        return next((name for name in names if name in self), names[-1])
