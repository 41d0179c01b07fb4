"""Translators that use a dictionary from English to Spanish, or copy their source."""

from __future__ import annotations

import itertools
import re

from tt.model.engines.translator import Hypothesis, ScoredText, Translation, Work
from tt.model.text.vocabulary import UnknownParts
from tt.model.transformer.search_options import Decoding

BOS, EOS = 2, 3
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
_FIRST_WORD = 0x110000  # the id of the first word of the dictionary, after all code points
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
        words = [each for each in self._lexicon if each.isalpha()]
        self._words = {word: _FIRST_WORD + i for i, word in enumerate(words)}
        self.translated: list[str] = []  # the texts in the order of their translation

    def encode(self, texts):
        """Return ids of words and code points between BOS and EOS, without invisible characters."""
        return [[BOS, *self._find_ids(text), EOS] for text in texts]

    def _find_ids(self, text):
        visible = "".join(c for c in text if c.isprintable() or c.isspace())
        ids = []
        for token in _TOKEN.findall(" ".join(visible.split())):
            ids += [self._words[token]] if token in self._words else map(ord, token)
        return ids

    def _decode(self, ids):
        words = [*self._words]
        return "".join(chr(i) if i < _FIRST_WORD else words[i - _FIRST_WORD] for i in ids[1:-1])

    def translate_ids(self, source_ids):
        texts = [self._decode(ids) for ids in source_ids]
        self.translated += texts
        tokens = sum(map(len, source_ids))
        work = Work(
            sources=len(texts), source_tokens=tokens, padded_tokens=tokens, target_tokens=tokens
        )
        made = map(self.translate, texts)
        return [Translation((Hypothesis(text, -len(text.split())),)) for text in made], work

    def translate(self, text):
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

    def score_texts(self, source_ids, texts):
        """Give a low score to a word that the translation of the source lacks or moves."""
        found = []
        for ids, text in zip(source_ids, texts, strict=True):
            made = self._read_words(self.translate(self._decode(ids)))
            pairs = set(itertools.pairwise(made))
            words = self._read_words(text)
            scores = []
            for i, word in enumerate(words):
                near = {*itertools.pairwise(words[max(i - 1, 0) : i + 2])}
                is_known = not pairs.isdisjoint(near) or len(words) == 1
                scores.append((_KNOWN if is_known else _ALONE) if word in made else _MISSING)
            ends = [each.end() for each in _TOKEN.finditer(text) if not each[0].isspace()]
            found.append(ScoredText(ends, scores))
        return found

    def _read_words(self, text):
        return [each.lower() for each in _TOKEN.findall(text) if not each.isspace()]

    def count_unknown(self, text):
        return UnknownParts(0, len(text), 0, len(text))

    def is_input_error(self, error):
        return isinstance(error, ValueError)


class Copier(Dictionary):
    """A translator that returns its source, and knows which words a shorter source lacks.

    Like a model, it writes one space for several spaces.
    """

    def encode(self, texts):
        return [[BOS, *map(ord, text), EOS] for text in texts]

    def translate(self, text):
        return re.sub(" +", " ", text)

    def score_texts(self, source_ids, texts):
        """Give a low score to the words that the source lacks. These words must be adjacent."""
        found = []
        for ids, text in zip(source_ids, texts, strict=True):
            source = self._decode(ids)
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
