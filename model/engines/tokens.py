"""Texts to the tokens that CTranslate2 takes, and back: of our exports and of foreign models."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import sentencepiece

from model.formats.ctranslate2_files import load_settings, load_tokens
from model.formats.foreign import ForeignModel, special_tokens
from model.formats.model_folder import check_vocabulary_sizes
from model.text.tokenization import Tokenization, load_pieces
from model.text.vocabulary import (
    BOS_ID,
    EOS_ID,
    UNK_ID,
    UnknownParts,
    count_letters,
    load_vocabularies,
)

_FIRST_ID = EOS_ID + 1  # of the tokens of a foreign vocabulary; the special ids are ours
_WORD_BOUNDARY = "\N{LOWER ONE EIGHTH BLOCK}"


class Tokens(Protocol):
    """What an engine knows of a model's vocabularies."""

    @property
    def end(self) -> str:
        """The token that ends a translation."""

    @property
    def target_prefix(self) -> list[str]:
        """Tokens that every translation begins with, and that are no part of it."""

    @property
    def counted_prefix(self) -> int:
        """How many tokens of the prefix CTranslate2 gives back and scores, the last ones.

        Not the first one of a model without a start token: that stands in its place.
        """

    @property
    def added(self) -> int:
        """How many tokens the model gets beside the ids of a source, at the most."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Turns texts into ids, BOS and EOS included."""

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown."""

    def name(self, ids: Sequence[int]) -> list[str]:
        """Returns what CTranslate2 gets for the ids of a source."""

    def decode(self, rows: list[list[str]]) -> list[str]:
        """Returns the texts of translations, whose tokens may end with `end`."""

    def may_be_chosen(self, tokens: Sequence[str]) -> bool:
        """Says whether all tokens are such that a search may choose."""

    def between(self, *, source: str, target: str) -> Tokens:
        """Returns those for two languages, where the model is told them.

        Raises:
          UserError: The model has no such language.
        """


class ExportTokens:
    """The tokens of a model that `tt export` wrote: CTranslate2 adds BOS and EOS to a source.

    Raises:
      UserError: The vocabularies cannot be read, or are not the model's.
    """

    def __init__(self, folder: Path) -> None:
        self.vocabularies = load_vocabularies(folder)
        self._source = load_tokens(folder, "source")
        target = load_tokens(folder, "target")
        sizes = (len(self._source), len(target))
        check_vocabulary_sizes(folder, self.vocabularies, sizes=sizes)
        self._ids = {token: i for i, token in enumerate(target)}
        # Tokens that are never chosen stand only where the vocabulary has fewer others.
        self._hidden = {*target[:EOS_ID], *target[self.vocabularies.target.piece_count :]}
        self.end = target[EOS_ID]
        self.target_prefix: list[str] = []
        self.counted_prefix = 0
        self.added = 0

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalises texts and encodes them as the training data was, BOS and EOS added."""
        return self.vocabularies.source.encode(texts)

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown."""
        return self.vocabularies.source.count_unknown(text)

    def name(self, ids: Sequence[int]) -> list[str]:
        """Returns what CTranslate2 gets for the ids of a source."""
        tokens = self._source
        return [tokens[i] for i in ids[1:-1]]

    def decode(self, rows: list[list[str]]) -> list[str]:
        """Returns the texts of translations."""
        ids = self._ids
        return self.vocabularies.target.decode([[ids[token] for token in row] for row in rows])

    def may_be_chosen(self, tokens: Sequence[str]) -> bool:
        """Says whether all tokens are such that a search may choose."""
        return self._hidden.isdisjoint(tokens)

    def between(self, *, source: str, target: str) -> ExportTokens:
        """Returns these: the model has two languages, and is told none."""
        return self


class ForeignTokens:
    """The tokens of a foreign model, by its SentencePiece models.

    Ids are ours: PAD 0, UNK 1, BOS 2, EOS 3, and from 4 on those of the model's vocabulary, where
    its tokens stand in another order than in SentencePiece's. BOS and EOS stand for whatever the
    model wants before and behind a source.

    Raises:
      UserError: A file is missing, or is not the model's.
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
        processor = self._texts
        count = processor.get_piece_size()
        self._of_piece = [self._ids.get(processor.id_to_piece(i), UNK_ID) for i in range(count)]
        self._unknown_piece = processor.unk_id()
        self.end: str = settings["eos_token"]
        self._has_start = settings["decoder_start_token"] is not None
        # What a search may choose, and no reader is to see.
        self._silent = {*special_tokens(model.weights_folder), *_controls_of(self._translations)}
        self._set_prefixes(self._tokenization)

    def _set_prefixes(self, tokenization: Tokenization) -> None:
        self._before = list(tokenization.source_prefix)
        self._behind = list(tokenization.source_suffix)
        self.target_prefix = list(tokenization.target_prefix)
        most = len(self._before) + len(self._behind)
        self.counted_prefix = max(len(self.target_prefix) - (not self._has_start), 0)
        self.added = max(most, len(self.target_prefix))

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Turns texts into ids, by SentencePiece's own normalisation."""
        of_piece, unknown = self._of_piece, self._unknown_piece
        rows: list[list[int]] = self._texts.encode(texts, num_threads=1)
        found = (
            self._encode_pieces(text) if unknown in row else [of_piece[i] for i in row]
            for text, row in zip(texts, rows, strict=True)
        )
        return [[BOS_ID, *ids, EOS_ID] for ids in found]

    def _encode_pieces(self, text: str) -> list[int]:
        """Returns the ids of a text of which SentencePiece does not know all characters.

        The model's vocabulary may have some of them.
        """
        return [self._ids.get(piece, UNK_ID) for piece in self._texts.encode(text, out_type=str)]

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown."""
        pieces: list[str] = self._texts.encode(text, out_type=str)
        unknown = [piece for piece in pieces if piece not in self._ids]
        return UnknownParts(
            unknown_characters=count_letters("".join(unknown).replace(_WORD_BOUNDARY, " ")),
            characters=count_letters("".join(pieces).replace(_WORD_BOUNDARY, " ")),
            unknown_tokens=len(unknown),
            tokens=len(pieces) - pieces.count(_WORD_BOUNDARY),
        )

    def name(self, ids: Sequence[int]) -> list[str]:
        """Returns what CTranslate2 gets for the ids of a source."""
        names = self._names
        return [*self._before, *(names[i] for i in ids[1:-1]), *self._behind]

    def decode(self, rows: list[list[str]]) -> list[str]:
        """Returns the texts of translations."""
        plain = [[token for token in row if token not in self._silent] for row in rows]
        texts: list[str] = self._translations.decode(plain) if plain else []
        # Of a piece that the target's SentencePiece model lacks, the mark of a space is left.
        return [text.replace(_WORD_BOUNDARY, " ").strip() for text in texts]

    def may_be_chosen(self, tokens: Sequence[str]) -> bool:
        """Says that all may be: CTranslate2 has no token of its own here."""
        return True

    def between(self, *, source: str, target: str) -> ForeignTokens:
        """Returns those for two languages, where the model is told them.

        Raises:
          UserError: The model has no such language.
        """
        tokenization = self._tokenization.between(
            source=source, target=target, languages=self._languages
        )
        other = copy.copy(self)
        other._set_prefixes(tokenization)
        return other


def _controls_of(processor: sentencepiece.SentencePieceProcessor) -> set[str]:
    """Returns the pieces that are no part of a text."""
    count = processor.get_piece_size()
    return {processor.id_to_piece(i) for i in range(count) if processor.is_control(i)}
