"""Fake translators and terminals."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable
from typing import Any

from tt.model.engines.translator import Hypothesis, Input, Translation, Work
from tt.model.transformer.search_options import Decoding

UNKNOWN = "ж"  # the only letter that is not in the Reverser's vocabulary

crash_at: set[str] = set()  # texts that kill a job; tests add and remove them
fail_at: set[str] = set()  # texts at which the Reverser fails; tests add and remove them


_FIGURE = re.compile(r"[0-9]+(?:[.,:/-][0-9]+)*")


def reverse(text: str) -> str:
    """Return a text with its characters in reverse order, except figures.

    >>> reverse("row 12")
    '12 wor'
    """
    return _FIGURE.sub(lambda found: found[0][::-1], text[::-1])


class Reverser:
    """A translator that reverses texts; the score is minus the number of letters.

    Figures are not reversed, because `tt` would repair them.

    Characters are tokens, and encodings are texts without invisible characters. If a source
    contains a letter of `encode_poison` or `poison`, `fault` is raised when the source is prepared
    or translated.
    `crash_at` and `fail_at` are for jobs, whose workers load their own Reverser.
    """

    decoding = Decoding()

    def __init__(self, *, poison="", encode_poison="", fault=None, n_best=1):
        self.poison = poison
        self.encode_poison = encode_poison
        self.fault = fault or ValueError("bad\nid")
        self.n_best = n_best
        self.calls: list[list[str]] = []  # the texts of each call of `translate`

    @property
    def translated(self) -> list[str]:
        return [text for call in self.calls for text in call]

    def prepare(self, texts, *, languages=("", ""), most_tokens=None):
        if set(self.encode_poison) & set("".join(texts)):
            raise self.fault
        most = None if most_tokens is None else most_tokens - 2
        return [
            Input(
                text,
                len(cleaned),
                tuple(each for each in cleaned if each == UNKNOWN),
                max(map(ord, cleaned), default=0),
                cleaned[:most],
            )
            for text, cleaned in ((text, text.replace("\u200b", "").strip()) for text in texts)
        ]

    def translate(self, inputs):
        texts = [each.encoded for each in inputs]
        self.calls.append(texts)
        assert crash_at.isdisjoint(texts), "the worker dies here"
        for text in texts:
            if text in fail_at:
                raise ValueError(f"cannot take {text}")
        if set(self.poison) & set("".join(texts)):
            raise self.fault
        found = [
            Translation(
                tuple(
                    Hypothesis(reverse(text) + "'" * i, -len(text) - i) for i in range(self.n_best)
                )
            )
            for text in texts
        ]
        sizes = [len(text) + 2 for text in texts]
        tokens = sum(sizes)
        padded = max(sizes, default=0) * len(sizes)
        work = Work(
            sources=len(texts), source_tokens=tokens, padded_tokens=padded, target_tokens=tokens
        )
        return found, work

    def is_input_error(self, error):
        return isinstance(error, ValueError)


@dataclasses.dataclass(frozen=True)
class Loader:
    """The loader of a translator of a user."""

    load: Callable[[], Any]
    fingerprint: str
    name: str = "reverser"

    def __call__(self):
        return self.load()


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True

    def screen(self):
        """Return the visible line, including trailing blanks."""
        cells, column = [], 0
        for letter in self.getvalue():
            if letter == "\r":
                column = 0
            else:
                cells[column : column + 1] = letter
                column += 1
        return "".join(cells)
