"""How a text becomes the tokens of a model that another program trained: what stands in its files.

A token of a language ("deu_Latn", "__de__", ">>deu<<") tells a model of several which one is meant.
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

# What stands for the token of a language among the tokens of a prefix or suffix.
SOURCE_LANGUAGE, TARGET_LANGUAGE = "{source_language}", "{target_language}"

# Tokens of languages: of OPUS-MT; of M2M and fairseq; of NLLB; of mBART-50.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r">>([\w-]+)<<", r"__([a-z]{2,3})__", r"([a-z]{3}_[A-Z][a-z]{3})", r"([a-z]{2}_[A-Z]{2})",
    )
)  # fmt: skip
_SHOWN = 12  # languages that a message names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenization:
    """How a text becomes tokens, and tokens a text.

    Attributes:
      source_model: SentencePiece model of sources, by its name in the model's folder.
      target_model: SentencePiece model of translations, likewise; may be the same.
      source_prefix: Tokens before those of a source; "{source_language}" and "{target_language}"
        stand for the tokens of the languages.
      source_suffix: Tokens behind those of a source.
      target_prefix: Tokens that every translation begins with, and that are no part of its text.
    """

    source_model: str
    target_model: str
    source_prefix: tuple[str, ...] = ()
    source_suffix: tuple[str, ...] = ()
    target_prefix: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Tokenization:
        """Takes what `dataclasses.asdict` gave.

        Raises:
          TypeError: It is something else.
        """
        read: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**read)

    @property
    def models(self) -> list[str]:
        """The names of the SentencePiece models, each once."""
        return list(dict.fromkeys([self.source_model, self.target_model]))

    @property
    def added(self) -> tuple[str, ...]:
        """All tokens that are added."""
        return self.source_prefix + self.source_suffix + self.target_prefix

    @property
    def has_source_language(self) -> bool:
        """Whether the model is told the language of a source."""
        return SOURCE_LANGUAGE in self.added

    @property
    def has_target_language(self) -> bool:
        """Whether the model is told the language to translate into."""
        return TARGET_LANGUAGE in self.added

    def between(self, *, source: str, target: str, languages: Mapping[str, str]) -> Tokenization:
        """Returns the tokenization with the tokens of two languages.

        Args:
          source: Code of the language of the texts, as a user gives it.
          target: Code of the language to translate into.
          languages: Tokens of the model's languages by their codes.

        Raises:
          UserError: A language that the model is told is not given, or not one of the model's.
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
        """Returns the tokenization with tokens in place of those that stand for languages."""

        def filled(added: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(tokens.get(token, token) for token in added)

        return dataclasses.replace(
            self,
            source_prefix=filled(self.source_prefix),
            source_suffix=filled(self.source_suffix),
            target_prefix=filled(self.target_prefix),
        )


def language_tokens(tokens: Iterable[str]) -> dict[str, str]:
    """Returns the tokens of languages in a vocabulary, by the codes in them.

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
    """Returns the token of a language: by the model's own name for it, or by any code for it.

    Args:
      code: The code that a user gave for the option `field`.
      languages: Tokens by the model's own codes.
      field: The option.

    Raises:
      UserError: There is none, or there are several.

    >>> find_token("de", languages={"eng_Latn": "eng_Latn", "deu_Latn": "deu_Latn"}, field="x")
    'deu_Latn'
    """
    if not languages:
        raise UserError(
            f"the model adds the token of `{field}`, but its vocabulary has no language tokens. "
            "Import it again with tokens that it has as prefixes and suffixes"
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
    """Returns the model's own codes for the language of a code, in the script that it names."""
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
    """Load a SentencePiece model of any special ids.

    Raises:
      UserError: The file is missing, or no SentencePiece model.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        for i in range(processor.get_piece_size()):
            processor.id_to_piece(i)  # raises if the piece is not UTF-8
        return processor
    except OSError as error:
        raise UserError(
            f"no SentencePiece model at {path} ({error.strerror}): copy it from where the model "
            "came"
        ) from error
    except (RuntimeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is not a SentencePiece model: copy it again from where the model came"
        ) from error
