"""Read the arrays in `pytorch_model.bin` without PyTorch, and without executing anything.

PyTorch has two formats. Since version 1.6, a file is a zip archive with a pickle and one file per
storage. Older files consist of several pickles, followed by the storages. The pickles describe the
tensors. A pickle can call any function, so this module allows only the few names that describe
tensors, and gives each of them a harmless meaning.

Source:
  `torch/serialization.py` and `torch/_utils.py` in pytorch/pytorch, version 2.9.
"""

from __future__ import annotations

import collections
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tt.model.errors import UserError, first_line

Array = npt.NDArray[Any]

_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the older format
_PROTOCOL = 1001  # the second pickle of the older format
_PICKLE = "/data.pkl"  # the end of the name of the pickle in an archive
_TYPES: dict[str, Any] = {
    "FloatStorage": np.float32, "DoubleStorage": np.float64, "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16, "LongStorage": np.int64, "IntStorage": np.int32,
    "ShortStorage": np.int16, "CharStorage": np.int8, "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}  # fmt: skip


class _Storage(NamedTuple):
    """A contiguous array of numbers in a file, which tensors share."""

    key: str
    dtype: Any
    items: int


class _Tensor(NamedTuple):
    """A view of a storage; offset and strides count items."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *others: Any) -> _Tensor:
    del others  # gradients and hooks
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor has no storage")
    numbers = (offset, *shape, *strides)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise pickle.UnpicklingError("the shape of a tensor is not made of whole numbers")
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(data: Any, *others: Any) -> Any:
    del others
    return data


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    **{("torch", name): np.dtype(kind) for name, kind in _TYPES.items()},
}


class _Unpickler(pickle.Unpickler):
    """Loads pickles that contain only tensors, containers, numbers and strings."""

    def find_class(self, module: str, name: str) -> Any:
        """Return our replacement of a name, or refuse the name."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it contains {module}.{name}, which may execute code")
        return _ALLOWED[module, name]

    def persistent_load(self, reference: Any) -> _Storage:
        """Return the storage that a reference describes."""
        match reference:
            case ("storage", np.dtype() as dtype, str(key), _, int(items), *rest) if items >= 0:
                if rest not in ([], [None]):
                    raise pickle.UnpicklingError("a storage is a part of another one")
                return _Storage(key, dtype, items)
        raise pickle.UnpicklingError("the description of a storage is damaged")


class PyTorchFile:
    """The arrays in a file, which are read one at a time.

    Args:
      path: The file.

    Raises:
      UserError: The file is damaged, or contains something other than arrays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            is_archive = zipfile.is_zipfile(path)
            self._read, found = self._open_archive() if is_archive else self._open_older()
            if not isinstance(found, dict):
                raise pickle.UnpicklingError("it contains no dictionary of arrays")
            self._tensors = {
                name: value
                for name, value in found.items()
                if isinstance(name, str) and isinstance(value, _Tensor)
            }

    @property
    def names(self) -> list[str]:
        """The names of the arrays."""
        return list(self._tensors)

    def read(self, name: str) -> Array:
        """Return an array.

        Raises:
          UserError: The file is damaged.
        """
        storage, offset, shape, strides = self._tensors[name]
        with self._explained():
            last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            if 0 in shape:
                return np.empty(shape, storage.dtype)
            if last >= storage.items:
                raise ValueError(f"the array {name} is larger than its storage")
            content = self._read(storage)
            if len(content) != storage.items * storage.dtype.itemsize:
                raise ValueError(f"the storage of the array {name} is truncated")
            values = np.frombuffer(content, storage.dtype)[offset:]
            bytes_ = tuple(stride * storage.dtype.itemsize for stride in strides)
            return np.lib.stride_tricks.as_strided(values, shape, bytes_, writeable=False)

    def _open_archive(self) -> tuple[Callable[[_Storage], bytes], Any]:
        archive = zipfile.ZipFile(self._path)
        if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
            raise ValueError("it is compressed")  # a small file could become very large
        [pickled] = [name for name in archive.namelist() if name.endswith(_PICKLE)]
        folder = pickled.removesuffix(_PICKLE)
        order = f"{folder}/byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise ValueError("its numbers are not little-endian")

        def read(storage: _Storage) -> bytes:
            return archive.read(f"{folder}/data/{storage.key}")

        with archive.open(pickled) as file:
            return read, _Unpickler(file).load()

    def _open_older(self) -> tuple[Callable[[_Storage], bytes], Any]:
        file = self._path.open("rb")
        if _load(file) != _MAGIC or _load(file) != _PROTOCOL:
            raise pickle.UnpicklingError("it does not begin like a file of PyTorch")
        _load(file)  # sizes of C types on the machine that wrote the file
        storages: dict[str, _Storage] = {}

        class Collecting(_Unpickler):
            def persistent_load(self, reference: Any) -> _Storage:
                storage = super().persistent_load(reference)
                storages[storage.key] = storage
                return storage

        found = Collecting(file).load()
        places: dict[str, tuple[int, int]] = {}
        for key in _load(file):
            items = int.from_bytes(file.read(8), "little")
            size = items * storages[key].dtype.itemsize
            places[key] = file.tell(), size
            file.seek(size, 1)

        def read(storage: _Storage) -> bytes:
            place, size = places[storage.key]
            file.seek(place)
            return file.read(size)

        return read, found

    def _explained(self) -> Any:
        return _Explained(self._path)


class _Explained:
    """Turns errors of a damaged or dangerous file into a `UserError`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # A damaged pickle can raise almost any error.
        if isinstance(error, Exception) and not isinstance(error, UserError | MemoryError):
            raise UserError(
                f"{self._path} cannot be read as a file of PyTorch: "
                f"{first_line(error) or type(error).__name__}. Download the model again, or choose "
                "a model with safetensors"
            ) from error


def _load(file: IO[bytes]) -> Any:
    return _Unpickler(file).load()
