"""Glossaries: terms and their translations."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence

import regex

from tt.model.errors import UserError
from tt.model.text.spans import Span, unite

EXACT, ANY_CASE = "exact", "any-case"
# A term begins and ends at the boundary of a word, in scripts that have spaces between words.
_SPACED = r"[\w--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]"


@dataclasses.dataclass(frozen=True)
class Glossary:
    """Terms and their translations. The longest of overlapping terms wins."""

    exact: Mapping[str, str]
    any_case: Mapping[str, str]  # by the case-folded term

    @property
    def digest(self) -> str:
        """Hex digest of the terms, which identifies the glossary."""
        content = repr((sorted(self.exact.items()), sorted(self.any_case.items())))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def add_terms(self, text: str, spans: Sequence[Span]) -> list[Span]:
        """Return the spans and the terms outside them, in the order of the text.

        >>> glossary = Glossary({"white house": "Weißes Haus"}, {})
        >>> glossary.add_terms("A white house.", [])[0].replacement
        'Weißes Haus'
        """
        terms = self.find(text, spans)
        return unite(text, [*spans, *terms]) if terms else list(spans)

    def find(self, text: str, spans: Sequence[Span] = ()) -> list[Span]:
        """Return the terms in a text that overlap neither a span nor each other."""
        taken = bytearray(len(text))
        for span in spans:
            taken[span.start : span.end] = bytes([1]) * (span.end - span.start)
        found = []
        for pattern, is_exact in self._patterns:
            for match in pattern.finditer(text):
                term = match[0] if is_exact else match[0].casefold()
                translation = (self.exact if is_exact else self.any_case).get(term)
                # İ matches the term i, but does not case-fold to it, so it has no translation.
                if translation is not None:
                    found.append((Span(match.start(), match.end(), translation), is_exact))
        # Longer terms come first; among terms of the same length, exact ones come first.
        found.sort(key=lambda term: (term[0].start - term[0].end, not term[1], term[0].start))
        chosen = []
        for span, _ in found:
            if not any(taken[span.start : span.end]):
                taken[span.start : span.end] = bytes([1]) * (span.end - span.start)
                chosen.append(span)
        return sorted(chosen)

    @functools.cached_property
    def _patterns(self) -> list[tuple[regex.Pattern[str], bool]]:
        kinds = ((self.exact, 0, True), (self.any_case, regex.IGNORECASE, False))
        return [
            (
                regex.compile(
                    rf"(?<!{_SPACED})\L<terms>(?!{_SPACED})",
                    flags=regex.VERSION1 | flags,
                    # The first alternative that matches wins, so longer terms come first.
                    terms=sorted(terms, key=len, reverse=True),
                ),
                is_exact,
            )
            for terms, flags, is_exact in kinds
            if terms  # an empty list would match everywhere
        ]


def read_glossary(path: str, *, read: Callable[[str], bytes]) -> Glossary:
    """Read a glossary with one term per line and columns separated by tabs.

    Args:
      path: The file.
      read: Function that reads a file.

    Raises:
      UserError: The file cannot be read, a line has wrong columns, or two lines contradict each
        other.
    """
    try:
        content = read(path).decode("utf-8-sig")
    except OSError as error:
        raise UserError(
            f"`glossary` {path} cannot be read: {error.strerror or error}. Check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"`glossary` {path} is not UTF-8: {error.reason}. Convert the file to UTF-8"
        ) from error
    terms: dict[str, dict[str, str]] = {EXACT: {}, ANY_CASE: {}}
    for number, line in enumerate(content.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip():
            continue
        place = f"line {number} of `glossary` {path}"
        columns = [column.strip() for column in line.split("\t")]
        if not 2 <= len(columns) <= 3 or not all(columns):
            raise UserError(
                f"{place} must contain a term, a tab and its translation, and optionally a tab and "
                f"{EXACT} or {ANY_CASE}. Received: {line!r}"
            )
        term, translation, how = [*columns, EXACT][:3]
        if how not in terms:
            raise UserError(f"{place} must end in {EXACT} or {ANY_CASE}. Received: {how!r}")
        term = term if how == EXACT else term.casefold()
        if terms[how].setdefault(term, translation) != translation:
            raise UserError(
                f"{place} contradicts an earlier line: it translates {columns[0]!r} as "
                f"{translation!r}, the earlier line as {terms[how][term]!r}. Delete one of the "
                "lines"
            )
    if not any(terms.values()):
        raise UserError(
            f"`glossary` {path} contains no terms. Write one term per line, or remove the option"
        )
    return Glossary(terms[EXACT], terms[ANY_CASE])
