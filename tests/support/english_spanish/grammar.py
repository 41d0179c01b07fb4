"""The grammar of the embedded corpus: inflection, phrases and clauses in both languages."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from english_spanish import lexicon
from english_spanish.lexicon import Adjective, Noun, Person, Pronoun, Tense, Verb, Words

Triple = tuple[str, str, str]


def add_suffix(*, word: str, suffix: str) -> str:
    """Add English -ed, -er or -ing: `closing`, `bigger`."""
    if word.endswith("e") and not word.endswith("ee"):
        return word.removesuffix("e") + suffix
    if re.fullmatch("[^aeiou]*[aeiou][^aeiouwxy]", word):
        return word + word[-1] + suffix
    return word + suffix


def add_s(word: str) -> str:
    """Add English -s for a plural or a third person: `cities`, `washes`, `women`."""
    if word in lexicon.IRREGULAR_PLURALS:
        return lexicon.IRREGULAR_PLURALS[word]
    if re.search("[^aeiou]y$", word):
        return word.removesuffix("y") + "ies"
    return word + ("es" if re.search("(s|x|ch|sh|[^o]o)$", word) else "s")


def english_verb(*, verb: Verb, tense: Tense, person: Person) -> str:
    """Return the finite form: `buys`, `bought`, `will buy`, `were`, `can`."""
    if tense == "future":
        return f"will {verb.en}"
    if verb.en == "be":
        forms = "am are is are are" if tense == "present" else "was were was were were"
        return forms.split()[lexicon.PERSONS.index(person)]
    if tense == "past":
        return verb.past_en or add_suffix(word=verb.en, suffix="ed")
    if person != "3s" or verb.en == "can":
        return verb.en
    return "has" if verb.en == "have" else add_s(verb.en)


def negate(auxiliary: str) -> str:
    """Add English n't: `isn't`, `doesn't`; but `am not`, `won't`, `can't`."""
    return {"am": "am not", "will": "won't", "can": "can't"}.get(auxiliary, f"{auxiliary}n't")


def comparative(adjective: str) -> str:
    """Return the comparative of an English adjective: `bigger`, `more expensive`."""
    if len(re.findall("[aeiou]+", adjective)) == 1:
        return add_suffix(word=adjective, suffix="er")
    return f"more {adjective}"


def conjugate(*, verb: Verb, tense: Tense, person: Person) -> str:
    """Return the finite Spanish form: `compro`, `compré`, `compraré`."""
    index = lexicon.PERSONS.index(person)
    if tense == "future":
        return verb.es + ("é", "ás", "á", "emos", "án")[index]
    if irregular := verb.present if tense == "present" else verb.past:
        return irregular.split()[index]
    endings = {
        "ar": ("o as a amos an", "é aste ó amos aron"),
        "er": ("o es e emos en", "í iste ió imos ieron"),
        "ir": ("o es e imos en", "í iste ió imos ieron"),
    }[verb.es[-2:]][tense == "past"]
    return verb.es[:-2] + endings.split()[index]


def gerund(verb: Verb) -> str:
    """Return the Spanish gerund: `comprando`, `leyendo`."""
    return verb.gerund or verb.es[:-2] + ("ando" if verb.es.endswith("ar") else "iendo")


def clitic(pronoun: Pronoun, *, dative: bool = False) -> str:
    """Return the Spanish object pronoun next to a verb: `me`, `las`, `les`."""
    third = "le" if dative else "la" if pronoun.gender == "f" else "lo"
    plural = "s" if pronoun.person == "3p" else ""
    return {"1s": "me", "2s": "te", "1p": "nos"}.get(pronoun.person, third + plural)


def spanish_plural(word: str) -> str:
    """Return the plural of a Spanish noun or adjective: `camiones`, `felices`."""
    if word in lexicon.IRREGULAR_PLURALS:
        return lexicon.IRREGULAR_PLURALS[word]
    if word[-1] in "aeiouáé":
        return word + "s"
    if word.endswith("z"):
        return word.removesuffix("z") + "ces"
    # With one more syllable, a stress on the last syllable becomes regular and needs no accent.
    return word[:-2] + word[-2].translate(str.maketrans("áéíóú", "aeiou")) + word[-1] + "es"


def agree(*, adjective: str, gender: lexicon.Gender, plural: bool) -> str:
    """Inflect a Spanish adjective: `rojas`, `felices`, `trabajadora`."""
    if gender == "f":
        adjective = re.sub("o$", "a", re.sub("or$", "ora", adjective))
    return spanish_plural(adjective) if plural else adjective


