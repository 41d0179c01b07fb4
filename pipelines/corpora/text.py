"""Text as a corpus, read all at once: pairs of files, TSV and JSONL, plain or compressed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from model.errors import UserError
from pipelines.corpora import rows
from pipelines.corpora.encodings import UTF8
from pipelines.corpora.lines import FIRST_BYTES, LineReader, line_slices
from pipelines.corpora.rows import MALFORMED, decode_lines
from pipelines.corpora.source import ColumnsSource, FileSource, listed_field
from pipelines.storage.listing import ListedFile
from pipelines.storage.text_files import check_no_array, compression_ending

# Of sentences; only unit sizes and the number of buckets and default shards rest on it.
_EXPANSION = {".gz": 4, ".bz2": 5, ".zst": 4}
_MOST_NAMES = 20  # of keys, in a message


class TextSource(FileSource):
    """Text of any kind; a base of dataclasses."""

    encoding: str  # encoding of the files, by the name of `find_encoding`

    def identity(self) -> dict[str, Any]:
        """Returns what tells one state of the source from another."""
        identity = super().identity()
        return identity if self.encoding == UTF8 else identity | {"encoding": self.encoding}

    def text_bytes(self) -> int:
        """Estimates how many bytes of text there are, by the usual rate of compression."""
        return sum(
            file["bytes"] * _EXPANSION.get(compression_ending(file["path"]), 1)
            for file in self.file_identities()
        )

    def describe(self) -> str:
        """Returns a line on what would be read."""
        compressed = any(compression_ending(path) for path in self.paths())
        encoding = "" if self.encoding == UTF8 else f", {self.encoding}"
        return super().describe() + (" compressed" if compressed else "") + encoding

    def sizes(self, *, max_pairs: int, max_bytes: int) -> None:
        """Returns None: where a line begins is known only once all before it are read."""


@dataclasses.dataclass(frozen=True)
class TextPair(TextSource):
    """Two files of which each line of one translates the same line of the other."""

    kind: ClassVar[str] = "text"

    source_path: str
    target_path: str
    given_name: str = ""
    encoding: str = UTF8
    listed: tuple[ListedFile, ...] = listed_field()

    def paths(self) -> list[str]:
        """Returns the files."""
        return [self.source_path, self.target_path]

    def read_all(self) -> Iterator[pa.Table]:
        """Reads both files in step.

        Raises:
          UserError: One file has more lines than the other, or cannot be read.
        """
        limit = max(1, rows.SLICE_BYTES // 2)
        with (
            LineReader(self.source_path, slice_bytes=limit, encoding=self.encoding) as sources,
            LineReader(self.target_path, slice_bytes=limit, encoding=self.encoding) as targets,
        ):
            while number := min(sources.look_ahead(), targets.look_ahead()):
                yield decode_lines(sources.take(number), targets.take(number))
            if sources.look_ahead() or targets.look_ahead():
                raise UserError(
                    f"{self.source_path} has {sources.count_to_end()} lines and "
                    f"{self.target_path} has {targets.count_to_end()}: line-aligned files must "
                    "have equally many, so check that both are whole and belong together"
                )


@dataclasses.dataclass(frozen=True)
class Tsv(ColumnsSource, TextSource):
    """A file with a pair a line, its columns between tabs and counted from 0."""

    kind: ClassVar[str] = "tsv"

    path: str
    source_column: int = 0
    target_column: int = 1
    given_name: str = ""
    encoding: str = UTF8
    listed: tuple[ListedFile, ...] = listed_field()

    def read_all(self) -> Iterator[pa.Table]:
        """Reads the file; a line with too few columns becomes a fault."""
        needed = max(self.source_column, self.target_column) + 1
        for lines in line_slices(self.path, encoding=self.encoding):
            pairs, faults = [], {}
            for row, line in enumerate(lines):
                columns = line.split(b"\t", needed)
                if len(columns) < needed:
                    faults[row] = MALFORMED
                    pairs.append((line, b""))
                else:
                    pairs.append((columns[self.source_column], columns[self.target_column]))
            yield decode_lines(*zip(*pairs, strict=True), faults=faults)


@dataclasses.dataclass(frozen=True)
class Jsonl(ColumnsSource, TextSource):
    """A file with a JSON object a line, and a text under each of two of its keys.

    A dotted key reaches into objects: "translation.en" finds "A" in {"translation": {"en": "A"}}.
    A null counts as empty.
    """

    kind: ClassVar[str] = "jsonl"

    path: str
    source_column: str
    target_column: str
    given_name: str = ""
    encoding: str = UTF8
    listed: tuple[ListedFile, ...] = listed_field()

    def read_all(self) -> Iterator[pa.Table]:
        """Reads the file; a line without the two texts becomes a fault, and is kept as it is."""
        for lines in line_slices(self.path, encoding=self.encoding):
            pairs, faults = [], {}
            for row, line in enumerate(lines):
                pair: tuple[bytes | None, bytes | None] = (line, b"")
                try:
                    value = json.loads(line.decode())
                    pair = text_at(value, self.source_column), text_at(value, self.target_column)
                except UnicodeDecodeError:
                    pass  # `decode_lines` finds it again and says so
                except (ValueError, TypeError, KeyError, RecursionError):
                    faults[row] = MALFORMED
                pairs.append(pair)
            yield decode_lines(*zip(*pairs, strict=True), faults=faults)


def text_at(value: Any, key: str) -> bytes | None:
    """Returns the text, as UTF-8, under a key of a JSON object, or None where it holds null.

    Raises:
      KeyError: There is no such key.
      TypeError: The key leads through something that is no object, or to what is no string.
      ValueError: The string is not valid Unicode: it holds half a surrogate pair.

    >>> text_at({"translation": {"en": "A"}}, "translation.en")
    b'A'
    """
    for part in [key] if key in value else key.split("."):
        value = value[part]
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{key} holds {value!r}")
    return value.encode()


def find_keys(
    path: str, choices: Sequence[tuple[str, str]], *, are_named: bool = True, encoding: str = UTF8
) -> tuple[str, str]:
    """Returns the first pair of keys under which an object of a JSONL file has texts.

    If the lines tell nothing, since there are none or all are malformed, it is the first choice.
    Of keys that the user named all lines are looked at until one has the texts, as good ones may
    begin late; of keys that are guessed, only the first lines are.

    Raises:
      BadFileError: The file is a JSON array.
      UserError: There are objects, and none has both keys of any pair.
    """
    found: dict[str, None] = {}  # in order
    has_objects = False
    for part, lines in enumerate(line_slices(path, encoding=encoding, slice_bytes=FIRST_BYTES)):
        if part and not are_named:
            break
        if not part:
            check_no_array(b"\n".join(lines), path=path)
        for line in lines:
            try:
                value = json.loads(line.decode())
            except (ValueError, RecursionError):
                continue
            for keys in choices:
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    for key in keys:
                        text_at(value, key)
                    return keys
            if isinstance(value, dict):
                has_objects = True
                if len(found) <= _MOST_NAMES:
                    found |= dict.fromkeys(_names_of_texts(value))
    if not has_objects:
        return choices[0]
    wanted = " or ".join(" and ".join(map(repr, keys)) for keys in choices)
    more = ", ..." if len(found) > _MOST_NAMES else ""
    raise UserError(
        f"{path} has no texts under the keys {wanted}: its objects have "
        f"{', '.join(list(found)[:_MOST_NAMES]) or 'none'}{more}. Name two of them, as in "
        f"{path}:SOURCE:TARGET or with `source_column` and `target_column`"
    )


def _names_of_texts(value: dict[str, Any]) -> Iterator[str]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from (f"{key}.{name}" for name in _names_of_texts(inner))
        elif inner is None or isinstance(inner, str):
            yield key
