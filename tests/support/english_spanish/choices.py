"""Random choices of words, phrases and events for sentences."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from english_spanish import grammar, lexicon
from english_spanish.grammar import Clause, Phrase
from english_spanish.lexicon import Adjective, Noun, Person, Pronoun, Tense, Verb, Words

T = TypeVar("T")


class Draw:
    """Random choices that are the same in every version of Python.

    Python guarantees this only for `random()`, and only with an integer seed.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def number(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included."""
        return low + int(self._random() * (high + 1 - low))

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[int(self._random() * len(options))]


def verbs_named(lemmas: str) -> tuple[Verb, ...]:
    """Return the verbs of English lemmas, which are separated by spaces."""
    return tuple(lexicon.VERBS[lemma] for lemma in lemmas.split())


_GIVING, _LUCK, _STAYING = (
    verbs_named("give send"),
    verbs_named("find lose"),
    verbs_named("work sleep run sing"),
)
_MEETING, TRADING = verbs_named("see look wait visit help call"), verbs_named("buy sell bring find")
MAKING = verbs_named("read write eat buy sell wash repair paint find lose")
ACTING = tuple(verb for verb in lexicon.VERBS.values() if verb.en not in ("give", "send", "like"))
WILLED = tuple(verb for verb in ACTING if verb not in verbs_named("find lose see"))
ONGOING = tuple(verb for verb in WILLED if verb not in verbs_named("go return"))
ORDERED = tuple(verb for verb in ONGOING if verb not in _STAYING)
_REASONS = tuple(a for a in lexicon.ADJECTIVES if a.en in ("tired", "sick", "busy", "sad"))
COUNTABLE = "food text vehicle clothes furniture device"
PRESENT: tuple[Tense, ...] = ("present",)
PAST: tuple[Tense, ...] = ("past",)
_KNOWN: tuple[Tense, ...] = ("present", "past")
EVENT: tuple[Tense, ...] = ("past", "future")


@functools.cache
def _modal(*, verb: Verb, person: Person) -> tuple[Words, Words]:
    """Return phrases such as "wants to" and "does not want to" for a modal verb."""
    to, es = verb.prepositions, grammar.conjugate(verb=verb, tense="present", person=person)
    en = grammar.english_verb(verb=verb, tense="present", person=person)
    dont = "doesn't" if person == "3s" else "don't"
    not_en = grammar.negate(en) if en == "can" else f"{dont} {verb.en}"
    return Words(f"{en} {to.en}", f"{es} {to.es}"), Words(f"{not_en} {to.en}", f"no {es} {to.es}")


@functools.cache
def _nouns(kinds: str, only: str = "") -> tuple[Noun, ...]:
    both = (kinds.split(), (only or kinds).split())
    return tuple(
        n for n in lexicon.NOUNS.values() if all(n.kind in each or n.en in each for each in both)
    )


@functools.cache
def _adjectives(kind: str, copulas: str = "ser estar") -> tuple[Adjective, ...]:
    return tuple(
        a for a in lexicon.ADJECTIVES if kind in a.kinds.split() and a.copula in copulas.split()
    )


def draw_phrase(
    draw: Draw, noun: Noun, *, owner: Pronoun, habit: bool = False, definite: bool = False
) -> Phrase:
    """Choose a determiner, number and adjective for a noun, according to its kind."""
    kind = noun.kind
    mass, human = kind in lexicon.MASS.split(), kind in lexicon.HUMAN.split()
    unplural = mass or kind in ("name", "building", "place") or noun.en in lexicon.SINGULAR_ONLY
    plural = not unplural and draw.chance(0.3)
    determiners: tuple[str | None, ...] = (lexicon.THE, lexicon.A, lexicon.THIS, owner.own)
    if kind == "name" or (habit and mass):
        determiners = (None,)
    elif kind == "kin":
        determiners = (owner.own, lexicon.MY)
    elif kind == "place":
        determiners = (lexicon.THE,)
    elif definite or kind in ("person", "building"):
        determiners = (lexicon.THE, lexicon.THE, lexicon.THIS)
    elif mass:
        determiners = (None, lexicon.THE, owner.own)
    elif habit and kind == "food":
        determiners = (None if plural else lexicon.A,)
    elif habit:
        determiners = (lexicon.THE, owner.own)
    determiner, number, adjective = draw.pick(determiners), None, None
    if plural and determiner is lexicon.A and draw.chance(0.6):
        determiner, number = None, draw.number(2, 12)
    if kind not in ("name", "kin") and draw.chance(0.35):
        fitting = _adjectives(kind, "ser" if human else "ser estar")
        if definite and not human:
            fitting = tuple(a for a in fitting if a.en in lexicon.COLORS)
        adjective = draw.pick(fitting) if fitting else None
    return grammar.noun_phrase(
        noun=noun, determiner=determiner, number=number, adjective=adjective, plural=plural
    )


def draw_person(draw: Draw, *, owner: Pronoun, unlike: str = "") -> Phrase:
    """Choose a person by name, kinship or kind, except the one called `unlike`."""
    nouns = [noun for noun in _nouns(draw.pick(lexicon.HUMAN.split())) if noun.en != unlike]
    return draw_phrase(draw, draw.pick(nouns), owner=owner)


def draw_thing(draw: Draw, *, kinds: str, unlike: str = "") -> Phrase:
    """Choose a definite thing, except the one called `unlike`."""
    nouns = [noun for noun in _nouns(kinds) if noun.en != unlike]
    return draw_phrase(draw, draw.pick(nouns), owner=lexicon.HE, definite=True)


def draw_subject(draw: Draw) -> Phrase:
    """Choose the subject of a clause; "your" always means one person ("tu")."""
    if draw.chance(0.55):
        return grammar.pronoun_phrase(draw.pick(lexicon.SUBJECT_PRONOUNS))
    return draw_person(draw, owner=draw.pick(lexicon.OBJECT_PRONOUNS))


def draw_pronoun(draw: Draw, *, subject: Phrase) -> Phrase:
    """Choose a pronoun for somebody other than the subject."""
    mine = "2" if subject.pronoun is lexicon.YOU_ALL else subject.pronoun.person[0]
    others = [p for p in lexicon.OBJECT_PRONOUNS if p.person[0] == "3" or p.person[0] != mine]
    return grammar.pronoun_phrase(draw.pick(others))


def draw_time(draw: Draw, *, tense: Tense) -> Words:
    """Choose a date, a day of the week or another time."""
    if tense != "present" and draw.chance(0.2):
        year = draw.number(2000, 2024) if tense == "past" else draw.number(2027, 2040)
        known = year if draw.chance(0.7) else None
        return grammar.date(day=draw.number(1, 28), month=draw.pick(lexicon.MONTHS), year=known)
    return draw.pick(lexicon.TIMES[tense])


def counted(draw: Draw, noun: Noun) -> Phrase:
    """Return a noun phrase with a large number."""
    return grammar.noun_phrase(noun=noun, number=draw.number(2, 99))


def how_many(_draw: Draw, noun: Noun) -> Phrase:
    """Return the phrase "how many" with a noun."""
    return grammar.noun_phrase(noun=noun, determiner=lexicon.HOW_MANY, plural=True)


def act(
    draw: Draw,
    *,
    tenses: Sequence[Tense] = ("present", "past", "future"),
    verbs: Sequence[Verb] = ACTING,
    only: str = "",
    phrase: Callable[[Draw, Noun], Phrase] | None = None,
    subject: Phrase | None = None,
    definite: bool = False,
) -> Clause:
    """Choose a subject, an action, its object and its time; the arguments restrict the choice."""
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
    modal, not_modal = _modal(verb=draw.pick(lexicon.MODALS), person=owner.person)
    return grammar.describe_action(subject=subject, verb=verb, thing=thing, tense=tense).plus(
        T=draw_time(draw, tense=tense),
        often=draw.pick(lexicon.OFTEN),
        frame=draw.pick(lexicon.FRAMES),
        modal=modal,
        notmodal=not_modal,
    )


def meet(draw: Draw) -> Clause:
    """Choose a clause in which somebody sees or helps a person given by a pronoun."""
    subject = draw_subject(draw)
    other = draw_pronoun(draw, subject=subject)
    return act(draw, verbs=_MEETING, only="name", subject=subject, phrase=lambda *_: other)


def give(draw: Draw, *, pronoun: bool, definite: bool = False) -> Clause:
    """Choose a clause in which somebody gives or sends something to somebody."""
    clause = act(draw, verbs=_GIVING, definite=definite)
    subject = clause.subject
    if pronoun:
        other = draw_pronoun(draw, subject=subject)
    else:
        other = draw_person(draw, owner=subject.pronoun, unlike=subject.lemma)
    him = Words(other.pronoun.object_en, grammar.clitic(other.pronoun, dative=True))
    return clause.plus(whom=Words(other.en, other.es), him=him)


def like(draw: Draw) -> Clause:
    """Choose a clause in which somebody likes something; in Spanish, the thing pleases them."""
    subject, verb, tense = draw_subject(draw), lexicon.VERBS["like"], draw.pick(_KNOWN)
    noun = draw.pick(_nouns(verb.daily))
    thing = draw_phrase(draw, noun, owner=lexicon.HE, definite=True)
    plural = noun.kind == "food"
    # In general statements, Spanish has an article and English has none: "milk", "la leche".
    if tense == "present" and (plural or noun.kind in lexicon.MASS.split()):
        thing = grammar.noun_phrase(noun=noun, determiner=lexicon.THE, plural=plural)
        thing = replace(thing, en=grammar.noun_phrase(noun=noun, plural=plural).en)
    clause = grammar.describe_action(subject=subject, verb=verb, thing=thing, tense=tense)
    finite = grammar.conjugate(verb=verb, tense=tense, person=thing.pronoun.person)
    return clause.plus(
        V=Words(clause.slots["V"].en, finite),
        whom=Words("", f"a {subject.es}" if subject.es else ""),
        him=Words("", grammar.clitic(subject.pronoun, dative=True)),
    )


def be(
    draw: Draw,
    *,
    subject: Phrase | None = None,
    tenses: Sequence[Tense] = _KNOWN,
    among: Sequence[Adjective] = (),
    compare: bool = False,
) -> Clause:
    """Choose a clause that describes somebody or something, or compares them."""
    if subject is None and draw.chance(0.5):
        subject = draw_thing(draw, kinds=f"{COUNTABLE} {lexicon.MASS} opening building")
    subject = subject or draw_subject(draw)
    pronoun = subject.pronoun
    kind = "person" if subject.human else lexicon.NOUNS[subject.lemma].kind
    said = {a.en for a in _adjectives(kind)} & set(subject.en.split())
    if compare or (said and not subject.human):
        said |= lexicon.COLORS
    fitting = among or _adjectives(kind, "ser" if compare else "ser estar")
    adjective = draw.pick([a for a in fitting if a.en not in said])
    plural = pronoun.person in ("1p", "3p")
    es = grammar.agree(adjective=adjective.es, gender=pronoun.gender, plural=plural)
    quality = Words(adjective.en, es)
    if compare:
        if subject.human:
            other = draw_person(draw, owner=pronoun, unlike=subject.lemma)
        else:
            other = draw_thing(draw, kinds=kind, unlike=subject.lemma)
        en = grammar.comparative(adjective.en)
        more = Words(f"{en} than {other.en}", f"más {es} que {other.es}")
        equal = Words(f"as {adjective.en} as {other.en}", f"tan {es} como {other.es}")
        quality = draw.pick((more, equal))
    return grammar.describe_state(
        subject=subject,
        copula=lexicon.SER if adjective.copula == "ser" else lexicon.ESTAR,
        quality=quality,
        lemma=adjective.en,
        tense=draw.pick(tenses),
    )


def have(draw: Draw, *, years: bool, subject: Phrase | None = None) -> Clause:
    """Choose a clause about age, hunger and the like; in Spanish, people "have" years or hunger."""
    subject, tenses = subject or draw_subject(draw), _KNOWN
    quality = draw.pick(lexicon.FEELINGS)
    if years:
        number = grammar.spell(number=draw.number(20, 99), gender="m")
        quality, tenses = Words(f"{number.en} years old", f"{number.es} años"), PRESENT
    return grammar.describe_state(
        subject=subject,
        copula=lexicon.TENER,
        quality=quality,
        lemma=quality.en,
        tense=draw.pick(tenses),
    )


def exist(draw: Draw) -> Clause:
    """Choose a clause that says that something is in a place."""
    noun, number = draw.pick(_nouns("text furniture device person")), draw.number(2, 40)
    room = draw.pick(_nouns("school hospital museum office library kitchen"))
    place = grammar.noun_phrase(noun=room, determiner=lexicon.THE)
    if draw.chance(0.6):
        thing = grammar.noun_phrase(noun=noun, number=number)
    else:
        thing = grammar.noun_phrase(noun=noun, determiner=lexicon.A)
    return grammar.describe_state(
        subject=Phrase("there", "", "there", thing.pronoun),
        copula=lexicon.HABER,
        quality=Words(f"{thing.en} in {place.en}", f"{thing.es} en {place.es}"),
        lemma=noun.en,
        tense=draw.pick(_KNOWN),
    )


def follow(draw: Draw, *, but: bool) -> Clause:
    """Choose two actions on a thing, by the same person or, with `but`, by different people."""
    first_verb, second_verb, kinds = draw.pick(lexicon.SEQUENCES)
    first = act(draw, tenses=PAST, verbs=verbs_named(first_verb), only=kinds)
    subject, verb = first.subject, lexicon.VERBS[second_verb]
    while but and subject.lemma == first.subject.lemma:
        subject = draw_subject(draw)
    second = grammar.describe_action(subject=subject, verb=verb, thing=first.thing, tense="past")
    return first.then(second)


def explain(draw: Draw) -> Clause:
    """Choose an action that somebody did not do, and the reason."""
    first = act(draw, tenses=PAST, verbs=WILLED, definite=True)
    return first.then(be(draw, subject=first.subject, tenses=PAST, among=_REASONS))


def relate(draw: Draw, *, to_object: bool) -> Clause:
    """Choose an action, and a description of its subject or object."""
    if to_object:
        only = f"{COUNTABLE} {lexicon.MASS}"
        first = act(draw, tenses=PAST, verbs=MAKING, only=only, definite=True)
        return first.then(be(draw, subject=first.thing, tenses=PAST))
    noun, plural = draw.pick(_nouns("person")), draw.chance(0.5)
    person = grammar.noun_phrase(noun=noun, determiner=lexicon.THE, plural=plural)
    return act(draw, tenses=PAST, subject=person).then(be(draw, subject=person))
