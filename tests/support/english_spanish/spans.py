"""Sentences with spans that no translation may change: variables, tags, addresses and prices.

While a sentence is generated, a single character marks each span.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from english_spanish import choices, lexicon
from english_spanish.choices import Draw
from english_spanish.grammar import Clause, Phrase
from english_spanish.lexicon import Noun, Words

_ANYBODY = "{}"  # the lemma of a subject that is a span
_FIRST_MARK = 0xE000  # the first private-use character

_DETERMINED = re.compile("(the|an?|some|this|these|my|your|our|his|her|their) ")

_VARIABLES = ("{name}", "{{name}}", "{0}", "%s", "%1$s", "%(name)s", "$USER", "${owner}", ":name:")
_THINGS = (
    "{item}", "{{title}}", "%s", "$FILE", "${item}", "`x = 1`", "`ls -l`", ":book:", "#{id}", "📘",
    "https://example.com/a?b=1", "www.example.org/x",
)  # fmt: skip
_ADDRESSES = ("ana@example.com", "info@example.org", "p.lopez@mail.example.net", "{email}") * 2
_TAGS = (
    ("<b>", "</b>"), ("<i>", "</i>"), ("<em>", "</em>"), ("<strong>", "</strong>"),
    ('<a href="https://example.com">', "</a>"), ('<span class="x">', "</span>"),
    ("<u>", "</u>"), ("<code>", "</code>"),
)  # fmt: skip
_BEFORE = ("{name}", "$USER", ":warning:", "12:30:45", "#{id}", "{{count}}", "2024-11-22", "👉")
_BEHIND = (
    "https://example.com", "www.example.org", "me@example.com", "%s", "5 km", "12,345.67", "$5.20",
    "+34 600 123 456", "`rm -r x`", "😀", "🎉", "&copy;", "2024-11-22", "${HOME}", "{link}",
    "192.168.0.1",
)  # fmt: skip

_PLACED = choices.verbs_named(
    "read write eat drink buy sell bring find lose open close wash repair paint"
)


class Marks:
    """The spans of a sentence."""

    def __init__(self) -> None:
        self.spans: list[str] = []

    def mark(self, span: str) -> str:
        """Return the character that marks a span until the sentence is written."""
        self.spans.append(span)
        return chr(_FIRST_MARK + len(self.spans) - 1)

    def write(self, text: str) -> str:
        """Replace the marks in a sentence by the spans."""
        return text.translate(dict(enumerate(self.spans, _FIRST_MARK)))


def choose_with_span(draw: Draw, choose: Callable[..., Clause], marks: Marks) -> Clause:
    """Choose a clause with a span as its subject, object or recipient.

    `choose` is the function of a template. A clause without an action gets no span.
    """
    function, given = (
        (choose.func, choose.keywords) if isinstance(choose, partial) else (choose, {})
    )
    if function is choices.give and not given["pronoun"]:
        address = marks.mark(draw.pick(_ADDRESSES + _VARIABLES))
        return choose(draw).plus(whom=Words(address, address), him=Words("him", "le"))
    if function is not choices.act or {"subject", "phrase"} & given.keys():
        return choose(draw)
    if draw.chance(0.5):
        mark = marks.mark(draw.pick(_VARIABLES))
        return choose(draw, subject=Phrase(mark, mark, _ANYBODY, lexicon.HE, human=True))
    mark = marks.mark(draw.pick(_THINGS))

    def phrase(_draw: Draw, noun: Noun) -> Phrase:
        return Phrase(mark, mark, noun.en, lexicon.IT)

    verbs = [verb for verb in given.get("verbs", choices.ACTING) if verb in _PLACED]
    return choose(draw, verbs=verbs, phrase=phrase)


def put_tags(draw: Draw, clause: Clause, marks: Marks, *, en: str, es: str) -> Clause:
    """Put tags around the object, if it has a determiner.

    Args:
      draw: Chooses the tags.
      clause: The clause.
      marks: The spans of the sentence.
      en: The English side of its template.
      es: The Spanish side of its template.
    """
    if "{O}" not in en or "{O}" not in es or en.startswith("{O}"):
        return clause
    words, inner = clause.slots["O"], clause.thing
    is_contracted = inner.es.startswith("el ") and words.es.strip() != inner.es  # "al parque"
    if is_contracted or not _DETERMINED.match(inner.en) or inner.es not in words.es:
        return clause
    start, end = map(marks.mark, draw.pick(_TAGS))
    sides = (
        f"{start}{part}{end}".join(whole.rsplit(part, 1))
        for whole, part in ((words.en, inner.en), (words.es, inner.es))
    )
    return clause.plus(O=Words(*sides))


def put_around(draw: Draw, source: str, target: str, marks: Marks) -> tuple[str, str]:
    """Put a span before a sentence, or before its final punctuation mark."""
    if draw.chance(0.3):
        span = draw.pick(_BEFORE)
        between = " " if span.endswith(":") else draw.pick((": ", ": ", " "))
        before = marks.mark(span) + between
        return before + source, before + target
    behind = f" {marks.mark(draw.pick(_BEHIND))}"
    return f"{source[:-1]}{behind}{source[-1]}", f"{target[:-1]}{behind}{target[-1]}"
