"""An object store in memory, `mem://`. Importing the module registers it for this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import obstore
import pytest
from obstore.exceptions import NotSupportedError
from obstore.store import MemoryStore as Store

from tt.model.storage import paths, stores


@contextlib.contextmanager
def without_locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the block with a store that does not support locks."""
    put = obstore.put

    def refuse(
        store: Store, path: str, content: bytes, *, mode: object = None, **others: object
    ) -> object:
        if mode is not None:
            raise NotSupportedError("no conditions")
        return put(store, path, content)

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", refuse)
        yield


_stores: dict[str, Store] = {}  # by root, such as "mem://bucket"


class MemoryStore:
    """Access to the objects, without the functions under test."""

    @staticmethod
    def clear() -> None:
        """Delete all objects."""
        _stores.clear()
        stores._make.cache_clear()

    @staticmethod
    def put(path: str, content: bytes) -> None:
        """Write an object."""
        root, key = paths.split_path(path)
        obstore.put(_make(root), key, bytes(content))

    @staticmethod
    def read(path: str) -> bytes:
        """Return the content of an object."""
        root, key = paths.split_path(path)
        return bytes(obstore.get(_make(root), key).bytes())

    @staticmethod
    def delete(path: str) -> None:
        """Delete an object."""
        root, key = paths.split_path(path)
        obstore.delete(_make(root), key)

    @staticmethod
    def paths() -> list[str]:
        """Return the paths of all objects, sorted."""
        return sorted(
            f"{root}/{found['path']}"
            for root, store in _stores.items()
            for page in obstore.list(store)
            for found in page
        )


def _make(root: str, settings: object = None) -> Store:
    return _stores.setdefault(root, Store())


paths.SCHEMES.add("mem")
stores.MAKERS["mem"] = _make
