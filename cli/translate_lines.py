"""`tt translate`: stdin to stdout, a line for a line."""

from __future__ import annotations

import itertools
import sys
from typing import IO, TYPE_CHECKING

from cli.options import (
    DEFAULT_RUN,
    BeamSize,
    LengthPenalty,
    MaxSourceTokens,
    ModelFolder,
    command,
    import_tensorflow,
    local_path,
    say,
)
from model.config import MAX_SOURCE_TOKENS, Decoding

if TYPE_CHECKING:
    from model.translator import Translator

_DECODING = Decoding()
CHUNK = 1024  # lines that are sorted by length and batched together


@command
def translate_command(
    model: ModelFolder = str(DEFAULT_RUN),
    beam_size: BeamSize = _DECODING.beam_size,
    length_penalty: LengthPenalty = _DECODING.length_penalty,
    max_source_tokens: MaxSourceTokens = MAX_SOURCE_TOKENS,
) -> None:
    """Translate stdin to stdout, a line for a line."""
    import_tensorflow()
    from model.translator import Translator

    decoding = Decoding(beam_size=beam_size, length_penalty=length_penalty)
    translator = Translator.load(local_path(model), decoding=decoding)
    too_long = translate_lines(
        translator, sys.stdin.buffer, sys.stdout.buffer, max_source_tokens=max_source_tokens
    )
    if too_long:
        places = ", ".join(map(str, too_long[:10])) + (", ..." if len(too_long) > 10 else "")
        say(
            f"tt: {len(too_long)} line(s) have more than {max_source_tokens} tokens and are left "
            f"empty (line {places}): split them, or raise --max-source-tokens"
        )


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
    from model.vocabulary import is_empty

    too_long: list[int] = []
    first = 1
    size = 1 if source.isatty() else chunk
    while lines := list(itertools.islice(source, size)):
        texts = [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines]
        ids = translator.encode(texts)
        translated = [""] * len(texts)
        rows = []
        for i, row in enumerate(ids):
            if len(row) > max_source_tokens:
                too_long.append(first + i)
            elif not is_empty(row):
                rows.append(i)
        found, _ = translator.translate_ids([ids[i] for i in rows])
        for i, translation in zip(rows, found, strict=True):
            translated[i] = translation.text
        output.write("".join(f"{text}\n" for text in translated).encode())
        output.flush()
        first += len(lines)
    return too_long