def spell(*, number: int, gender: lexicon.Gender) -> Words:
    """Spell 1 to 99 before a noun: `thirty-one`, and `treinta y un` or `treinta y una`."""
    if number < 20:
        en, es = lexicon.ONES[number].en, lexicon.ONES[number].es
    else:
        tens, ones = lexicon.TENS[number // 10 - 2], lexicon.ONES[number % 10]
        en = f"{tens.en}-{ones.en}" if number % 10 else tens.en
        es = f"{tens.es} y {ones.es}" if number % 10 else tens.es
        es = lexicon.TWENTIES[number - 20] if number < 30 else es
    if es.endswith("uno"):
        es = es[:-1] + "a" if gender == "f" else "veintiún" if number == 21 else es[:-1]
    return Words(en, es)


def date(*, day: int, month: Words, year: int | None = None) -> Words:
    """Return a date: `on March 3rd, 2024` and `el 3 de marzo de 2024`."""
    suffix = "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    en, es = f"on {month.en} {day}{suffix}", f"el {day} de {month.es}"
    return Words(en, es) if year is None else Words(f"{en}, {year}", f"{es} de {year}")


@dataclass(frozen=True)
class Phrase:
    """A noun phrase or pronoun in both languages, with the pronoun that refers to it."""

    en: str
    es: str
    lemma: str
    pronoun: Pronoun
    human: bool = False


@dataclass(frozen=True)
class Clause:
    """The content of a clause, as words for the slots of a template."""

    slots: Mapping[str, Words]
    triples: tuple[Triple, ...]
    subject: Phrase
    thing: Phrase

    def plus(self, **slots: Words) -> Clause:
        """Add or replace slots."""
        return Clause({**self.slots, **slots}, self.triples, self.subject, self.thing)

    def then(self, other: Clause) -> Clause:
        """Add another clause; the names of its slots get a 2."""
        slots = {**self.slots, **{f"{name}2": words for name, words in other.slots.items()}}
        return Clause(slots, self.triples + other.triples, self.subject, self.thing)


def tidy(text: str) -> str:
    """Contract `a el` and `de el`, fix spaces around punctuation, and set the first capital."""
    text = re.sub(r"\b(a|de) e(?=l\b)", r"\1", " ".join(text.split()))
    text = text.replace(" ,", ",").replace(" .", ".").replace(" ?", "?").replace("¿ ", "¿")
    first = text.startswith("¿")
    return text[:first] + text[first].upper() + text[first + 1 :]


@functools.cache
def noun_phrase(
    *,
    noun: Noun,
    determiner: str | None = None,
    number: int | None = None,
    adjective: Adjective | None = None,
    plural: bool = False,
) -> Phrase:
    """Build a noun phrase: `some red apples` and `unas manzanas rojas`."""
    plural = plural or number is not None
    feminine, human = noun.gender == "f", noun.kind in lexicon.HUMAN.split()
    en = [add_s(noun.en) if plural else noun.en]
    es = [spanish_plural(noun.es) if plural else noun.es]
    if adjective:
        en.insert(0, adjective.en)
        es.append(agree(adjective=adjective.es, gender=noun.gender, plural=plural))
    if number is not None:
        words = spell(number=number, gender=noun.gender)
        en.insert(0, words.en)
        es.insert(0, words.es)
    if determiner:
        forms = determiner.split()
        article, form = forms[plural], forms[2 + 2 * plural + feminine]
        en.insert(0, "an" if article == "a" and en[0][0] in "aeiou" else article.replace("_", " "))
        es.insert(0, "el" if form == "la" and noun.es == "agua" else form)
    pronouns = (lexicon.HE, lexicon.SHE) if human else (lexicon.IT, lexicon.IT_F)
    if plural:
        pronouns = (lexicon.THEY, lexicon.THEY_F)
    return Phrase(" ".join(en), " ".join(es), noun.en, pronouns[feminine], human)


def pronoun_phrase(pronoun: Pronoun) -> Phrase:
    """Use a pronoun as a subject or, with its clitic, as an object."""
    return Phrase(pronoun.en, pronoun.es, pronoun.en, pronoun, human=True)


WHO = Phrase("who", "quién", "who", replace(lexicon.HE, own=lexicon.MY))


@functools.cache
def _verb_slots(*, verb: Verb, tense: Tense, person: Person) -> Mapping[str, Words]:
    do = {"present": "does" if person == "3s" else "do", "past": "did", "future": "will"}[tense]
    am = english_verb(verb=lexicon.SER, tense="present", person=person)
    estoy = conjugate(verb=lexicon.ESTAR, tense="present", person=person)
    finite = conjugate(verb=verb, tense=tense, person=person)
    return {
        "V": Words(english_verb(verb=verb, tense=tense, person=person), finite),
        "notV": Words(f"{negate(do)} {verb.en}", f"no {finite}"),
        "do": Words(do),
        "dont": Words(negate(do)),
        "base": Words(verb.en, verb.es),
        "order": Words(verb.en, conjugate(verb=verb, tense="present", person="3s")),
        "doing": Words(f"{am} {add_suffix(word=verb.en, suffix='ing')}", f"{estoy} {gerund(verb)}"),
    }


def describe_action(*, subject: Phrase, verb: Verb, thing: Phrase, tense: Tense) -> Clause:
    """Return a clause in which somebody does something, or goes or stays somewhere."""
    before = verb.prepositions
    to = "a" if thing.human and not before.es else before.es  # the personal "a"
    slots = {
        **_verb_slots(verb=verb, tense=tense, person=subject.pronoun.person),
        "S": Words(subject.en, subject.es),
        "O": Words(f"{before.en} {thing.en}", f"{to} {thing.es}"),
        "it": Words(f"{before.en} {thing.pronoun.object_en}", clitic(thing.pronoun)),
    }
    return Clause(slots, ((subject.lemma, verb.en, thing.lemma),), subject, thing)


def describe_state(
    *, subject: Phrase, copula: Verb, quality: Words, lemma: str, tense: Tense = "present"
) -> Clause:
    """Return a clause that describes somebody; `quality` is the part after "to be" in English."""
    person = subject.pronoun.person
    be = english_verb(verb=lexicon.SER, tense=tense, person=person)
    finite = conjugate(verb=copula, tense=tense, person=person)
    slots = {
        "S": Words(subject.en, subject.es),
        "he": Words(subject.pronoun.en),
        "be": Words(be, finite),
        "notbe": Words(negate(be), f"no {finite}"),
        "Q": quality,
    }
    return Clause(slots, ((subject.lemma, "be", lemma),), subject, subject)
