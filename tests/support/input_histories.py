"""Random histories of an input folder: files that come, change, move, break and disappear."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import os
import random
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from translation_jobs import output_bytes, translate

from tt.model.errors import UserError
from tt.pipelines.tables import reading

SUFFIXES = (".parquet", ".parquet", ".jsonl", ".csv")
NAMES = ("a", "b", "c", "x/a", "x/b", "y/c", "y/d")
UNIT_ROWS = 3
OPTIONS = {"unit_rows": UNIT_ROWS, "text_columns": ("text",), "on_bad_file": "skip"}
FIXED = "fixed.csv"  # a file that never changes, so that the input never becomes another table
COLUMNS = {
    "int": lambda count: {"n": list(range(count))},
    "float": lambda count: {"n": [0.5 + i for i in range(count)]},
    "string": lambda count: {"n": [f"{i}x" for i in range(count)]},
    "two": lambda count: {"n": list(range(count)), "m": ["new"] * count},
    "none": lambda count: {},
}
PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}
SOUND, LOST, BAD_ROW, BAD = "sound", "a unit is lost", "the last row is bad", "bad"
SAFE = ("add", "change", "change", "retype", "touch", "convert", "repair")
GONE = ("remove", "remove", "remove", "come_back", "come_back", "come_back", "restore")
ALL = (*SAFE, *GONE, "swap", "swap", "rename", "damage", "damage", "damage")


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A version of an input file.

    Attributes:
      content: The bytes of the file.
      changed: The modification time in nanoseconds. No two versions have the same one.
      columns: The columns of the file, a key of `COLUMNS`.
      texts: The texts of the file; None for a bad row.
      state: `SOUND`; `LOST` if a row group of a Parquet file cannot be read; `BAD_ROW` if the last
        line of a text file is bad; or `BAD` if nothing can be read.
      readable: The rows of the output.
    """

    content: bytes
    changed: int
    columns: str
    texts: tuple[str | None, ...]
    state: str = SOUND
    readable: tuple[str | None, ...]


def stem(name: str) -> str:
    """Return a name without its suffix."""
    return name.rpartition(".")[0]


