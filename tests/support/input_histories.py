"""Random histories of an input folder: files that come, change, move and disappear."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from translation_jobs import translate

SUFFIXES = (".parquet", ".parquet", ".jsonl", ".csv")
NAMES = ("a", "b", "x/a", "y/c")
OPTIONS = {
    "unit_rows": 3, "text_columns": ("text",), "changed": "redo", "on_bad_file": "skip",
}  # fmt: skip
FIXED = "fixed.csv"  # a file that never changes, so that the input never becomes another table
KINDS = (int, float, str)  # types of a column that is not translated


def stem(name: str) -> str:
    """Return a name without its suffix."""
    return name.rpartition(".")[0]


class History:
    """An input folder, and the content that its files should have.

    Attributes:
      folder: The folder.
      tables: The rows of each sound file, by its relative path.
      bad: The relative paths of damaged files, none of which has ever been sound.
    """

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.folder = folder
        self.tables: dict[str, dict[str, list]] = {}
        self.bad: set[str] = set()
        self.chooser = random.Random(seed)
        self._seen: dict[str, int] = {}  # the last number of rows of each name so far
        self._write(FIXED, self._rows())
        self.add()
        self.add()

    def step(self) -> str:
        """Make a random change, and return its name."""
        names = (
            "add", "change", "change", "remove", "remove", "come_back", "come_back", "rename",
            "swap", "retype", "damage",
        )  # fmt: skip
        name = self.chooser.choice(names)
        if name in ("add", "come_back", "damage") or self._movable():
            getattr(self, name)()
        return name

    def _movable(self) -> list[str]:
        return sorted(self.tables.keys() - {FIXED})

    def add(self) -> None:
        name = self.chooser.choice(NAMES) + self.chooser.choice(SUFFIXES)
        if self._is_free(name):
            self._write(name, self._rows())

    def change(self) -> None:
        """Write a file again, often with the same size and the same footer; repair a bad file."""
        name = self.chooser.choice([*self._movable(), *sorted(self.bad)])
        self._write(name, self._rows(self._count(name)))

    def remove(self) -> None:
        name = self.chooser.choice([*self._movable(), *sorted(self.bad)])
        (self.folder / name).unlink()
        self.tables.pop(name, None)
        self.bad.discard(name)

    def come_back(self) -> None:
        gone = [name for name in self._seen if self._is_free(name)]
        if gone:
            name = self.chooser.choice(gone)
            self._write(name, self._rows(self._count(name)))

    def rename(self) -> None:
        before = self.chooser.choice(self._movable())
        after = self.chooser.choice(NAMES) + Path(before).suffix
        if self._is_free(after):
            (self.folder / after).parent.mkdir(exist_ok=True)
            (self.folder / before).rename(self.folder / after)
            self.tables[after] = self.tables.pop(before)
            self._seen[after] = self._seen[before]

    def swap(self) -> None:
        one, other = self.chooser.choices(self._movable(), k=2)
        if one != other and Path(one).suffix == Path(other).suffix:
            between = self.folder / "between"
            (self.folder / one).rename(between)
            (self.folder / other).rename(self.folder / one)
            between.rename(self.folder / other)
            self.tables[one], self.tables[other] = self.tables[other], self.tables[one]

    def retype(self) -> None:
        """Write a file again with another type of a column, and with the same texts."""
        name = self.chooser.choice(self._movable())
        rows = self.tables[name]
        kind = self.chooser.choice(KINDS)
        self._write(name, {**rows, "n": [kind(i) for i in range(len(rows["text"]))]})

    def damage(self) -> None:
        """Add a damaged file with a name that no file has had, because translations stay."""
        name = f"bad{len(self._seen)}{self.chooser.choice(SUFFIXES)}"
        (self.folder / name).write_text('text\n"not closed\n{')
        self._seen[name] = 0
        self.bad.add(name)

    def _is_free(self, name: str) -> bool:
        """Return whether no file has the name, or the same name with another suffix."""
        return stem(name) not in map(stem, [*self.tables, *self.bad])

    def _count(self, name: str) -> int | None:
        """Return the last number of rows of a file in most cases, otherwise None."""
        return self._seen[name] if self.chooser.random() < 0.8 else None

    def _rows(self, count: int | None = None) -> dict[str, list]:
        """Return rows with texts of the same length."""
        count = count or self.chooser.randint(1, 8)
        texts = ["".join(self.chooser.choices("abcdefgh", k=6)) for _ in range(count)]
        return {"text": texts, "n": list(range(count))}

    def _write(self, name: str, rows: dict[str, list]) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table(rows)
        if path.suffix == ".parquet":
            table = table.replace_schema_metadata(None)
            pq.write_table(
                table, path, compression="none", use_dictionary=False, write_statistics=False
            )
        elif path.suffix == ".csv":
            pacsv.write_csv(table, path)
        else:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
        self.tables[name] = rows
        self.bad.discard(name)
        self._seen[name] = len(rows["text"])


def translate_until(source: str, output: str, removed: str, moment: int) -> int:
    """Translate in a child process, which kills itself before it changes a file.

    Args:
      source: The input folder.
      output: The output folder.
      removed: The option of this name.
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
    translate(source, output, removed=removed, **OPTIONS)
    return changes
