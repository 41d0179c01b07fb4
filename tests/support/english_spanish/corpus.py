"""An English-Spanish corpus that a small grammar generates, for demonstrations and tests.

A template is a sentence in both languages. Its subject, action, object and time are chosen once and
inflected in each language, so an English sentence determines its Spanish translation. The held-out
part has the words of the training part, but none of its (subject, verb, object) triples.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from english_spanish import choices
from english_spanish.grammar import WHO, Clause, Triple, pronoun_phrase, tidy
from english_spanish.lexicon import ME, YOU
from english_spanish.spans import (
    Marks,
    choose_with_span,
    put_around,
    put_tags,
)
from tt.model.text.spans import Protection
from tt.pipelines.preprocess.placeholders import replace_shared_spans

SPAN_PAIRS = 4_800  # with spans, in the training part
TRAIN_PAIRS = 24_000 + SPAN_PAIRS
MOST_SPANS = 3  # per sentence
HELD_OUT_PAIRS = 400
SOURCE_LANGUAGE = "en"
TARGET_LANGUAGE = "es"


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, and every (subject, verb, object) triple in it."""

    source: str
    target: str
    triples: tuple[Triple, ...]


@dataclass(frozen=True)
class Template:
    """A sentence with slots in both languages, and the function that chooses its words.

    S is the subject, V the finite verb, O the object, T the time, and Q a quality. Names that end
    in 2 belong to a second clause.
    """

    choose: Callable[[choices.Draw], Clause]
    en: str
    es: str

    def fill(self, clause: Clause) -> Pair:
        """Write a clause in both languages."""
        source = self.en.format_map({name: words.en for name, words in clause.slots.items()})
        target = self.es.format_map({name: words.es for name, words in clause.slots.items()})
        return Pair(tidy(source), tidy(target), clause.triples)


# fmt: off
_habit = partial(choices.act, tenses=choices.PRESENT)
_event = partial(choices.act, tenses=choices.EVENT)
_certain, _certain_event = partial(choices.act, definite=True), partial(_event, definite=True)
_willed = partial(_event, verbs=choices.WILLED)
_unwilled = partial(_certain_event, verbs=choices.WILLED)
_ongoing, _who = partial(_event, verbs=choices.ONGOING), partial(_event, subject=WHO)
_order = partial(_certain_event, verbs=choices.ORDERED, subject=pronoun_phrase(YOU))
_where = partial(choices.act, tenses=choices.PAST, verbs=choices.MAKING)
_counted = partial(_event, verbs=choices.TRADING, only=choices.COUNTABLE, phrase=choices.counted)
_how_many = partial(_event, verbs=choices.MAKING, only=choices.COUNTABLE, phrase=choices.how_many)
_to_noun, _to_pronoun = partial(choices.give, pronoun=False), partial(choices.give, pronoun=True)
_and, _but = partial(choices.follow, but=False), partial(choices.follow, but=True)

