"""The local index of a memory: a SQLite database in the user's cache.

The index contains all entries of a memory, by key. It grows with the files of the memory. It is
built again only if a file of the memory was deleted or replaced. SQLite's transactions and a lock
allow several processes to update and read the same index.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tt.model.engines.translator import Hypothesis, Translation
from tt.model.errors import BadFileError, DiskFullError, UnfinishedError, UserError, explain_denied
from tt.model.folders import OTHER_CACHE, default_cache, delete_stale, publish, wait_for_lock
from tt.model.storage.listing import ListedFile
from tt.pipelines.memory.entries import HUMAN, EntryFile, list_entries

_VERSION = 1  # of the tables below
_TABLES = f"""
    PRAGMA user_version = {_VERSION};
    CREATE TABLE entries (
        key BLOB, created INTEGER, target TEXT, score REAL, is_complete INTEGER, tokens INTEGER,
        others TEXT
    );
    CREATE TABLE files (
        name TEXT PRIMARY KEY, size INTEGER, changed REAL, replaces TEXT, problem TEXT,
        has_corrections INTEGER
    );
"""
_PLAIN = ("key", "target", "score", "is_complete", "tokens")  # columns that need no conversion
_COLUMNS = (*_PLAIN, "kind", "created", "others")
_KEYS_AT_ONCE = 500  # the fastest of the measured numbers of keys per query
_BUSY_SECONDS = 60  # the time to wait while another process commits
_WRITER_KIB = 256 << 10  # the page cache of the only connection that writes
_READER_KIB = 2 << 10  # per thread, because all threads share the pages of the mapped file
_MAPPED_BYTES = 256 << 20
_STALE_DAYS = 7  # the maximum time between two updates of a temporary index
_TEMPORARY = "job-"  # at the start of the name of a temporary index
_DISK_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
_MOST_LISTINGS = 20  # the maximum number of listings while other jobs merge files


class _Known(NamedTuple):
    """A file that the index contains, or that is damaged."""

    size: int
    changed: float
    replaces: list[str]
    problem: str  # "" if the file is not damaged


class _VanishedError(Exception):
    """A file was deleted after it had been listed."""


class MemoryIndex:
    """The local index of a memory; threads may share it.

    Args:
      folder: The folder of the memory, absolute or with its scheme.
      is_temporary: Whether a job deletes the memory at its end. If the job is killed and never
        resumed, other jobs delete this index after a week.
    """

    def __init__(self, folder: str, *, is_temporary: bool = False) -> None:
        self._folder = folder
        digest = hashlib.blake2b(folder.encode(), digest_size=16).hexdigest()
        prefix = _TEMPORARY if is_temporary else ""
        self.path = default_cache() / "memory" / f"{prefix}{digest}.sqlite"
        self._local = threading.local()
        self.has_corrections = False  # whether the memory contains human translations

    def update(self) -> list[str]:
        """Add the new files of the memory to the index, or build the index if there is none.

        Returns:
          A line for each damaged file that this call has found.

        Raises:
          DiskFullError: The disk of the index is full, or limits the size of files.
          UserError: The memory cannot be read, or the index cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            delete_stale(self.path.parent, f"{_TEMPORARY}*", days=_STALE_DAYS)
            with wait_for_lock(self.path.with_suffix(".lock")):
                for _ in range(_MOST_LISTINGS):
                    with contextlib.suppress(_VanishedError):
                        return self._update(list_entries(self._folder))
        except sqlite3.OperationalError as error:
            is_full = error.sqlite_errorcode in _DISK_FULL
            raise self._explain(str(error), is_full=is_full) from error
        except OSError as error:
            raise explain_denied(error) or self._explain(error.strerror or str(error)) from error
        raise UnfinishedError(
            f"other jobs change the files of the memory {self._folder} too often. Run the same "
            "command again"
        )

    def _explain(self, reason: str, *, is_full: bool = False) -> UserError:
        return (DiskFullError if is_full else UserError)(
            f"the index {self.path} of the memory cannot be written: {reason}. Free some space"
            f"{OTHER_CACHE}"
        )

    def _update(self, listed: Mapping[str, ListedFile]) -> list[str]:
        try:
            with contextlib.closing(self._open()) as database:
                database.execute("PRAGMA cache_spill = OFF")  # readers wait only for the commit
                database.execute("BEGIN IMMEDIATE")
                found = _add_files(database, listed, add=_ADD_NEW)
                if not _is_outdated(_read_known(database), listed):
                    self._finish(database, listed)
                    return found
        except FileNotFoundError:  # there is no index yet
            pass
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # a subclass for problems of the system
                raise
            self.path.unlink()  # the index is damaged
        return self._build(listed)

    def _build(self, listed: Mapping[str, ListedFile]) -> list[str]:
        delete_stale(self.path.parent, "*.tmp")
        temporary = self.path.with_suffix(f".{uuid.uuid4().hex}.tmp")
        try:
            with contextlib.closing(_connect(temporary)) as database:
                # A crash leaves only the temporary file, so SQLite need not protect the content.
                database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
                database.executescript(_TABLES)
                database.execute("BEGIN")
                found = _add_files(database, listed, add=_ADD)
                database.execute("CREATE INDEX entries_by_key ON entries (key)")
                self._finish(database, listed)
            publish(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)
        return found

    def _finish(self, database: sqlite3.Connection, listed: Mapping[str, ListedFile]) -> None:
        """Forget deleted files, whose entries are in merged files, and commit."""
        gone = [(name,) for name in _read_known(database) if name not in listed]
        database.executemany("DELETE FROM files WHERE name = ?", gone)
        [(has_corrections,)] = database.execute("SELECT max(has_corrections) FROM files")
        database.execute("COMMIT")
        self.has_corrections = bool(has_corrections)

    def _open(self) -> sqlite3.Connection:
        """Open the database; raise FileNotFoundError if there is none with the current tables."""
        if not self.path.exists():
            raise FileNotFoundError
        database = _connect(self.path)
        [(version,)] = database.execute("PRAGMA user_version")
        if version != _VERSION:
            database.close()
            raise FileNotFoundError
        return database

    def delete(self) -> None:
        """Delete the index and its lock; nobody else may use the memory."""
        for path in (self.path, self.path.with_suffix(".lock")):
            path.unlink(missing_ok=True)

    def problems(self) -> list[str]:
        """Return a line for each damaged file of the memory, after `update`."""
        known = _read_known(self._reader())
        return [file.problem for file in known.values() if file.problem]

    def find_translations(self, keys: Sequence[bytes]) -> dict[bytes, Translation]:
        """Return the translations of the model with the given keys."""
        return {
            key: Translation(
                (
                    Hypothesis(target, score, bool(is_complete), tokens),
                    *(Hypothesis(**other) for other in json.loads(others or "[]")),
                )
            )
            for key, target, score, is_complete, tokens, others in self._select(
                "key, target, score, is_complete, tokens, others", keys
            )
        }

    def find_corrections(self, keys: Sequence[bytes]) -> dict[bytes, str]:
        """Return the newest human translations with the given keys."""
        found = sorted(self._select("created, key, target", keys))
        return {key: target for _, key, target in found}

    def _select(self, columns: str, keys: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        database = self._reader()
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[first : first + _KEYS_AT_ONCE]
            marks = ",".join("?" * len(some))
            yield from database.execute(
                f"SELECT {columns} FROM entries WHERE key IN ({marks})", some
            )

    def _reader(self) -> sqlite3.Connection:
        """Return this thread's connection."""
        if not hasattr(self._local, "database"):
            self._local.database = _connect(self.path, cache_kib=_READER_KIB)
            self._local.database.execute("PRAGMA query_only = ON")
            self._local.database.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
        database: sqlite3.Connection = self._local.database
        return database


_ADD = "INSERT INTO entries VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
# A model entry is added only if its key is new. Human entries have a time, and the newest one wins.
_ADD_NEW = """
    INSERT INTO entries SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
    WHERE ?2 > 0 OR NOT EXISTS (SELECT 1 FROM entries WHERE key = ?1)
"""


def _connect(path: Path, *, cache_kib: int = _WRITER_KIB) -> sqlite3.Connection:
    database = sqlite3.connect(
        path, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False
    )
    database.execute(f"PRAGMA cache_size = -{cache_kib}")
    return database


def _read_known(database: sqlite3.Connection) -> dict[str, _Known]:
    rows = database.execute("SELECT name, size, changed, replaces, problem FROM files")
    return {
        name: _Known(size, changed, json.loads(replaces), problem)
        for name, size, changed, replaces, problem in rows
    }


def _is_outdated(known: Mapping[str, _Known], listed: Mapping[str, ListedFile]) -> bool:
    """Return whether the index contains entries that the memory may no longer contain."""
    merged = {old for name, file in known.items() if name in listed for old in file.replaces}
    return any(
        listed[name].size != file.size if name in listed else name not in merged
        for name, file in known.items()
        if not file.problem
    )


def _add_files(
    database: sqlite3.Connection, listed: Mapping[str, ListedFile], *, add: str
) -> list[str]:
    """Add the new files of a memory; return a line for each damaged one.

    Args:
      database: The index, in a transaction.
      listed: The files of the memory, by name.
      add: The statement that adds an entry.

    Raises:
      _VanishedError: A file was deleted after it had been listed.
    """
    known = _read_known(database)
    merged = {old for file in known.values() for old in file.replaces}
    problems = []
    for name, file in listed.items():
        before = known.get(name)
        if before and (not before.problem or before[:2] == (file.size, file.changed)):
            continue
        database.execute("SAVEPOINT file")
        replaces: list[str] = []
        problem, has_corrections = "", False
        try:
            with EntryFile(file.path) as opened:
                replaces = opened.replaces
                are_known = replaces and all(n in known and not known[n].problem for n in replaces)
                for batch in () if are_known or name in merged else opened.batches(_COLUMNS):
                    database.executemany(add, _rows_of(batch))
                    has_corrections |= pc.any(pc.equal(batch["kind"], HUMAN)).as_py()
        except FileNotFoundError as error:
            raise _VanishedError from error
        except BadFileError as error:
            problem = str(error)
            problems.append(problem)
            replaces = []
            database.execute("ROLLBACK TO file")
        database.execute("RELEASE file")
        merged.update(replaces)
        known[name] = _Known(file.size, file.changed, replaces, problem)
        values = (name, file.size, file.changed, json.dumps(replaces), problem, has_corrections)
        database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", values)
    return problems


def _rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    is_human = pc.equal(batch["kind"], HUMAN)
    times = batch["created"].cast(pa.int64())
    created = pc.if_else(is_human, times, 0)
    others = [json.dumps(each) if each else None for each in batch["others"].to_pylist()]
    key, target, score, is_complete, tokens = (batch[name].to_pylist() for name in _PLAIN)
    return zip(key, created.to_pylist(), target, score, is_complete, tokens, others, strict=True)
