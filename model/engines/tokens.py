"""Conversion of texts to CTranslate2's tokens and back, for our exports and foreign models."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from tt.model.formats.foreign import (
    ForeignModel,
    load_settings,
    load_tokens,
    piece_names,
    special_tokens,
)
from tt.model.text.tokenization import Tokenization, load_pieces
from tt.model.text.vocabulary import (
    BOS_ID,
    EOS_ID,
    UNK_ID,
    UnknownParts,
    count_letters,
    load_vocabularies,
)

_FIRST_ID = EOS_ID + 1  # id of a foreign vocabulary's first token, after our special ids
_WORD_BOUNDARY = "\N{LOWER ONE EIGHTH BLOCK}"


class ExportTokens:
    """The tokens of a model that `tt export` wrote. CTranslate2 adds BOS and EOS to sources.

    Attributes:
      end: The token that ends a translation.
      target_prefix: Tokens at the start of each translation that are not part of its text.
      counted_prefix: Number of prefix tokens that CTranslate2 returns and scores: all, except the
        first one if the model has no start token.
      hidden: Tokens that a search must not choose.

    Raises:
      UserError: The vocabularies cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.vocabularies = load_vocabularies(folder)
        self._source = load_tokens(folder, "source")
        target = load_tokens(folder, "target")
        self._ids = {token: i for i, token in enumerate(target)}
        self._target = target
        # Results contain hidden tokens only if the vocabulary has too few other tokens.
        self.hidden = {*target[:EOS_ID], *target[self.vocabularies.target.piece_count :]}
        self.end = target[EOS_ID]
        self.target_prefix: list[str] = []
        self.counted_prefix = 0

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalize texts and encode them with BOS and EOS, like the training data."""
        return self.vocabularies.source.encode(texts)

    def count_unknown(self, text: str) -> UnknownParts:
        """Count the unknown parts of a text."""
        return self.vocabularies.source.count_unknown(text)

    def name(self, ids: Sequence[int]) -> list[str]:
        """Return CTranslate2's input tokens for the ids of a source."""
        tokens = self._source
        return [tokens[i] for i in ids[1:-1]]

    def decode(self, rows: list[list[str]]) -> list[str]:
        """Return the texts of translations, which may end with the token `end`."""
        ids = self._ids
        return self.vocabularies.target.decode([[ids[token] for token in row] for row in rows])

    def encode_targets(self, texts: list[str]) -> list[list[str]]:
        """Return CTranslate2's tokens of translations, without EOS."""
        vocabulary = self.vocabularies.target
        tokens = self._target
        return [[tokens[i] for i in ids[1:-1]] for ids in vocabulary.encode(texts)]

    def between(self, *, source: str, target: str) -> ExportTokens:
        """Return this object, because the model has only two languages."""
        return self


class ForeignTokens:
    """The tokens of a foreign model, with the same attributes as `ExportTokens`.

    The special ids are PAD 0, UNK 1, BOS 2 and EOS 3. The tokens of the model's vocabulary follow
    from id 4 on, in an order that differs from SentencePiece's. BOS and EOS represent the tokens
    that the model needs before and after a source.

    Raises:
      UserError: A file is missing, or belongs to another model.
    """

    def __init__(self, model: ForeignModel) -> None:
        model.check_pieces()
        self._tokenization = model.tokenization
        self._languages = model.languages
        self._texts = load_pieces(model.folder / model.tokenization.source_model)
        self._translations = load_pieces(model.folder / model.tokenization.target_model)
        settings = load_settings(model.weights_folder)
        unknown = settings["unk_token"]
        tokens = load_tokens(model.weights_folder, "source")
        self._names = [unknown] * _FIRST_ID + tokens
        self._ids = {t: i + _FIRST_ID for i, t in enumerate(tokens) if t != unknown}
        self.end: str = settings["eos_token"]
        self.hidden: set[str] = set()
        self._has_start = settings["decoder_start_token"] is not None
        # A search may choose these tokens, but texts do not contain them.
        pieces = self._translations
        controls = {name for i, name in enumerate(piece_names(pieces)) if pieces.is_control(i)}
        self._silent = special_tokens(model.weights_folder) | controls
        self._set_prefixes(self._tokenization)

    def _set_prefixes(self, tokenization: Tokenization) -> None:
        self._before = list(tokenization.source_prefix)
        self._after = list(tokenization.source_suffix)
        self.target_prefix = list(tokenization.target_prefix)
        self.counted_prefix = max(len(self.target_prefix) - (not self._has_start), 0)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Encode texts with BOS and EOS; SentencePiece normalizes them."""
        ids = self._ids
        rows: list[list[str]] = self._texts.encode(texts, out_type=str, num_threads=1)
        return [[BOS_ID, *(ids.get(piece, UNK_ID) for piece in row), EOS_ID] for row in rows]

    def count_unknown(self, text: str) -> UnknownParts:
        """Count the unknown parts of a text."""
        pieces: list[str] = self._texts.encode(text, out_type=str)
        unknown = [piece for piece in pieces if piece not in self._ids]
        return UnknownParts(
            unknown_characters=count_letters("".join(unknown).replace(_WORD_BOUNDARY, " ")),
            characters=count_letters("".join(pieces).replace(_WORD_BOUNDARY, " ")),
            unknown_tokens=len(unknown),
            tokens=len(pieces) - pieces.count(_WORD_BOUNDARY),
        )

    def name(self, ids: Sequence[int]) -> list[str]:
        """Return CTranslate2's input tokens for the ids of a source."""
        names = self._names
        return [*self._before, *(names[i] for i in ids[1:-1]), *self._after]

    def decode(self, rows: list[list[str]]) -> list[str]:
        """Return the texts of translations."""
        plain = [[token for token in row if token not in self._silent] for row in rows]
        texts: list[str] = self._translations.decode(plain) if plain else []
        # A piece that the target's SentencePiece model lacks keeps its word boundary mark.
        return [text.replace(_WORD_BOUNDARY, " ").strip() for text in texts]

    def encode_targets(self, texts: list[str]) -> list[list[str]]:
        """Return CTranslate2's tokens of translations, without EOS."""
        rows: list[list[str]] = self._translations.encode(texts, out_type=str, num_threads=1)
        return rows

    def between(self, *, source: str, target: str) -> ForeignTokens:
        """Return the tokens for two language codes.

        Raises:
          UserError: The model needs language tokens, and has none for these languages.
        """
        other = copy.copy(self)
        other._set_prefixes(
            self._tokenization.between(source=source, target=target, languages=self._languages)
        )
        return other
