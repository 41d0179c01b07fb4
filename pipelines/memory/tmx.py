"""Read and write TMX, the exchange format of translation memories.

No library on PyPI fits: hypomnema is not stable and needs Python 3.13, and translate-toolkit has
the GPL. The standard library's parser reads a file in bounded memory.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable
from typing import IO, NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

import regex

from tt.model.errors import BadFileError
from tt.model.text.languages import language_and_script

_UNIT, _VARIANT, _SEGMENT = "tu", "tuv", "seg"
_LANGUAGE = ("xml:lang", "lang")  # the second name is from TMX before 1.4
# Characters that XML 1.0 cannot contain.
_NOT_XML = regex.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TmxUnit(NamedTuple):
    """A translation unit to write.

    Attributes:
      source: The text.
      target: Its translation.
      source_language: The code of the text's language.
      target_language: The code of the translation's language.
      kind: "human" or "model".
    """

    source: str
    target: str
    source_language: str
    target_language: str
    kind: str


def read_tmx(
    file: IO[bytes],
    *,
    path: str,
    source_language: str,
    target_language: str,
    add: Callable[[str, str], object],
) -> set[str]:
    """Read the translations between two languages, and return the codes of all languages.

    Codes without and with a region name the same language. The text of inline elements such as
    `<ph>` belongs to the text, because it is the markup of the original document.

    Args:
      file: The file, open at its start.
      path: The path of the file, for messages.
      source_language: The code of the source language.
      target_language: The code of the target language.
      add: Receives each source text and its translation, in the order of the file. If a unit has
        several variants of a language, it receives each of their combinations.

    Raises:
      BadFileError: The file is not TMX, or declares entities.
    """
    reader = _Reader(
        path=path,
        source=language_and_script(source_language),
        target=language_and_script(target_language),
        add=add,
    )
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.refuse_entity
    try:
        parser.ParseFile(file)
    except (expat.ExpatError, LookupError, ValueError) as error:  # also an unknown encoding
        raise BadFileError(f"{path} is not well-formed XML: {error}") from error
    return reader.languages


class _Reader:
    """The handlers of the parser."""

    def __init__(
        self, *, path: str, source: str, target: str, add: Callable[[str, str], object]
    ) -> None:
        self._path = path
        self._source = source
        self._target = target
        self._add = add
        self.languages: set[str] = set()
        self._is_tmx = False
        self._texts: dict[str, list[str]] = {}  # the segments of the current unit, by language
        self._language = ""
        self._segment: list[str] | None = None  # the text of the current segment

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._is_tmx and name != "tmx":
            raise BadFileError(f"{self._path} is not TMX: its first element is <{name}>")
        self._is_tmx = True
        if name == _UNIT:
            self._texts = {}
        elif name == _VARIANT:
            self._language = next((attributes[n] for n in _LANGUAGE if n in attributes), "")
            self.languages.add(self._language)
        elif name == _SEGMENT:
            self._segment = []

    def text(self, text: str) -> None:
        if self._segment is not None:
            self._segment.append(text)

    def end(self, name: str) -> None:
        if name == _SEGMENT and self._segment is not None:
            texts = self._texts.setdefault(language_and_script(self._language), [])
            texts.append("".join(self._segment))
            self._segment = None
        elif name == _UNIT:
            for source in self._texts.get(self._source, ()):
                for target in self._texts.get(self._target, ()):
                    self._add(source, target)

    def refuse_entity(self, name: str, *_: object) -> None:
        # Nested entities can expand to gigabytes.
        raise BadFileError(f"{self._path} declares the entity {name!r}, which tt does not read")


def write_tmx(file: IO[bytes], units: Iterable[TmxUnit]) -> tuple[int, int]:
    """Write a TMX 1.4 file; return the number of units, and of units that XML cannot contain.

    Args:
      file: The file, open for writing.
      units: The units.
    """
    version = importlib.metadata.version("tt-translate")
    header = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n<header creationtool="tt" '
        f'creationtoolversion={quoteattr(version)} segtype="sentence" o-tmf="tt" adminlang="en" '
        'srclang="*all*" datatype="plaintext"/>\n<body>\n'
    )
    file.write(header.encode())
    written = left_out = 0
    for unit in units:
        if _NOT_XML.search(unit.source + unit.target):
            left_out += 1
            continue
        variants = "".join(
            f"<tuv xml:lang={quoteattr(language)}><seg>{_escape(text)}</seg></tuv>"
            for language, text in (
                (unit.source_language, unit.source),
                (unit.target_language, unit.target),
            )
        )
        file.write(f'<tu><prop type="x-kind">{unit.kind}</prop>{variants}</tu>\n'.encode())
        written += 1
    file.write(b"</body>\n</tmx>\n")
    return written, left_out


def _escape(text: str) -> str:
    return escape(text, {"\r": "&#13;"})  # parsers turn a plain carriage return into a line feed
