"""Tokenization for models of other programs, as their files define it.

Multilingual models need language tokens, such as "deu_Latn", "__de__" or ">>deu<<".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import sentencepiece

from tt.model.errors import UserError
from tt.model.text.languages import find_language, named_script

# Names that represent a language token in a prefix or suffix.
SOURCE_LANGUAGE, TARGET_LANGUAGE = "{source_language}", "{target_language}"
# The name of BOS in models that `tt export --format huggingface` writes. MarianTokenizer keeps such
# a token at the start of a text, but it never adds BOS itself.
START_TOKEN = ">>bos<<"

# The language tokens of OPUS-MT, of M2M and fairseq, of NLLB, and of mBART-50.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r">>([\w-]+)<<", r"__([a-z]{2,3})__", r"([a-z]{3}_[A-Z][a-z]{3})", r"([a-z]{2}_[A-Z]{2})",
    )
)  # fmt: skip
_SHOWN = 12  # languages that a message lists


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenization:
    """The SentencePiece models and additional tokens that convert texts to tokens and back.

    In prefixes and suffixes, "{source_language}" and "{target_language}" represent the language
    tokens.

    Attributes:
      source_model: File name of the SentencePiece model for sources, in the model's folder.
      target_model: File name of the SentencePiece model for translations; may be the same.
      source_prefix: Tokens before each source.
      source_suffix: Tokens after each source.
      target_prefix: Tokens at the start of each translation that are not part of its text.
    """

    source_model: str
    target_model: str
    source_prefix: tuple[str, ...] = ()
    source_suffix: tuple[str, ...] = ()
    target_prefix: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Tokenization:
        """Create a tokenization from the JSON values of `dataclasses.asdict`.

        Raises:
          TypeError: A value is missing or unknown.
        """
        read: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**read)

    @property
    def models(self) -> list[str]:
        """The file names of the SentencePiece models, without duplicates."""
        return list(dict.fromkeys([self.source_model, self.target_model]))

    @property
    def added(self) -> tuple[str, ...]:
        """All tokens in prefixes and suffixes."""
        return self.source_prefix + self.source_suffix + self.target_prefix

    @property
    def has_source_language(self) -> bool:
        """Whether the model needs a token for the source language."""
        return SOURCE_LANGUAGE in self.added

    @property
    def has_target_language(self) -> bool:
        """Whether the model needs a token for the target language."""
        return TARGET_LANGUAGE in self.added

    def between(self, *, source: str, target: str, languages: Mapping[str, str]) -> Tokenization:
        """Return the tokenization with the language tokens for a source and a target language.

        Args:
          source: Code of the source language, as the user wrote it.
          target: Code of the target language, as the user wrote it.
          languages: The model's language tokens by code.

        Raises:
          UserError: A language that the model needs is missing or unknown to the model.
        """
        tokens = {}
        for name, field, code in (
            (SOURCE_LANGUAGE, "source_language", source),
            (TARGET_LANGUAGE, "target_language", target),
        ):
            if name in self.added:
                tokens[name] = find_token(code, languages=languages, field=field)

        return self.with_tokens(tokens)

    def with_tokens(self, tokens: Mapping[str, str]) -> Tokenization:
        """Return the tokenization with language tokens instead of their names in braces."""

        def filled(added: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(tokens.get(token, token) for token in added)

        return dataclasses.replace(
            self,
            source_prefix=filled(self.source_prefix),
            source_suffix=filled(self.source_suffix),
            target_prefix=filled(self.target_prefix),
        )


def language_tokens(tokens: Iterable[str]) -> dict[str, str]:
    """Return the language tokens of a vocabulary by their language codes.

    >>> language_tokens(["<s>", "▁a", "eng_Latn", "deu_Latn"])
    {'eng_Latn': 'eng_Latn', 'deu_Latn': 'deu_Latn'}
    >>> language_tokens(["</s>", ">>deu<<", "▁>>"])
    {'deu': '>>deu<<'}
    """
    every = list(tokens)
    for pattern in _PATTERNS:
        matches = [found for token in every if (found := pattern.fullmatch(token))]
        if matches:
            return {found[1]: found[0] for found in matches}
    return {}


def find_token(code: str, *, languages: Mapping[str, str], field: str) -> str:
    """Return the language token for the model's own code of a language, or for another code.

    Args:
      code: The code that a user gave for the option `field`.
      languages: Language tokens by the model's codes.
      field: The option.

    Raises:
      UserError: No token matches the code, or several do.

    >>> find_token("de", languages={"eng_Latn": "eng_Latn", "deu_Latn": "deu_Latn"}, field="x")
    'deu_Latn'
    """
    if not languages:
        raise UserError(
            f"the model needs a token for `{field}`, but its vocabulary has no language tokens. "
            "Import the model again, with prefixes and suffixes that are in its vocabulary"
        )
    if code in languages:
        return languages[code]
    alike = _find_alike(code, languages=languages)
    if len(alike) == 1:
        return languages[alike[0]]
    names = ", ".join((alike or sorted(languages))[:_SHOWN])
    raise UserError(
        f"`{field}` must be one language of the model, such as {names}. Received: {code or 'none'}"
    )


def _find_alike(code: str, *, languages: Iterable[str]) -> list[str]:
    """Return the model's codes for the language and the script of a code."""
    given = find_language(code) if code else None
    if given is None:
        return []
    of_model = {own: find_language(own) for own in languages}
    alike = {own: at for own, at in of_model.items() if at and at.primary == given.primary}
    if script := named_script(code):
        scripts = {own: named_script(own) for own in alike}
        return [own for own in alike if scripts[own] == script] or [
            own for own in alike if not scripts[own]
        ]
    return [own for own, at in alike.items() if at.script == given.script] or list(alike)


def load_pieces(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Load a SentencePiece model, whatever its special ids are.

    Raises:
      UserError: The file is missing, or is not a SentencePiece model.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        for i in range(processor.get_piece_size()):
            processor.id_to_piece(i)  # raises if the piece is not UTF-8
        return processor
    except OSError as error:
        raise UserError(
            f"no SentencePiece model at {path} ({error.strerror}). Copy the file from the source "
            "of the model"
        ) from error
    except (RuntimeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is not a SentencePiece model. Copy the file again from the source of the model"
        ) from error