class History:
    """An input folder, and the files that a fresh run would need for the same output.

    Attributes:
      chooser: The source of all random choices.
      files: The files of the folder, by their relative paths.
      expected: The files whose translations the output should contain after a run.
    """

    def __init__(self, folder: Path, *, seed: int, keeps: bool, head_bytes: int) -> None:
        """Write the first files.

        Args:
          folder: The folder.
          seed: The seed of all random choices.
          keeps: Whether the output keeps the translations of removed files.
          head_bytes: The size of the beginning of a file that the plan of a job reads.
        """
        self.folder, self.keeps, self.head_bytes = folder, keeps, head_bytes
        self.chooser = random.Random(seed)
        self.files: dict[str, File] = {}
        self.expected: dict[str, File] = {}
        self._earlier: dict[str, list[File]] = {}  # the versions of each name, sound ones only
        # Clocks differ, and backups have old times, so a later version may have an earlier time.
        self._times = iter(self.chooser.sample(range(10**9), 10_000))
        self._write(FIXED, self._new_file(FIXED))
        for _ in range(6):
            self.add()

    def step(self, names: tuple[str, ...] = ALL) -> str:
        """Make a random change that is possible, and return its name."""
        name = self.chooser.choice(names)
        if name in ("add", "come_back", "restore", "damage") or self._movable():
            getattr(self, name)()
        return name

    def finish(self) -> None:
        """Note that a run has ended, so that the output has the translations of all files."""
        now = {name: file for name, file in self.files.items() if not self.is_skipped(name)}
        taken = set(map(stem, now))
        kept = {
            name: file
            for name, file in self.expected.items()
            if stem(name) not in taken and (name in self.files or (self.keeps and file.readable))
        }
        self.expected = kept | now

    def is_skipped(self, name: str) -> bool:
        """Return whether nothing of a file of the folder can be translated."""
        return self.files[name].state == BAD

    def add(self) -> None:
        name = self.chooser.choice(NAMES) + self.chooser.choice(SUFFIXES)
        if self._is_free(name):
            self._write(name, self._new_file(name))

    def change(self) -> None:
        """Write a file again, often with the same size and the same footer."""
        name = self.chooser.choice(self._movable())
        if self.chooser.random() < 0.5:
            (self.folder / name).unlink()  # and another file gets its name
        self._write(name, self._new_version(name))

    def retype(self) -> None:
        """Write a file again with the same texts, and with other columns or types."""
        name = self.chooser.choice(self._movable())
        columns = self.chooser.choice(list(COLUMNS))
        texts = tuple(filter(None, self.files[name].texts))
        self._write(name, self._new_file(name, texts=texts, columns=columns))

    def touch(self) -> None:
        name = self.chooser.choice(self._movable())
        self._write(name, dataclasses.replace(self.files[name], changed=next(self._times)))

    def remove(self) -> None:
        self._remove(self.chooser.choice(self._movable()))

    def come_back(self) -> None:
        """Write another file with a name that does not exist any more."""
        gone = [name for name in self._earlier if self._is_free(name)]
        if gone:
            name = self.chooser.choice(gone)
            self._write(name, self._new_version(name))

    def restore(self) -> None:
        """Restore an earlier version of a file, with its time."""
        names = [
            name
            for name in self._earlier
            if name != FIXED and (name in self.files or self._is_free(name))
        ]
        if names:
            name = self.chooser.choice(names)
            self._write(name, self.chooser.choice(self._earlier[name]))

    def rename(self) -> None:
        before = self.chooser.choice(self._movable())
        after = self.chooser.choice(NAMES) + Path(before).suffix
        if self._is_free(after):
            self._write(after, self._remove(before))

    def swap(self) -> None:
        """Swap the names of two files, if possible of two files that look alike."""
        pairs = [
            (one, other)
            for one, other in itertools.combinations(self._movable(), 2)
            if Path(one).suffix == Path(other).suffix
        ]
        if pairs:
            sizes = {name: len(file.content) for name, file in self.files.items()}
            alike = [pair for pair in pairs if sizes[pair[0]] == sizes[pair[1]]]
            one, other = self.chooser.choice(alike or pairs)
            before = self.files[one]
            self._write(one, self.files[other])
            self._write(other, before)

    def convert(self) -> None:
        """Write a file in another format, with the same texts or with others."""
        before = self.chooser.choice(self._movable())
        after = stem(before) + self.chooser.choice(SUFFIXES)
        texts = self._texts(len(self.files[before].texts))
        texts = self.chooser.choice([texts, tuple(filter(None, self.files[before].texts))])
        if after != before:
            self._remove(before)
            self._write(after, self._new_file(after, texts=texts))

    def damage(self) -> None:
        """Damage a file, or add a damaged one."""
        name = self.chooser.choice([*self._movable(), *(f"{stem}.csv" for stem in NAMES)])
        if name not in self.files and not self._is_free(name):
            return
        file = self.files.get(name)
        if file is None or file.state != SOUND:
            file = self._new_file(name)
        damaged = {"content": b"\xff\xfein UTF-16", "state": BAD, "readable": ()}
        if self.chooser.random() < 0.5 and len(file.texts) > 2:  # longer than the head
            damaged = self._damage_late(name, file)
        self._write(name, dataclasses.replace(file, changed=next(self._times), **damaged))

    def repair(self) -> None:
        damaged = [name for name, file in self.files.items() if file.state != SOUND]
        if damaged:
            name = self.chooser.choice(damaged)
            texts = tuple(filter(None, self.files[name].texts))
            columns = self.files[name].columns
            self._write(name, self._new_file(name, texts=texts, columns=columns))

    def _damage_late(self, name: str, file: File) -> dict[str, object]:
        """Return the changes of a file to damage it behind its beginning."""
        if not name.endswith(".parquet"):
            end = b'"not closed' if name.endswith(".csv") else b'{"text": "not closed'
            texts = (*file.texts, None)
            return {
                "content": file.content + end,
                "state": BAD_ROW,
                "texts": texts,
                "readable": texts,
            }
        footer = pq.read_metadata(io.BytesIO(file.content))
        group = self.chooser.randrange(footer.num_row_groups)
        start = footer.row_group(group).column(0).data_page_offset
        content = file.content[:start] + b"\xff" * 8 + file.content[start + 8 :]
        first = group * UNIT_ROWS
        readable = file.texts[:first] + file.texts[first + UNIT_ROWS :]
        return {"content": content, "state": LOST, "readable": readable}

    def _movable(self) -> list[str]:
        return sorted(self.files.keys() - {FIXED})

    def _is_free(self, name: str) -> bool:
        """Return whether no file has the name, or the same name with another suffix."""
        return stem(name) not in map(stem, self.files)

    def _new_version(self, name: str) -> File:
        """Return another file, in most cases with as many rows as the last one of its name."""
        before = self._earlier.get(name)
        if before is None or self.chooser.random() < 0.2:
            return self._new_file(name)
        return self._new_file(
            name, texts=self._texts(len(before[-1].texts)), columns=before[-1].columns
        )

    def _new_file(
        self, name: str, *, texts: tuple[str, ...] | None = None, columns: str = "int"
    ) -> File:
        texts = texts or self._texts(self.chooser.randint(1, 8))
        table = pa.table({"text": texts, **COLUMNS[columns](len(texts))})
        return File(
            content=_as_bytes(table, Path(name).suffix),
            changed=next(self._times),
            columns=columns,
            texts=texts,
            readable=texts,
        )

    def _texts(self, count: int) -> tuple[str, ...]:
        """Return texts of equal length, so that files with equally many rows have equal sizes."""
        return tuple("".join(self.chooser.choices("abcdefgh", k=6)) for _ in range(count))

    def _write(self, name: str, file: File) -> None:
        write_file(self.folder / name, file)
        self.files[name] = file
        if file.state == SOUND:
            self._earlier.setdefault(name, []).append(file)

    def _remove(self, name: str) -> File:
        (self.folder / name).unlink()
        return self.files.pop(name)