TEMPLATES = (
    Template(choices.act, "{S} {V} {O} {T}.", "{S} {V} {O} {T}."),
    Template(choices.act, "{T}, {S} {V} {O}.", "{T} {S} {V} {O}."),
    Template(choices.act, "{do} {S} {base} {O} {T}?", "¿{V} {S} {O} {T}?"),
    Template(choices.act, "{frame} {S} {V} {O} {T}.", "{frame} {S} {V} {O} {T}."),
    Template(_certain, "{S} {notV} {O} {T}.", "{S} {notV} {O} {T}."),
    Template(_habit, "{S} {often} {V} {O}.", "{S} {often} {V} {O}."),
    Template(_counted, "{S} {V} {O} {T}.", "{S} {V} {O} {T}."),
    Template(_ongoing, "{S} {doing} {O} now.", "{S} {doing} {O} ahora."),
    Template(_willed, "{S} {modal} {base} {O}.", "{S} {modal} {base} {O}."),
    Template(_unwilled, "{S} {notmodal} {base} {O}.", "{S} {notmodal} {base} {O}."),
    Template(_order, "please {order} {O}.", "{order} {O}, por favor."),
    Template(_where, "where {do} {S} {base} {O}?", "¿dónde {V} {S} {O}?"),
    Template(_certain_event, "when {do} {S} {base} {O}?", "¿cuándo {V} {S} {O}?"),
    Template(_event, "why {do} {S} {base} {O} {T}?", "¿por qué {V} {S} {O} {T}?"),
    Template(_certain_event, "why {dont} {S} {base} {O}?", "¿por qué no {V} {S} {O}?"),
    Template(_who, "{S} {V} {O} {T}?", "¿{S} {V} {O} {T}?"),
    Template(_how_many, "{O} {do} {S} {base} {T}?", "¿{O} {V} {S} {T}?"),
    Template(choices.meet, "{S} {V} {it} {T}.", "{S} {it} {V} {T}."),
    Template(choices.meet, "{S} {notV} {it} {T}.", "{S} no {it} {V} {T}."),
    Template(choices.meet, "{do} {S} {base} {it} {T}?", "¿{it} {V} {S} {T}?"),
    Template(choices.meet, "{S} {modal} {base} {it}.", "{S} {modal} {base}{it}."),
    Template(_to_noun, "{S} {V} {O} to {whom} {T}.", "{S} {him} {V} {O} a {whom} {T}."),
    Template(_to_noun, "{do} {S} {base} {O} to {whom}?", "¿{him} {V} {S} {O} a {whom}?"),
    Template(_to_pronoun, "{S} {V} {him} {O} {T}.", "{S} {him} {V} {O} {T}."),
    Template(partial(_to_pronoun, definite=True),
             "{S} {notV} {him} {O} {T}.", "{S} no {him} {V} {O} {T}."),
    Template(choices.like, "{S} {V} {O}.", "{whom} {him} {V} {O}."),
    Template(choices.like, "{S} {notV} {O}.", "{whom} no {him} {V} {O}."),
    Template(choices.like, "{do} {S} {base} {O}?", "¿{whom} {him} {V} {O}?"),
    Template(choices.be, "{S} {be} {Q}.", "{S} {be} {Q}."),
    Template(choices.be, "{S} {notbe} {Q}.", "{S} {notbe} {Q}."),
    Template(choices.be, "{be} {S} {Q}?", "¿{be} {Q} {S}?"),
    Template(partial(choices.be, compare=True), "{S} {be} {Q}.", "{S} {be} {Q}."),
    Template(partial(choices.be, compare=True), "{be} {S} {Q}?", "¿{be} {S} {Q}?"),
    Template(partial(choices.have, years=False), "{S} {be} {Q}.", "{S} {be} {Q}."),
    Template(partial(choices.have, years=False), "{be} {S} {Q}?", "¿{be} {Q} {S}?"),
    Template(partial(choices.have, years=True), "{S} {be} {Q}.", "{S} {be} {Q}."),
    Template(partial(choices.have, years=True), "{be} {S} {Q}?", "¿{be} {S} {Q}?"),
    Template(choices.exist, "{S} {be} {Q}.", "{be} {Q}."),
    Template(choices.exist, "{be} {S} {Q}?", "¿{be} {Q}?"),
    Template(_and, "{S} {V} {O} and {V2} {it2} {T}.", "{S} {V} {O} y {it2} {V2} {T}."),
    Template(_but, "{S} {V} {O}, but {S2} {notV2} {it2}.", "{S} {V} {O}, pero {S2} no {it2} {V2}."),
    Template(_and, "{frame} {S} {V} {O} and {V2} {it2} {T}.",
             "{frame} {S} {V} {O} y {it2} {V2} {T}."),
    Template(_but, "{frame} {S} {V} {O}, but {S2} {notV2} {it2}.",
             "{frame} {S} {V} {O}, pero {S2} no {it2} {V2}."),
    Template(choices.explain, "{S} {notV} {O} because {he2} {be2} {Q2}.",
             "{S} {notV} {O} porque {be2} {Q2}."),
    Template(choices.explain, "{T}, {S} {notV} {O} because {he2} {be2} {Q2}.",
             "{T} {S} {notV} {O} porque {be2} {Q2}."),
    Template(partial(choices.relate, to_object=False),
             "{S} who {V} {O} {be2} {Q2}.", "{S} que {V} {O} {be2} {Q2}."),
    Template(partial(choices.relate, to_object=True),
             "{O} that {S} {V} {be2} {Q2}.", "{O} que {S} {V} {be2} {Q2}."),
)
# fmt: on


