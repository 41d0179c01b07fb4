"""An English-Spanish corpus written by a small grammar, for demonstrations and tests.

A template is one line that holds both languages. What it says (who does what, to what, when) is
chosen once and inflected on either side, so an English sentence determines its Spanish one. Word
order, agreement, dropped pronouns, clitics and questions differ between the two. The held-out part
has the words of the training part, but none of its (subject, verb, object) triples.
"""

from __future__ import annotations

import functools
import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pipelines.english_spanish.grammar import (
    WHO,
    Clause,
    Phrase,
    Triple,
    add_s,
    add_suffix,
    agree,
    clitic,
    comparative,
    conjugate,
    date,
    describe_action,
    describe_state,
    english_verb,
    negate,
    noun_phrase,
    pronoun_phrase,
    spell,
    tidy,
)
from pipelines.english_spanish.lexicon import (
    ADJECTIVES,
    COLOURS,
    ESTAR,
    FEELINGS,
    FRAMES,
    HABER,
    HE,
    HOW_MANY,
    HUMAN,
    MASS,
    ME,
    MODALS,
    MONTHS,
    MY,
    NOUNS,
    OBJECT_PRONOUNS,
    OFTEN,
    SEQUENCES,
    SER,
    SINGULAR_ONLY,
    SUBJECT_PRONOUNS,
    TENER,
    THE,
    THIS,
    TIMES,
    VERBS,
    WEEKDAYS,
    YOU,
    YOU_ALL,
    A,
    Adjective,
    Noun,
    Person,
    Pronoun,
    Tense,
    Verb,
    Words,
    gloss,
)

TRAIN_PAIRS = 24_000
HELD_OUT_PAIRS = 400
SOURCE_LANGUAGE = "en"
TARGET_LANGUAGE = "es"

