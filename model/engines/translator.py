"""The choice of an engine, and the interface of all engines, without TensorFlow."""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from tt.model.errors import NotFiniteError, checked, one_of, require, require_one_of
from tt.model.text.vocabulary import count_letters
from tt.model.transformer.search_options import Decoding

ENGINES = {
    "tensorflow": ("float32", "bfloat16", "float16"),
    "ctranslate2": (
        "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16",
        "int8_bfloat16",
    ),
}  # fmt: skip
COMPUTE_TYPES = tuple(dict.fromkeys(kind for kinds in ENGINES.values() for kind in kinds))
AUTO = "auto"
DEVICES = (AUTO, "cpu", "cuda")


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine that computes translations, with its number type and its device.

    Attributes:
      name: Translate with TensorFlow or CTranslate2. By default, the model's format decides.
      compute_type: Compute matrix products in this type, such as float32, bfloat16 or int8.

        TensorFlow supports "float32", "bfloat16" and "float16". CTranslate2 supports
        "float32" and "int8", and depending on the device "int16", "float16", "bfloat16",
        "int8_float32", "int8_float16" and "int8_bfloat16".
      device: Run CTranslate2 on this device; "auto" uses NVIDIA GPUs that can compute.

        The device "cuda" means all NVIDIA GPUs.
    """

    name: str | None = one_of(tuple(ENGINES), default=None)
    compute_type: str = one_of(COMPUTE_TYPES, default="float32")
    device: str = one_of(DEVICES, default=AUTO)

    def __post_init__(self) -> None:
        require_one_of("`device`", self.device, DEVICES)
        if self.name is None:
            require_one_of("`compute_type`", self.compute_type, COMPUTE_TYPES)
            return
        require_one_of("`engine`", self.name, tuple(ENGINES))
        require_one_of(
            f"`compute_type` of the engine {self.name}", self.compute_type, ENGINES[self.name]
        )
        require(
            self.device == AUTO or self.name == "ctranslate2",
            f"`device` is only for the engine ctranslate2, but the engine is {self.name}, which "
            "uses all GPUs that it finds. Remove the option",
        )

    def for_model(self, *, is_ctranslate2: bool) -> Engine:
        """Return the engine with a name; if it has none, the format of the model decides.

        Raises:
          UserError: The engine does not support the compute type or the device.
        """
        if self.name is not None:
            return self
        return dataclasses.replace(self, name="ctranslate2" if is_ctranslate2 else "tensorflow")

    def as_json(self) -> dict[str, str | None]:
        """Return the options as JSON values.

        `device` is omitted if it has its default value, so that the options equal those in plans of
        older versions, which did not have `device`.
        """
        values = dataclasses.asdict(self)
        if self.device == AUTO:
            del values["device"]
        return values


Languages = tuple[str, str]  # codes of the source and the target language, or ""


@dataclasses.dataclass(slots=True, unsafe_hash=True)  # `frozen` would take 4 times as long
class Input:
    """A text as an engine receives it, which must not be changed.

    Attributes:
      text: The text, before normalization.
      length: Number of tokens without BOS, EOS and language tokens; 0 if the normalized text is
        empty.
      unknown: The parts of the normalized text that the vocabulary lacks, one per unknown token.
      rarity: The rank of the rarest token in the vocabulary, or 0 if unknown.
      encoded: The engine's own encoding of the text and its languages.
    """

    text: str
    length: int
    unknown: tuple[str, ...] = ()
    rarity: int = dataclasses.field(default=0, compare=False, repr=False)
    encoded: Any = dataclasses.field(default=None, compare=False, repr=False)

    def describe_unknown(self) -> str | None:
        """Return a message if the model does not know most of the text, else None.

        >>> Input("Это мой дом, Tom.", 9, ("Это", "мой", "дом")).describe_unknown()
        '9 of 12 letters and symbols are unknown to the model'
        >>> Input("👍 one 👍", 3, ("👍", "👍")).describe_unknown()
        '2 of 3 tokens are unknown to the model'
        """
        if not self.unknown:
            return None
        letters = count_letters(unicodedata.normalize("NFC", self.text))
        unknown = sum(map(count_letters, self.unknown))
        if 2 * unknown > letters:
            counts = f"{unknown} of {letters} letters and symbols"
        elif 2 * len(self.unknown) > self.length:
            counts = f"{len(self.unknown)} of {self.length} tokens"
        else:
            return None
        return f"{counts} are unknown to the model"


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A possible translation of a source.

    Attributes:
      text: The text.
      score: Log-probability of the tokens, including EOS. If the search appends EOS at the length
        limit, EOS counts in beam search, because the hypothesis competes with complete hypotheses.
        It does not count in greedy search.
      is_complete: Whether the model ended the hypothesis, and not the length limit.
      tokens: Number of tokens, including EOS; 0 if unknown, such as for several sentences.
    """

    text: str
    score: float
    is_complete: bool = True
    tokens: int = 0