def write_file(path: Path, file: File) -> None:
    """Write a version of a file, with its time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.content)
    os.utime(path, ns=(file.changed, file.changed))


def _as_bytes(table: pa.Table, suffix: str) -> bytes:
    handle = io.BytesIO()
    if suffix == ".parquet":
        pq.write_table(table, handle, row_group_size=UNIT_ROWS, **PLAIN)
    elif suffix == ".csv":
        pacsv.write_csv(table, handle)
    else:
        handle.write("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()).encode())
    return handle.getvalue()


def translate_today(source: Path, output: Path, *, removed: str, changed: str) -> None:
    """Translate the folder as a user does, who allows changed files only if `tt` refuses them."""
    before = output_bytes(output)
    try:
        translate(source, output, removed=removed, changed=changed, **OPTIONS)
    except UserError as error:
        if "Set `changed=redo`" not in str(error):
            raise
        assert output_bytes(output) == before
        translate(source, output, removed=removed, changed="redo", **OPTIONS)


def translate_until(
    source: str, output: str, removed: str, changed: str, head_bytes: int, moment: int
) -> int:
    """Translate in a child process, which kills itself before it changes a file.

    Args:
      source: The input folder.
      output: The output folder.
      removed: The option of this name.
      changed: The option of this name.
      head_bytes: See `History`.
      moment: The number of the change before which the process dies; later than the last change
        to let it live.

    Returns:
      The number of changes of files in the output folder, if the process lives.
    """
    changes = 0

    def count(event: str, arguments: tuple) -> None:
        nonlocal changes
        is_change = event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree") or (
            event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wax"
        )
        if is_change and str(arguments[0]).startswith(output):
            changes += 1
            if changes == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    reading.HEAD_BYTES = head_bytes
    translate_today(Path(source), Path(output), removed=removed, changed=changed)
    return changes
