"""A Beam file system in memory, `mem://`, as an example of a remote file system.

Importing the module registers it. Like an object store, it has no folders, a file appears when it
is closed, and a rename replaces files. All threads of the process see the same files.
"""

from __future__ import annotations

import io
import threading
import time

from apache_beam.io.filesystem import (
    BeamIOError,
    CompressedFile,
    CompressionTypes,
    FileMetadata,
    FileSystem,
)

_PREFIX = "mem://"


class MemoryFileSystem(FileSystem):
    """The file system. Beam creates one per call, so the files belong to the class."""

    _files: dict[str, tuple[bytes, float]] = {}  # noqa: RUF012 -- path to (content, time)
    _lock = threading.RLock()

    @classmethod
    def scheme(cls):
        return "mem"

    # Methods for tests.

    @classmethod
    def clear(cls):
        """Delete all files."""
        with cls._lock:
            cls._files.clear()

    @classmethod
    def put(cls, path, content):
        """Write a file at once."""
        with cls._lock:
            # Each change gets its own time, so that it differs from the previous one.
            latest = max((changed for _, changed in cls._files.values()), default=0.0)
            cls._files[_checked(path)] = (bytes(content), max(time.time(), latest + 1e-6))

    @classmethod
    def paths(cls):
        """Return the paths of all files, sorted."""
        with cls._lock:
            return sorted(cls._files)

    # Paths.

    def join(self, basepath, *paths):
        return "/".join([basepath.rstrip("/"), *(path.strip("/") for path in paths)])

    def split(self, path):
        folder, _, name = _checked(path).rpartition("/")
        return (_PREFIX, name) if folder == _PREFIX.rstrip("/") else (folder, name)

    def has_dirs(self):
        return False

    def mkdirs(self, path):
        _checked(path)

    # Metadata.

    def _list(self, dir_or_prefix):
        with self._lock:
            found = [path for path in sorted(self._files) if path.startswith(dir_or_prefix)]
            return [self.metadata(path) for path in found]

    def exists(self, path):
        with self._lock:
            return path in self._files

    def metadata(self, path):
        content, changed = self._get(path)
        return FileMetadata(path, len(content), changed)

    def size(self, path):
        return len(self._get(path)[0])

    def last_updated(self, path):
        return self._get(path)[1]

    def checksum(self, path):
        return str(self.size(path))

    def _get(self, path):
        with self._lock:
            try:
                return self._files[path]
            except KeyError as error:
                raise BeamIOError("no such file", {path: error}) from error

    # Reading and writing.

    def open(self, path, mime_type=None, compression_type=CompressionTypes.AUTO):
        with self._lock:
            if path not in self._files:
                raise FileNotFoundError(2, "No such file", path)
            raw = _Download(self._files[path][0])
        return _compressed(raw, path, compression_type)

    def create(self, path, mime_type=None, compression_type=CompressionTypes.AUTO):
        return _compressed(_Upload(_checked(path)), path, compression_type)

    def copy(self, source_file_names, destination_file_names):
        def copy(source, destination):
            self.put(destination, self._get(source)[0])

        self._each(copy, source_file_names, destination_file_names)

    def rename(self, source_file_names, destination_file_names):
        def rename(source, destination):
            with self._lock:
                content, _ = self._get(source)
                self.put(destination, content)
                if source != destination:
                    del self._files[source]

        self._each(rename, source_file_names, destination_file_names)

    def delete(self, paths):
        def delete(path):
            with self._lock:
                folder = path.rstrip("/") + "/"
                found = [name for name in self._files if name == path or name.startswith(folder)]
                found = found or [meta.path for meta in self.match([path])[0].metadata_list]
                if not found:
                    raise FileNotFoundError(2, "No such file", path)
                for name in found:
                    del self._files[name]

        self._each(delete, paths)

    def _each(self, action, *columns):
        """Perform an action on each row of the columns, and raise all failures at the end."""
        failed = {}
        for row in zip(*columns, strict=True):
            try:
                action(*row)
            except OSError as error:
                failed[row] = error
        if failed:
            raise BeamIOError("some files failed", failed)


class _Download(io.BytesIO):
    """A file that is read."""

    mode = "rb"  # Beam reads this attribute


class _Upload(io.BytesIO):
    """A file that gets its name and content when it is closed."""

    mode = "wb"

    def __init__(self, path):
        super().__init__()
        self._path = path

    def close(self):
        if not self.closed:
            MemoryFileSystem.put(self._path, self.getvalue())
        super().close()


def _compressed(raw, path, compression_type):
    if compression_type == CompressionTypes.AUTO:
        compression_type = CompressionTypes.detect_compression_type(path)
    if compression_type == CompressionTypes.UNCOMPRESSED:
        return raw
    return CompressedFile(raw, compression_type=compression_type)


def _checked(path):
    if not path.startswith(_PREFIX) or path == _PREFIX:
        raise ValueError(f"not a path under {_PREFIX}: {path!r}")
    return path