T = TypeVar("T")


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, and every (subject, verb, object) in it."""

    source: str
    target: str
    triples: tuple[Triple, ...]


# ---------------------------------------------------------------------------------------- choices


class Draw:
    """Choices that every version of Python makes alike.

    Of a generator with an integer seed only `random()` is promised to stay the same.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Is true with a probability."""
        return self._random() < probability

    def number(self, low: int, high: int) -> int:
        """Chooses a number from `low` to `high`, both included."""
        return low + int(self._random() * (high + 1 - low))

    def pick(self, options: Sequence[T]) -> T:
        """Chooses one of the options."""
        return options[int(self._random() * len(options))]


def _verbs(lemmas: str) -> tuple[Verb, ...]:
    return tuple(VERBS[lemma] for lemma in lemmas.split())


_GIVING, _LUCK, _STAYING = _verbs("give send"), _verbs("find lose"), _verbs("work sleep run sing")
_MEETING, _TRADING = _verbs("see look wait visit help call"), _verbs("buy sell bring find")
_MAKING = _verbs("read write eat buy sell wash repair paint find lose")
_ACTING = tuple(verb for verb in VERBS.values() if verb.en not in ("give", "send", "like"))
_WILLED = tuple(verb for verb in _ACTING if verb not in _verbs("find lose see"))
_ONGOING = tuple(verb for verb in _WILLED if verb not in _verbs("go return"))
_ORDERED = tuple(verb for verb in _ONGOING if verb not in _STAYING)
_REASONS = tuple(a for a in ADJECTIVES if a.en in ("tired", "sick", "busy", "sad"))
_COUNTABLE = "food text vehicle clothes furniture device"
_PRESENT: tuple[Tense, ...] = ("present",)
_PAST: tuple[Tense, ...] = ("past",)
_KNOWN: tuple[Tense, ...] = ("present", "past")
_EVENT: tuple[Tense, ...] = ("past", "future")


@functools.cache
def _modal(*, verb: Verb, person: Person) -> tuple[Words, Words]:
    """Gives what says that one wants to do something, and that one does not."""
    to, es = verb.prepositions, conjugate(verb=verb, tense="present", person=person)
    en = english_verb(verb=verb, tense="present", person=person)
    dont = "doesn't" if person == "3s" else "don't"
    not_en = negate(en) if en == "can" else f"{dont} {verb.en}"
    return Words(f"{en} {to.en}", f"{es} {to.es}"), Words(f"{not_en} {to.en}", f"no {es} {to.es}")


@functools.cache
def _nouns(kinds: str, only: str = "") -> tuple[Noun, ...]:
    both = (kinds.split(), (only or kinds).split())
    return tuple(n for n in NOUNS.values() if all(n.kind in each or n.en in each for each in both))


@functools.cache
def _adjectives(kind: str, copulas: str = "ser estar") -> tuple[Adjective, ...]:
    return tuple(a for a in ADJECTIVES if kind in a.kinds.split() and a.copula in copulas.split())


def draw_phrase(
    draw: Draw, noun: Noun, *, owner: Pronoun, habit: bool = False, definite: bool = False
) -> Phrase:
    """Chooses the determiner, number and adjective of a noun, as suits its kind."""
    kind, mass, human = noun.kind, noun.kind in MASS.split(), noun.kind in HUMAN.split()
    unplural = mass or kind in ("name", "building", "place") or noun.en in SINGULAR_ONLY
    plural = not unplural and draw.chance(0.3)
    determiners: tuple[str | None, ...] = (THE, A, THIS, owner.own)
    if kind == "name" or (habit and mass):
        determiners = (None,)
    elif kind == "kin":
        determiners = (owner.own, MY)
    elif kind == "place":
        determiners = (THE,)
    elif definite or kind in ("person", "building"):
        determiners = (THE, THE, THIS)
    elif mass:
        determiners = (None, THE, owner.own)
    elif habit:
        determiners = (None if plural else A,) if kind == "food" else (THE, owner.own)
    determiner, number, adjective = draw.pick(determiners), None, None
    if plural and determiner is A and draw.chance(0.6):
        determiner, number = None, draw.number(2, 12)
    if kind not in ("name", "kin") and draw.chance(0.35):
        fitting = _adjectives(kind, "ser" if human else "ser estar")
        if definite and not human:
            fitting = tuple(a for a in fitting if a.en in COLOURS)
        adjective = draw.pick(fitting) if fitting else None
    return noun_phrase(
        noun=noun, determiner=determiner, number=number, adjective=adjective, plural=plural
    )


def draw_person(draw: Draw, *, owner: Pronoun, unlike: str = "") -> Phrase:
    """Chooses somebody by name, kinship or kind, but not the one called `unlike`."""
    nouns = [noun for noun in _nouns(draw.pick(HUMAN.split())) if noun.en != unlike]
    return draw_phrase(draw, draw.pick(nouns), owner=owner)


def draw_thing(draw: Draw, *, kinds: str, unlike: str = "") -> Phrase:
    """Chooses a certain thing, but not the one called `unlike`."""
    nouns = [noun for noun in _nouns(kinds) if noun.en != unlike]
    return draw_phrase(draw, draw.pick(nouns), owner=HE, definite=True)


def draw_subject(draw: Draw) -> Phrase:
    """Chooses who a clause is about; "your" brother is always that of one person, "tu"."""
    if draw.chance(0.55):
        return pronoun_phrase(draw.pick(SUBJECT_PRONOUNS))
    return draw_person(draw, owner=draw.pick(OBJECT_PRONOUNS))


def draw_pronoun(draw: Draw, *, subject: Phrase) -> Phrase:
    """Chooses a pronoun for somebody other than the subject."""
    mine = "2" if subject.pronoun is YOU_ALL else subject.pronoun.person[0]
    others = [p for p in OBJECT_PRONOUNS if p.person[0] == "3" or p.person[0] != mine]
    return pronoun_phrase(draw.pick(others))


def draw_time(draw: Draw, *, tense: Tense) -> Words:
    """Chooses a date, a day of the week or another time."""
    if tense != "present" and draw.chance(0.2):
        year = draw.number(2000, 2024) if tense == "past" else draw.number(2027, 2040)
        known = year if draw.chance(0.7) else None
        return date(day=draw.number(1, 28), month=draw.pick(MONTHS), year=known)
    return draw.pick(TIMES[tense])


def counted(draw: Draw, noun: Noun) -> Phrase:
    """Chooses a large number of things."""
    return noun_phrase(noun=noun, number=draw.number(2, 99))


def how_many(_draw: Draw, noun: Noun) -> Phrase:
    """Asks for the number of things."""
    return noun_phrase(noun=noun, determiner=HOW_MANY, plural=True)


def act(
    draw: Draw,
    *,
    tenses: Sequence[Tense] = ("present", "past", "future"),
    verbs: Sequence[Verb] = _ACTING,
    only: str = "",
    phrase: Callable[[Draw, Noun], Phrase] | None = None,
    subject: Phrase | None = None,
    definite: bool = False,
) -> Clause:
    """Chooses who does what, to what and when; the arguments narrow the choice."""
    subject, tense = subject or draw_subject(draw), draw.pick(tenses)
    habit = tense == "present"
    if habit:
        verbs = [verb for verb in verbs if verb.daily]
    elif tense == "future":
        verbs = [verb for verb in verbs if verb not in _LUCK]
    verb = draw.pick(verbs)
    nouns = _nouns(verb.daily if habit else f"{verb.daily} {verb.once}", only)
    noun = draw.pick([noun for noun in nouns if noun.en != subject.lemma])
    owner = subject.pronoun
    if phrase:
        thing = phrase(draw, noun)
    else:
        thing = draw_phrase(draw, noun, owner=owner, habit=habit, definite=definite)
    modal, not_modal = _modal(verb=draw.pick(MODALS), person=owner.person)
    return describe_action(subject=subject, verb=verb, thing=thing, tense=tense).plus(
        T=draw_time(draw, tense=tense),
        often=draw.pick(OFTEN),
        frame=draw.pick(FRAMES),
        modal=modal,
        notmodal=not_modal,
    )


def meet(draw: Draw) -> Clause:
    """Chooses who sees or helps somebody who is only a pronoun."""
    subject = draw_subject(draw)
    other = draw_pronoun(draw, subject=subject)
    return act(draw, verbs=_MEETING, only="name", subject=subject, phrase=lambda *_: other)


def give(draw: Draw, *, pronoun: bool, definite: bool = False) -> Clause:
    """Chooses who gives or sends what, and to whom."""
    clause = act(draw, verbs=_GIVING, definite=definite)
    subject = clause.subject
    if pronoun:
        other = draw_pronoun(draw, subject=subject)
    else:
        other = draw_person(draw, owner=subject.pronoun, unlike=subject.lemma)
    him = Words(other.pronoun.object_en, clitic(other.pronoun, dative=True))
    return clause.plus(whom=Words(other.en, other.es), him=him)


def like(draw: Draw) -> Clause:
    """Chooses who likes what; in Spanish the thing pleases the person."""
    subject, verb, tense = draw_subject(draw), VERBS["like"], draw.pick(_KNOWN)
    noun = draw.pick(_nouns(verb.daily))
    thing = draw_phrase(draw, noun, owner=HE, definite=True)
    if tense == "present" and noun.kind in ("food", *MASS.split()):  # in general: "la leche"
        plural = noun.kind == "food"
        thing = noun_phrase(noun=noun, determiner=THE, plural=plural)
        thing = replace(thing, en=noun_phrase(noun=noun, plural=plural).en)
    clause = describe_action(subject=subject, verb=verb, thing=thing, tense=tense)
    finite = conjugate(verb=verb, tense=tense, person=thing.pronoun.person)
    return clause.plus(
        V=Words(clause.slots["V"].en, finite),
        whom=Words("", f"a {subject.es}" if subject.es else ""),
        him=Words("", clitic(subject.pronoun, dative=True)),
    )


def be(
    draw: Draw,
    *,
    subject: Phrase | None = None,
    tenses: Sequence[Tense] = _KNOWN,
    among: Sequence[Adjective] = (),
    compare: bool = False,
) -> Clause:
    """Chooses what somebody or something is like, or is as much or more so than another."""
    if subject is None and draw.chance(0.5):
        subject = draw_thing(draw, kinds=f"{_COUNTABLE} {MASS} opening building")
    subject = subject or draw_subject(draw)
    pronoun, kind = subject.pronoun, "person" if subject.human else NOUNS[subject.lemma].kind
    said = {a.en for a in _adjectives(kind)} & set(subject.en.split())
    if compare or (said and not subject.human):
        said |= COLOURS
    fitting = among or _adjectives(kind, "ser" if compare else "ser estar")
    adjective = draw.pick([a for a in fitting if a.en not in said])
    plural = pronoun.person in ("1p", "3p")
    es = agree(adjective=adjective.es, gender=pronoun.gender, plural=plural)
    quality = Words(adjective.en, es)
    if compare:
        if subject.human:
            other = draw_person(draw, owner=pronoun, unlike=subject.lemma)
        else:
            other = draw_thing(draw, kinds=kind, unlike=subject.lemma)
        more = Words(f"{comparative(adjective.en)} than {other.en}", f"más {es} que {other.es}")
        equal = Words(f"as {adjective.en} as {other.en}", f"tan {es} como {other.es}")
        quality = draw.pick((more, equal))
    return describe_state(
        subject=subject,
        copula=SER if adjective.copula == "ser" else ESTAR,
        quality=quality,
        lemma=adjective.en,
        tense=draw.pick(tenses),
    )


def have(draw: Draw, *, years: bool) -> Clause:
    """Chooses who is how old, or hungry or the like; in Spanish one has years, or hunger."""
    subject, quality, tenses = draw_subject(draw), draw.pick(FEELINGS), _KNOWN
    if years:
        number = spell(number=draw.number(20, 99), gender="m")
        quality, tenses = Words(f"{number.en} years old", f"{number.es} años"), _PRESENT
    return describe_state(
        subject=subject,
        copula=TENER,
        quality=quality,
        lemma=quality.en,
        tense=draw.pick(tenses),
    )


def exist(draw: Draw) -> Clause:
    """Chooses what there is in some place."""
    noun, number = draw.pick(_nouns("text furniture device person")), draw.number(2, 40)
    room = draw.pick(_nouns("school hospital museum office library kitchen"))
    place = noun_phrase(noun=room, determiner=THE)
    if draw.chance(0.6):
        thing = noun_phrase(noun=noun, number=number)
    else:
        thing = noun_phrase(noun=noun, determiner=A)
    return describe_state(
        subject=Phrase("there", "", "there", thing.pronoun),
        copula=HABER,
        quality=Words(f"{thing.en} in {place.en}", f"{thing.es} en {place.es}"),
        lemma=noun.en,
        tense=draw.pick(_KNOWN),
    )


def follow(draw: Draw, *, but: bool) -> Clause:
    """Chooses two actions on a thing, the second by the same person or, with `but`, another."""
    first_verb, second_verb, kinds = draw.pick(SEQUENCES)
    first = act(draw, tenses=_PAST, verbs=_verbs(first_verb), only=kinds)
    subject, verb = first.subject, VERBS[second_verb]
    while but and subject.lemma == first.subject.lemma:
        subject = draw_subject(draw)
    return first.then(describe_action(subject=subject, verb=verb, thing=first.thing, tense="past"))


def explain(draw: Draw) -> Clause:
    """Chooses what somebody did not do, and why."""
    first = act(draw, tenses=_PAST, verbs=_WILLED, definite=True)
    return first.then(be(draw, subject=first.subject, tenses=_PAST, among=_REASONS))


def relate(draw: Draw, *, to_object: bool) -> Clause:
    """Chooses an action, and what its subject or object is like."""
    if to_object:
        only = f"{_COUNTABLE} {MASS}"
        first = act(draw, tenses=_PAST, verbs=_MAKING, only=only, definite=True)
        return first.then(be(draw, subject=first.thing, tenses=_PAST))
    noun, plural = draw.pick(_nouns("person")), draw.chance(0.5)
    person = noun_phrase(noun=noun, determiner=THE, plural=plural)
    return act(draw, tenses=_PAST, subject=person).then(be(draw, subject=person))


# ---------------------------------------------------------------------------------------- templates


@dataclass(frozen=True)
class Template:
    """A sentence with slots in both languages, and what chooses the words for them.

    S is the subject, V the finite verb, O the object, T the time, Q what somebody is; names that
    end in 2 belong to a second clause.
    """

    choose: Callable[[Draw], Clause]
    en: str
    es: str

    def fill(self, clause: Clause) -> Pair:
        """Writes a clause out in both languages."""
        source = self.en.format_map({name: words.en for name, words in clause.slots.items()})
        target = self.es.format_map({name: words.es for name, words in clause.slots.items()})
        return Pair(tidy(source), tidy(target), clause.triples)


# fmt: off
_habit, _event = partial(act, tenses=_PRESENT), partial(act, tenses=_EVENT)
_certain, _certain_event = partial(act, definite=True), partial(_event, definite=True)
_willed, _unwilled = partial(_event, verbs=_WILLED), partial(_certain_event, verbs=_WILLED)
_ongoing, _who = partial(_event, verbs=_ONGOING), partial(_event, subject=WHO)
_order = partial(_certain_event, verbs=_ORDERED, subject=pronoun_phrase(YOU))
_where = partial(act, tenses=_PAST, verbs=_MAKING)
_counted = partial(_event, verbs=_TRADING, only=_COUNTABLE, phrase=counted)
_how_many = partial(_event, verbs=_MAKING, only=_COUNTABLE, phrase=how_many)
_to_noun, _to_pronoun = partial(give, pronoun=False), partial(give, pronoun=True)
_and, _but = partial(follow, but=False), partial(follow, but=True)
TEMPLATES = (
    Template(act, "{S} {V} {O} {T}.", "{S} {V} {O} {T}."),
    Template(act, "{T}, {S} {V} {O}.", "{T} {S} {V} {O}."),
    Template(act, "{do} {S} {base} {O} {T}?", "¿{V} {S} {O} {T}?"),
    Template(act, "{frame} {S} {V} {O} {T}.", "{frame} {S} {V} {O} {T}."),
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
    Template(meet, "{S} {V} {it} {T}.", "{S} {it} {V} {T}."),
    Template(meet, "{S} {notV} {it} {T}.", "{S} no {it} {V} {T}."),
    Template(meet, "{do} {S} {base} {it} {T}?", "¿{it} {V} {S} {T}?"),
    Template(meet, "{S} {modal} {base} {it}.", "{S} {modal} {base}{it}."),
    Template(_to_noun, "{S} {V} {O} to {whom} {T}.", "{S} {him} {V} {O} a {whom} {T}."),
    Template(_to_noun, "{do} {S} {base} {O} to {whom}?", "¿{him} {V} {S} {O} a {whom}?"),
    Template(_to_pronoun, "{S} {V} {him} {O} {T}.", "{S} {him} {V} {O} {T}."),
    Template(partial(_to_pronoun, definite=True),
             "{S} {notV} {him} {O} {T}.", "{S} no {him} {V} {O} {T}."),
    Template(like, "{S} {V} {O}.", "{whom} {him} {V} {O}."),
    Template(like, "{S} {notV} {O}.", "{whom} no {him} {V} {O}."),
    Template(like, "{do} {S} {base} {O}?", "¿{whom} {him} {V} {O}?"),
    Template(be, "{S} {be} {Q}.", "{S} {be} {Q}."),
    Template(be, "{S} {notbe} {Q}.", "{S} {notbe} {Q}."),
    Template(be, "{be} {S} {Q}?", "¿{be} {Q} {S}?"),
    Template(partial(be, compare=True), "{S} {be} {Q}.", "{S} {be} {Q}."),
    Template(partial(be, compare=True), "{be} {S} {Q}?", "¿{be} {S} {Q}?"),
    Template(partial(have, years=False), "{S} {be} {Q}.", "{S} {be} {Q}."),
    Template(partial(have, years=False), "{be} {S} {Q}?", "¿{be} {Q} {S}?"),
    Template(partial(have, years=True), "{S} {be} {Q}.", "{S} {be} {Q}."),
    Template(partial(have, years=True), "{be} {S} {Q}?", "¿{be} {S} {Q}?"),
    Template(exist, "{S} {be} {Q}.", "{be} {Q}."),
    Template(exist, "{be} {S} {Q}?", "¿{be} {Q}?"),
    Template(_and, "{S} {V} {O} and {V2} {it2} {T}.", "{S} {V} {O} y {it2} {V2} {T}."),
    Template(_but, "{S} {V} {O}, but {S2} {notV2} {it2}.", "{S} {V} {O}, pero {S2} no {it2} {V2}."),
    Template(_and, "{frame} {S} {V} {O} and {V2} {it2} {T}.",
             "{frame} {S} {V} {O} y {it2} {V2} {T}."),
    Template(_but, "{frame} {S} {V} {O}, but {S2} {notV2} {it2}.",
             "{frame} {S} {V} {O}, pero {S2} no {it2} {V2}."),
    Template(explain, "{S} {notV} {O} because {he2} {be2} {Q2}.",
             "{S} {notV} {O} porque {be2} {Q2}."),
    Template(explain, "{T}, {S} {notV} {O} because {he2} {be2} {Q2}.",
             "{T} {S} {notV} {O} porque {be2} {Q2}."),
    Template(partial(relate, to_object=False),
             "{S} who {V} {O} {be2} {Q2}.", "{S} que {V} {O} {be2} {Q2}."),
    Template(partial(relate, to_object=True),
             "{O} that {S} {V} {be2} {Q2}.", "{O} que {S} {V} {be2} {Q2}."),
)
# fmt: on

# ------------------------------------------------------------------------------------------ split


@functools.cache
def is_held_out(triple: Triple) -> bool:
    """Says whether a (subject, verb, object) is kept for the held-out part: one in eight is."""
    digest = hashlib.blake2b("\t".join(triple).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 8 == 0


@functools.cache
def _generate(*, held_out: bool) -> tuple[Pair, ...]:
    """Takes pairs from the templates in turn; one that yields nothing new any more drops out."""
    draw, templates, pairs = Draw(seed=int(held_out)), list(TEMPLATES), dict[str, Pair]()
    count = HELD_OUT_PAIRS if held_out else TRAIN_PAIRS
    while len(pairs) < count:
        for template in tuple(templates):
            for _ in range(1000):
                clause = template.choose(draw)
                if any(is_held_out(triple) is not held_out for triple in clause.triples):
                    continue
                if clause.subject.pronoun is ME and template.en[:4] in ("{do}", "{be}", "{fra"):
                    continue  # nobody asks about themselves, or guesses
                pair = template.fill(clause)
                if pairs.setdefault(pair.source, pair) is pair:
                    break
            else:
                templates.remove(template)
    return tuple(pairs.values())[:count]


def train_pairs() -> list[Pair]:
    """Gives the training part.

    Returns:
      `TRAIN_PAIRS` pairs with distinct sources, always the same and in the same order.
    """
    return list(_generate(held_out=False))


def held_out_pairs() -> list[Pair]:
    """Gives the held-out part, none of whose triples occurs in the training part.

    Returns:
      `HELD_OUT_PAIRS` pairs with distinct sources, always the same and in the same order.
    """
    return list(_generate(held_out=True))


# --------------------------------------------------------------------------------------- baseline

_FUNCTION_WORDS = gloss(
    "the = el; a = un; an = un; some = unos; this = este; these = estos; my = mi; your = tu;"
    " our = nuestro; his = su; her = su; their = su; i = yo; you = tú; he = él; she = ella;"
    " we = nosotros; they = ellos; me = me; him = lo; us = nos; them = los; it = lo; all = todo;"
    " who = quién; where = dónde; when = cuándo; why = por qué; how = cómo; many = muchos;"
    " that = que; than = que; more = más; as = como; and = y; but = pero; because = porque;"
    " in = en; on = en; to = a; from = de; for = por; there = allí; now = ahora; not = no;"
    " please = por favor; am = ser; is = ser; are = ser; was = ser; were = ser; do = hacer;"
    " does = hacer; did = hacer; will = ir a; can = poder; don't = no; doesn't = no; didn't = no;"
    " won't = no; can't = no poder; isn't = no ser; aren't = no ser; wasn't = no ser;"
    " weren't = no ser; has = tener; think = pensar; everyone = todos; knows = saber; every = cada;"
    " day = día; morning = mañana; night = noche; week = semana; last = pasado; next = próximo;"
    " years = año; hurry = prisa"
)


@functools.cache
def _dictionary() -> Mapping[str, str]:
    """Maps the inflected English words, in lower case, to what a dictionary gives for them."""
    numbers = tuple(spell(number=number, gender="m") for number in range(1, 100))
    tables = (OFTEN, FEELINGS, MONTHS, numbers, *TIMES.values())
    entries = {words.en: words.es for table in tables for words in table}
    for words in (*(Words(noun.en, noun.es) for noun in NOUNS.values()), *WEEKDAYS):
        entries |= {words.en: words.es, add_s(words.en): words.es}
    for adjective in ADJECTIVES:
        entries |= {adjective.en: adjective.es, comparative(adjective.en): f"más {adjective.es}"}
    for verb in (*VERBS.values(), *MODALS):
        past, doing = (add_suffix(word=verb.en, suffix=suffix) for suffix in ("ed", "ing"))
        forms = (verb.en, add_s(verb.en), verb.past_en or past, doing)
        entries |= dict.fromkeys(forms, verb.es)
    entries |= {words.en: words.es for words in _FUNCTION_WORDS}
    return {en.lower(): es for en, es in entries.items()}


def translate_word_for_word(sentence: str) -> str:
    """Replaces each word by its dictionary entry, in the order of the sentence.

    Entries are citation forms: infinitives, masculine singulars. Unknown words stay.
    """
    words = re.findall(r"\w+(?:[-']\w+)*|[^\w\s]", sentence)
    words = [re.sub(r"^(\d+)(?:st|nd|rd|th)$", r"\1", word) for word in words]
    return tidy(" ".join(_dictionary().get(word.lower(), word) for word in words))
