"""Plain text, which has no marks and no entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tt.model.text.spans import Span
from tt.pipelines.texts.markup.regions import Block


class Plain:
    """The format of plain text; see `formats.Format`."""

    name = "plain"
    has_marks = False

    def find_segments(self, text: str) -> list[Block]:
        """Return the whole text as one block."""
        return [Block(0, len(text))]

    def decode(
        self,
        piece: str,
        spans: Sequence[Span],
        *,
        is_attribute: bool = False,
        is_known: Callable[[str], bool] = lambda character: True,
    ) -> tuple[str, list[Span], dict[str, str]]:
        """Return the piece and its spans as they are, and no entities."""
        return piece, [*spans], {}