@functools.cache
def is_held_out(triple: Triple) -> bool:
    """Return whether a triple belongs to the held-out part, which one in eight does."""
    digest = hashlib.blake2b("\t".join(triple).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 8 == 0


def _is_wanted(clause: Clause, template: Template, *, held_out: bool) -> bool:
    if any(is_held_out(triple) is not held_out for triple in clause.triples):
        return False
    # Nobody asks about themselves, or guesses about themselves.
    return clause.subject.pronoun is not ME or template.en[:4] not in ("{do}", "{be}", "{fra")


@functools.cache
def _generate(*, held_out: bool) -> tuple[Pair, ...]:
    """Generate pairs from the templates in turn; a template without new pairs is dropped."""
    draw, templates, pairs = choices.Draw(seed=int(held_out)), list(TEMPLATES), dict[str, Pair]()
    count = HELD_OUT_PAIRS if held_out else TRAIN_PAIRS - SPAN_PAIRS
    while len(pairs) < count:
        for template in tuple(templates):
            for _ in range(1000):
                clause = template.choose(draw)
                if not _is_wanted(clause, template, held_out=held_out):
                    continue
                pair = template.fill(clause)
                if pairs.setdefault(pair.source, pair) is pair:
                    break
            else:
                templates.remove(template)
    return tuple(pairs.values())[:count]


def draw_span_pair(draw: choices.Draw, template: Template, *, held_out: bool) -> Pair | None:
    """Return a sentence with one to three spans; None without spans, or from the other part."""
    marks = Marks()
    has_span, has_tags, is_around = (draw.chance(share) for share in (0.5, 0.6, 0.4))
    clause = choose_with_span(draw, template.choose, marks) if has_span else template.choose(draw)
    if not _is_wanted(clause, template, held_out=held_out):
        return None
    if has_tags:
        clause = put_tags(draw, clause, marks, en=template.en, es=template.es)
    pair = template.fill(clause)
    source, target = pair.source, pair.target
    if is_around and len(marks.spans) < MOST_SPANS:
        source, target = put_around(draw, source, target, marks)
    return Pair(marks.write(source), marks.write(target), pair.triples) if marks.spans else None


def span_pairs(*, count: int, seed: int, held_out: bool = False) -> list[Pair]:
    """Return pairs with spans, with the words of the training part or of the held-out part.

    All pairs differ in more than their spans.
    """
    draw, pairs = choices.Draw(seed), dict[str, Pair]()
    while len(pairs) < count:
        for template in TEMPLATES:
            pair = draw_span_pair(draw, template, held_out=held_out)
            if pair is not None:
                replaced = replace_shared_spans(pair.source, pair.target, protection=Protection())
                pairs.setdefault(replaced.source, pair)
    return list(pairs.values())[:count]


@functools.cache
def _training_part() -> tuple[Pair, ...]:
    return (*_generate(held_out=False), *span_pairs(count=SPAN_PAIRS, seed=2))


def train_pairs() -> list[Pair]:
    """Return the training part: `TRAIN_PAIRS` pairs with distinct sources, in a fixed order.

    The last `SPAN_PAIRS` pairs have spans.
    """
    return list(_training_part())


def held_out_pairs() -> list[Pair]:
    """Return the held-out part: `HELD_OUT_PAIRS` pairs with distinct sources, in a fixed order."""
    return list(_generate(held_out=True))
