"""Translators that use a dictionary from English to Spanish, or copy their source."""

from __future__ import annotations

import itertools
import re

from tt.model.engines.translator import Hypothesis, Input, ScoredText, Translation, Work
from tt.model.transformer.search_options import Decoding

LEXICON = {
    "a": "un", "about": "sobre", "and": "y", "are": "son", "ball": "balón", "big": "grande",
    "art": "arte", "bold": "negrita", "book": "libro", "box": "caja", "brown": "marrón",
    "buy": "compre",
    "car": "coche", "cat": "gato", "click": "pulse", "costs": "cuesta", "cup": "taza", "day": "día",
    "dog": "perro", "dogs": "perros", "euros": "euros", "first": "primero", "for": "para",
    "go": "vaya", "good": "bueno", "green": "verde", "have": "tengo", "he": "él", "here": "aquí",
    "home": "casa", "house": "casa", "i": "yo", "in": "en", "is": "es", "it": "esto",
    "last": "último", "link": "enlace", "man": "hombre", "more": "más", "name": "nombre",
    "new": "nuevo", "not": "no", "now": "ahora", "number": "número", "of": "de", "old": "viejo",
    "on": "en", "open": "abra", "or": "o", "order": "pedido", "page": "página", "paid": "pagó",
    "price": "precio", "reads": "lee", "red": "rojo", "runs": "corre", "see": "vea", "she": "ella",
    "small": "pequeño", "smiles": "sonríe", "tea": "té", "teacher": "profesor", "text": "texto",
    "the": "el", "they": "ellos", "this": "este", "title": "título", "to": "a", "two": "dos",
    "very": "muy", "water": "agua", "wears": "lleva", "with": "con", "woman": "mujer",
    "word": "palabra", "works": "funciona", "world": "mundo", "you": "usted", "your": "su",
}  # fmt: skip
_ADJECTIVES = frozenset(["big", "brown", "good", "green", "new", "old", "red", "small"])
_NOUNS = frozenset(
    ["ball", "book", "box", "car", "cat", "dog", "dogs", "house", "man", "number", "order", "page"]
)
_TOKEN = re.compile(r"⟦\d+⟧|[^\W\d_]+(?:[-'’][^\W\d_]+)*|\d+|\s+|.", re.DOTALL)
_KNOWN, _ALONE, _MISSING = -0.1, -2.0, -6.0  # log-probabilities of a word of the translation


class Dictionary:
    """A translator with a dictionary; an adjective follows its noun, as it often does in Spanish.

    Words that the dictionary does not contain stay as they are, and so do words in capitals. Like a
    model, it begins a translation with a capital and ends it with a full stop. The score is minus
    the number of words.

    Args:
      lexicon: Words that are added to the dictionary or replace its words. A key may also be a
        figure, or one other character, such as ":".
    """

    decoding = Decoding()

    def __init__(self, lexicon=None):
        self._lexicon = LEXICON | (lexicon or {})
        self._words = {each: i for i, each in enumerate(self._lexicon) if each.isalpha()}
        self.translated: list[str] = []  # the texts in the order of their translation

    def prepare(self, texts, *, languages=("", ""), most_tokens=None):
        """Return texts without invisible characters; words of the dictionary are tokens."""
        inputs = []
        for text in texts:
            cleaned = self.clean(text)
            tokens = _TOKEN.findall(cleaned)
            sizes = [1 if token in self._words else len(token) for token in tokens]
            ranks = [
                0x110000 + self._words[token] if token in self._words else max(map(ord, token))
                for token in tokens
            ]
            inputs.append(Input(text, sum(sizes), (), max(ranks, default=0), cleaned))
        return inputs

    def clean(self, text):
        """Return the normalized text."""
        return " ".join("".join(c for c in text if c.isprintable() or c.isspace()).split())

    def translate(self, inputs):
        texts = [each.encoded for each in inputs]
        self.translated += texts
        tokens = sum(each.length + 2 for each in inputs)
        work = Work(
            sources=len(texts), source_tokens=tokens, padded_tokens=tokens, target_tokens=tokens
        )
        made = map(self.translate_text, texts)
        return [Translation((Hypothesis(text, -len(text.split())),)) for text in made], work

    def translate_text(self, text):
        """Return the translation of a text."""
        tokens = _TOKEN.findall(text)
        for i in range(len(tokens) - 2):
            first, space, second = tokens[i : i + 3]
            if first.lower() in _ADJECTIVES and space == " " and second.lower() in _NOUNS:
                tokens[i : i + 3] = [second, space, first if first.isupper() else first.lower()]
        made = "".join(map(self._translate_word, tokens))
        made = made[:1].upper() + made[1:]
        return f"{made}." if made[-1:].isalnum() else made

    def _translate_word(self, token):
        is_capital = token[:1].isupper() and (len(token) == 1 or not token.isupper())
        found = self._lexicon.get(token.lower() if is_capital else token)
        if found is None:
            return token
        return found[0].upper() + found[1:] if is_capital else found

    def score(self, pairs):
        """Give a low score to a word that the translation of the source lacks or moves."""
        found = []
        for source, text in pairs:
            made = self._read_words(self.translate_text(source.encoded))
            made_pairs = set(itertools.pairwise(made))
            words = self._read_words(text)
            scores = []
            for i, word in enumerate(words):
                near = {*itertools.pairwise(words[max(i - 1, 0) : i + 2])}
                is_known = not made_pairs.isdisjoint(near) or len(words) == 1
                scores.append((_KNOWN if is_known else _ALONE) if word in made else _MISSING)
            ends = [each.end() for each in _TOKEN.finditer(text) if not each[0].isspace()]
            found.append(ScoredText(ends, scores))
        return found

    def _read_words(self, text):
        return [each.lower() for each in _TOKEN.findall(text) if not each.isspace()]

    def is_input_error(self, error):
        return isinstance(error, ValueError)


class Copier(Dictionary):
    """A translator that returns its source, and knows which words a shorter source lacks.

    Like a model, it writes one space for several spaces.
    """

    def clean(self, text):
        return text

    def translate_text(self, text):
        return re.sub(" +", " ", text)

    def score(self, pairs):
        """Give a low score to the words that the source lacks. These words must be adjacent."""
        found = []
        for each, text in pairs:
            source = each.encoded
            first = _count_same(source, text)
            same = _count_same(source[first:][::-1], text[first:][::-1])
            last = len(text) - same
            words = [each for each in _TOKEN.finditer(text) if not each[0].isspace()]
            scores = [
                _MISSING if each.start() < last and each.end() > first else _KNOWN for each in words
            ]
            found.append(ScoredText([each.end() for each in words], scores))
        return found


def _count_same(a, b):
    """Return how many characters at the start of two texts are the same."""
    return sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    )
