"""A check of the order in which a program syncs, renames and deletes files."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from pathlib import Path
from unittest import mock


class DiskOrder:
    """Checks each rename below a folder, and lists violations of this rule.

    The content of a renamed file, or of all files in a renamed folder, must be synced after its
    last change. The next action of the same thread must sync the folder with the new name. Names
    that start with a dot, and the name "replaced", are temporary and are not checked.

    `watch` is called with ("sync", path), ("rename", path, new path) or ("remove", path) before
    each action.
    """

    def __init__(self, root, watch=None):
        self._root = Path(root).resolve()
        self._watch = watch or (lambda *event: None)
        self._synced = {}  # the state of each inode when it was synced
        self._pending = {}  # the folder to sync next, by thread
        self.violations = []
        self.published = []  # new names, relative to the root
        self.counts = Counter()

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        for module, name, wrapper in (
            (os, "fsync", self._fsync),
            (os, "rename", self._rename),
            (os, "replace", self._rename),
            (os, "unlink", self._remove),
            (os, "remove", self._remove),
            (os, "rmdir", self._remove),
        ):
            patch = mock.patch.object(module, name, self._wrap(getattr(module, name), wrapper))
            self._stack.enter_context(patch)
        return self

    def __exit__(self, *exception):
        self._stack.close()
        for folder in self._pending.values():
            self.violations.append(f"{folder} was not synced after a rename")

    def is_synced(self, path):
        """Return whether the content of a file or folder is on the disk."""
        path = Path(path)
        children = [] if path.is_symlink() or not path.is_dir() else path.iterdir()
        return self._synced.get(_inode(path)) == _state(path) and all(map(self.is_synced, children))

    def _wrap(self, real, wrapper):
        def call(*args, **kwargs):
            wrapper(*args, **kwargs)
            return real(*args, **kwargs)

        return call

    def _fsync(self, descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not self._is_inside(path):
            return
        if self._pending.get(threading.get_ident()) == path:
            del self._pending[threading.get_ident()]
        self._note("sync", path)
        self._synced[_inode(path)] = _state(path)

    def _rename(self, source, target, **kwargs):
        source, target = Path(source).absolute(), Path(target).absolute()
        if not self._is_inside(target):
            return
        self._note("rename", source, target)
        name = target.relative_to(self._root)
        if target.name == "replaced" or any(part.startswith(".") for part in name.parts):
            return
        self.published.append(str(name))
        if not self.is_synced(source):
            self.violations.append(f"{name} was renamed before its content was synced")
        self._pending[threading.get_ident()] = target.parent

    def _remove(self, path, *, dir_fd=None):
        folder = Path() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
        path = (folder / path).absolute()
        if self._is_inside(path):
            self._note("remove", path)

    def _note(self, kind, path, *more):
        if folder := self._pending.pop(threading.get_ident(), None):
            self.violations.append(f"{folder} was not synced before {kind} of {path.name}")
        self.counts[kind] += 1
        self._watch(kind, path, *more)

    def _is_inside(self, path):
        return self._root in path.parents or path == self._root


def _inode(path):
    found = path.lstat()
    return found.st_dev, found.st_ino


def _state(path):
    found = path.lstat()
    return found.st_mtime_ns, found.st_size
