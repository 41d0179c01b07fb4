"""A baseline for the embedded corpus: word-for-word translation."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from english_spanish import lexicon
from english_spanish.grammar import add_s, add_suffix, comparative, spell, tidy

_FUNCTION_WORDS = lexicon.gloss(
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
    """Map inflected English words in lower case to their dictionary entries."""
    numbers = tuple(spell(number=number, gender="m") for number in range(1, 100))
    tables = (lexicon.OFTEN, lexicon.FEELINGS, lexicon.MONTHS, numbers, *lexicon.TIMES.values())
    entries = {words.en: words.es for table in tables for words in table}
    for words in (
        *(lexicon.Words(noun.en, noun.es) for noun in lexicon.NOUNS.values()),
        *lexicon.WEEKDAYS,
    ):
        entries |= {words.en: words.es, add_s(words.en): words.es}
    for adjective in lexicon.ADJECTIVES:
        entries |= {adjective.en: adjective.es, comparative(adjective.en): f"más {adjective.es}"}
    for verb in (*lexicon.VERBS.values(), *lexicon.MODALS):
        past, doing = (add_suffix(word=verb.en, suffix=suffix) for suffix in ("ed", "ing"))
        forms = (verb.en, add_s(verb.en), verb.past_en or past, doing)
        entries |= dict.fromkeys(forms, verb.es)
    entries |= {words.en: words.es for words in _FUNCTION_WORDS}
    return {en.lower(): es for en, es in entries.items()}


def translate_word_for_word(sentence: str) -> str:
    """Replace each word by its dictionary entry; unknown words stay unchanged."""
    words = re.findall(r"\w+(?:[-']\w+)*|[^\w\s]", sentence)
    words = [re.sub(r"^(\d+)(?:st|nd|rd|th)$", r"\1", word) for word in words]
    return tidy(" ".join(_dictionary().get(word.lower(), word) for word in words))
