"""A stream of lines through a translator: what `tt translate` does."""

from __future__ import annotations

import itertools
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from model.translator import Translator

CHUNK = 1024  # lines that are sorted by length and batched together


def translate_lines(
    translator: Translator,
    source: IO[bytes],
    output: IO[bytes],
    *,
    max_source_tokens: int,
    chunk: int = CHUNK,
) -> list[int]:
    r"""Writes a translation for each line; an empty or too long one gives an empty line.

    A line ends at \n alone, so separators inside a text do not break the count. On a terminal
    each line is answered at once.

    Args:
      translator: The model.
      source: UTF-8; what is not becomes U+FFFD.
      output: Gets UTF-8.
      max_source_tokens: Ids with BOS and EOS that a line may have.
      chunk: Lines read before they are translated.

    Returns:
      The numbers, from 1, of the lines that were too long.
    """
    too_long: list[int] = []
    first = 1
    size = 1 if source.isatty() else chunk
    while lines := list(itertools.islice(source, size)):
        texts = [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines]
        ids = translator.encode(texts)
        translated = [""] * len(texts)
        rows = []
        for i, (text, row) in enumerate(zip(texts, ids, strict=True)):
            if len(row) > max_source_tokens:
                too_long.append(first + i)
            elif text.strip():
                rows.append(i)
        for i, found in zip(rows, translator.translate_ids([ids[i] for i in rows]), strict=True):
            translated[i] = found.text
        output.write("".join(f"{text}\n" for text in translated).encode())
        output.flush()
        first += len(lines)
    return too_long
