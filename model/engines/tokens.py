"""Conversion of texts to CTranslate2's tokens and back, for our exports and foreign models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tt.model.engines.translator import Input, Languages
from tt.model.formats.foreign import (
    ForeignModel,
    load_settings,
    load_tokens,
    piece_names,
    special_tokens,
)
from tt.model.text.tokenization import load_pieces
from tt.model.text.vocabulary import EOS_ID, UNK_ID, Vocabulary, load_vocabularies

_WORD_BOUNDARY = "\N{LOWER ONE EIGHTH BLOCK}"


@dataclasses.dataclass(slots=True)
class EncodedSource:
    """A source for CTranslate2; its length is the number of positions with BOS and EOS.

    Attributes:
      tokens: The tokens that CTranslate2 receives, with language tokens.
      size: Number of tokens with BOS and EOS, but without language tokens.
      target_prefix: Tokens at the start of each translation that are not part of its text.
    """

    tokens: list[str]
    size: int
    target_prefix: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.size


def prepare_texts(
    texts: list[str],
    *,
    vocabulary: Vocabulary,
    most_tokens: int | None,
    convert: Callable[[list[int]], Any] = lambda ids: ids,
) -> list[Input]:
    """Encode texts with our own vocabulary; see `Translator.prepare`.

    Args:
      texts: The texts.
      vocabulary: The vocabulary of sources.
      most_tokens: The greatest number of ids to translate.
      convert: Makes the engine's encoding from ids with BOS and EOS.
    """
    inputs = []
    for text, ids in zip(texts, vocabulary.encode(texts), strict=True):
        unknown = tuple(vocabulary.find_unknown(text)) if UNK_ID in ids else ()
        size, rarity = len(ids), max(ids)
        if most_tokens is not None and size > most_tokens:
            ids = [*ids[: most_tokens - 1], EOS_ID]
        inputs.append(Input(text, size - 2, unknown, rarity, convert(ids)))
    return inputs


class ExportTokens:
    """The tokens of a model that `tt export` wrote. CTranslate2 adds BOS and EOS to sources.

    Attributes:
      end: The token that ends a translation.
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
        self.counted_prefix = 0

    def prepare(
        self, texts: list[str], *, languages: Languages, most_tokens: int | None
    ) -> list[Input]:
        """Normalize and encode texts like the training data; the model has only two languages."""
        return prepare_texts(
            texts,
            vocabulary=self.vocabularies.source,
            most_tokens=most_tokens,
            convert=self.convert,
        )

    def convert(self, ids: list[int]) -> EncodedSource:
        """Return a source for CTranslate2, given its ids with BOS and EOS."""
        tokens = self._source
        return EncodedSource([tokens[i] for i in ids[1:-1]], len(ids))

    def decode(self, rows: list[list[str]]) -> list[str]:
        """Return the texts of translations, which may end with the token `end`."""
        ids = self._ids
        return self.vocabularies.target.decode([[ids[token] for token in row] for row in rows])

    def encode_targets(self, texts: list[str]) -> list[list[str]]:
        """Return CTranslate2's tokens of translations, without EOS."""
        vocabulary = self.vocabularies.target
        tokens = self._target
        return [[tokens[i] for i in ids[1:-1]] for ids in vocabulary.encode(texts)]


class ForeignTokens:
    """The tokens of a foreign model, with the same attributes as `ExportTokens`.

    BOS and EOS represent the tokens that the model needs before and after a source.

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
        self._unknown: str = settings["unk_token"]
        tokens = load_tokens(model.weights_folder, "source")
        self._ranks = {token: i for i, token in enumerate(tokens) if token != self._unknown}
        self.end: str = settings["eos_token"]
        self.hidden: set[str] = set()
        has_start = settings["decoder_start_token"] is not None
        self.counted_prefix = max(len(self._tokenization.target_prefix) - (not has_start), 0)
        # A search may choose these tokens, but texts do not contain them.
        pieces = self._translations
        controls = {name for i, name in enumerate(piece_names(pieces)) if pieces.is_control(i)}
        self._silent = special_tokens(model.weights_folder) | controls

    def prepare(
        self, texts: list[str], *, languages: Languages, most_tokens: int | None
    ) -> list[Input]:
        """Encode texts, which SentencePiece normalizes.

        Raises:
          UserError: The model needs language tokens, and has none for these languages.
        """
        source, target = languages
        chosen = self._tokenization.between(source=source, target=target, languages=self._languages)
        ranks = self._ranks
        rows: list[list[str]] = self._texts.encode(texts, out_type=str, num_threads=1)
        most = None if most_tokens is None else most_tokens - 2  # without BOS and EOS
        inputs = []
        for text, pieces in zip(texts, rows, strict=True):
            tokens = [piece if piece in ranks else self._unknown for piece in pieces[:most]]
            unknown = (piece for piece in pieces if piece not in ranks)
            encoded = EncodedSource(
                [*chosen.source_prefix, *tokens, *chosen.source_suffix],
                len(tokens) + 2,
                chosen.target_prefix,
            )
            inputs.append(
                Input(
                    text,
                    len(pieces),
                    tuple(piece.replace(_WORD_BOUNDARY, " ").strip() for piece in unknown),
                    max((ranks.get(piece, 0) for piece in pieces), default=0),
                    encoded,
                )
            )
        return inputs

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
