"""The translations of inputs, from a translation memory or from the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from tt.model.engines.batching import begin_sources
from tt.model.engines.translator import Input, Languages, Translation, Translator, Work
from tt.pipelines.texts.calling import PROBE, call_on_parts


@runtime_checkable
class Memory(Protocol):
    """A store of earlier translations for one model with fixed options.

    In both methods, `languages` are the codes of the source and the target language that the row or
    the options ask for; "" means the model's own language.
    """

    def find_translations(
        self, texts: Collection[str], *, languages: Languages
    ) -> Mapping[str, Translation]:
        """Return the model's earlier translations of those texts that the memory contains.

        Args:
          texts: Texts for the model, with placeholders for protected spans.
          languages: Codes of the languages.
        """

    def find_corrections(self, texts: Iterable[str], *, languages: Languages) -> Mapping[str, str]:
        """Return the human translations of those texts that the memory contains."""


class Learned(NamedTuple):
    """A new translation of the model, which a memory can store.

    Attributes:
      text: The text for the model, with placeholders for protected spans.
      languages: The codes of the languages; see `Memory`.
      translation: The hypotheses of the model.
      flags: The flags of the best hypothesis; empty if no hypothesis keeps all spans.
    """

    text: str
    languages: Languages
    translation: Translation
    flags: tuple[str, ...]


class Translations:
    """Prepares texts for the model, and finds their translations; each text only once.

    Attributes:
      inputs: The input of each text for the model, or the error if it cannot be prepared.
      found: The translation of each text for the model, or the error if the model fails at it.
      languages: The codes of the source and the target language, or "".
      remembered: The texts whose translations come from the memory.
      work: The work of the model.

    Args:
      translator: The model.
      memory: The translation memory, if there is one.
      languages: The codes of the source and the target language, or "".
      most_tokens: The inputs contain only the first tokens of longer texts; None keeps all tokens.

    Raises:
      UserError: The model does not have these languages.
    """

    def __init__(
        self,
        translator: Translator,
        *,
        memory: Memory | None,
        languages: Languages,
        most_tokens: int | None,
    ) -> None:
        self._translator = translator
        self._memory = memory
        self.languages = languages
        self._most_tokens = most_tokens
        self.inputs: dict[str, Input | Exception] = {}
        self.found: dict[str, Translation | Exception] = {}
        self.remembered: set[str] = set()
        self.work = Work()
        self._prepare([])  # checks the languages

    def prepare(self, texts: Iterable[str]) -> Mapping[str, Input | Exception]:
        """Prepare the texts that have no input yet, and return all inputs by their texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self.inputs]
        found = call_on_parts(
            self._prepare,
            new,
            is_input_error=self._translator.is_input_error,
            probe=lambda: self._prepare([PROBE]),
        )
        self.inputs |= zip(new, found, strict=True)
        return self.inputs

    def _prepare(self, texts: list[str]) -> list[Input]:
        return self._translator.prepare(
            texts, languages=self.languages, most_tokens=self._most_tokens
        )

    def translate(self, inputs: Iterable[Input]) -> None:
        """Find or translate the inputs that have no translation yet."""
        new = {each.text: each for each in inputs if each.text not in self.found}
        if self._memory is not None:
            whole = [text for text in new if not self.is_truncated(text)]
            known = self._memory.find_translations(whole, languages=self.languages)
            self.found |= known
            self.remembered |= known.keys()
            new = {text: each for text, each in new.items() if text not in known}
        begin_sources(len(new))
        found = call_on_parts(
            self._translate,
            [*new.values()],
            is_input_error=self._translator.is_input_error,
            probe=lambda: self._translator.translate(self._prepare([PROBE])),
        )
        self.found |= zip(new, found, strict=True)

    def _translate(self, inputs: list[Input]) -> list[Translation]:
        translations, work = self._translator.translate(inputs)
        self.work += work
        return translations

    def is_truncated(self, text: str) -> bool:
        """Return whether the input of a text contains only its first tokens."""
        source = self.inputs[text]
        return (
            self._most_tokens is not None
            and isinstance(source, Input)
            and source.length + 2 > self._most_tokens
        )

    def describe_unknown(self, text: str) -> str | None:
        """Return a message if the model does not know most of the letters of a text, else None."""
        return self._prepare([text])[0].describe_unknown()

    def knows(self, character: str) -> bool:
        """Return whether the vocabulary contains a character."""
        return not character.isspace() and not self._prepare([character])[0].unknown

    def choose_case(self, forms: tuple[str, str]) -> str:
        """Return the form of a word that the vocabulary knows better."""
        inputs = self._prepare([*forms])
        return min(inputs, key=lambda each: (each.length, each.rarity)).text

    def find_corrections(self, texts: Iterable[str]) -> Mapping[str, str]:
        """Return the human translations of texts that the memory contains."""
        if self._memory is None:
            return {}
        return self._memory.find_corrections(dict.fromkeys(texts), languages=self.languages)

    def learned(self, flags: Mapping[str, Iterable[str]]) -> tuple[Learned, ...]:
        """Return what a memory can learn, with the flags of the best hypotheses."""
        if self._memory is None:
            return ()
        return tuple(
            Learned(text, self.languages, result, tuple(flags.get(text, ())))
            for text, result in self.found.items()
            if text not in self.remembered
            and not self.is_truncated(text)
            and isinstance(result, Translation)
        )