@dataclasses.dataclass(frozen=True)
class Translation:
    """One to `Decoding.n_best` hypotheses for a source, best first."""

    hypotheses: tuple[Hypothesis, ...]

    @property
    def text(self) -> str:
        """The best text."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The log-probability of the best text."""
        return self.hypotheses[0].score


def check_scores(translations: Sequence[Translation]) -> None:
    """Check that each source has a hypothesis, and each hypothesis a finite score.

    Raises:
      NotFiniteError: A hypothesis is missing or has no finite score, because the model's weights
        or their products are not finite.
    """
    for translation in translations:
        found = translation.hypotheses
        if not found or not all(math.isfinite(each.score) for each in found):
            raise NotFiniteError(
                "the model gives no translation a probability, because its weights or their "
                "products are not finite. Export another checkpoint with `tt export --checkpoint`"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Counts of the work for some translations, which can be added with `+`."""

    sources: int = 0
    source_tokens: int = 0  # including BOS and EOS
    padded_tokens: int = 0  # computed source positions, including padding
    target_tokens: int = 0  # tokens of the best translations, including EOS
    memory_backoffs: int = 0  # number of batches that were cut because memory ran out

    @property
    def padding(self) -> float:
        """The share of padding in the source positions; 0 without work."""
        return 1 - self.source_tokens / self.padded_tokens if self.padded_tokens else 0.0

    def __add__(self, other: Work) -> Work:
        mine, others = dataclasses.asdict(self), dataclasses.asdict(other)
        return Work(**{name: value + others[name] for name, value in mine.items()})


@dataclasses.dataclass(frozen=True)
class ScoredText:
    """The log-probabilities of a given translation's tokens, without EOS.

    Attributes:
      ends: For each token, the index in the text after its last character.
      scores: Log-probability of each token, given the source and the earlier tokens.
    """

    ends: list[int]
    scores: list[float]


@runtime_checkable
class Translator(Protocol):
    """A loaded model that threads may share. Implementations must allow weak references.

    The other inputs of a call never change a translation; its score differs only by rounding.
    """

    @property
    def decoding(self) -> Decoding:
        """Options of the search."""

    def prepare(
        self, texts: list[str], *, languages: Languages = ("", ""), most_tokens: int | None = None
    ) -> list[Input]:
        """Normalize and encode texts.

        Args:
          texts: The texts.
          languages: Codes of the source and the target language, for a model with language tokens.
          most_tokens: The model translates only this number of tokens, including BOS and EOS, of a
            longer text; `length` is still the length of the whole text.

        Raises:
          UserError: The model needs language tokens, and has none for these languages.
        """

    def translate(self, inputs: list[Input]) -> tuple[list[Translation], Work]:
        """Translate inputs, which may have several languages; return translations in order."""

    def is_input_error(self, error: Exception) -> bool:
        """Return whether an input, and not the machine, can have caused an error."""


@runtime_checkable
class Scorer(Protocol):
    """A translator that can also score given translations, as both engines can on each device."""

    def score(self, pairs: list[tuple[Input, str]]) -> list[ScoredText]:
        """Score a given translation of each input."""


def count_used_gpus(translator: Translator) -> int:
    """Return how many GPUs the translator uses, with one call at a time on each; 0 on a CPU."""
    return int(getattr(translator, "gpus", 0))
