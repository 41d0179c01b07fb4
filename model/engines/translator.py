"""Which engine computes, and what any engine takes and gives; nothing here needs TensorFlow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

from tt.model.errors import NotFiniteError, one_of, require, require_one_of
from tt.model.text.vocabulary import UnknownParts
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine:
    """What computes translations.

    Attributes:
      name: What computes: "tensorflow", or "ctranslate2". By default
        the one that the model is made for.
      compute_type: Type of the matrix products: "float32", or on GPUs "bfloat16" or "float16"
        ("tensorflow"); "float32", "int8" and, where the device has them, "int16", "float16",
        "bfloat16", "int8_float32", "int8_float16" or "int8_bfloat16" ("ctranslate2").
      device: Where ctranslate2 computes: "cpu", "cuda" (all GPUs of NVIDIA), or "auto", on the GPUs
        if there are any.
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
            f"`device` is for the engine ctranslate2; {self.name} takes the GPUs that it finds: "
            "leave it out",
        )

    def for_model(self, *, is_ctranslate2: bool) -> Engine:
        """Returns the engine with its name, which the model tells where no name was given.

        Raises:
          UserError: That one does not compute so.
        """
        if self.name is not None:
            return self
        return dataclasses.replace(self, name="ctranslate2" if is_ctranslate2 else "tensorflow")

    def as_json(self) -> dict[str, str | None]:
        """Returns what a plan says of it; of what came later, nothing where it is the default."""
        values = dataclasses.asdict(self)
        if self.device == AUTO:
            del values["device"]
        return values


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A text, the log-probability of its ids under the model, and whether it ended by itself.

    EOS counts in the score and among the tokens. A hypothesis that was made to end at its length
    limit is not complete; in the score of a greedy one, that EOS does not count. With beam search
    it does, as such a hypothesis competes with those that ended by themselves.
    """

    text: str
    score: float
    is_complete: bool = True
    tokens: int = 0  # 0 where they are not known: of several sentences


@dataclasses.dataclass(frozen=True)
class Translation:
    """The hypotheses of a source, best first: at least one, at most `Decoding.n_best`."""

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
    """Checks that each source has a hypothesis, and each of them a probability.

    Raises:
      NotFiniteError: One has none, as with weights that are not finite or so large that they
        overflow.
    """
    for translation in translations:
        found = translation.hypotheses
        if not found or not all(math.isfinite(each.score) for each in found):
            raise NotFiniteError(
                "the model gives no probability to any translation: its weights or their products "
                "are not finite. Export another checkpoint with `tt export --checkpoint`"
            )


NOTHING = Translation((Hypothesis("", 0.0),))  # the translation of an empty text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What translating some sources took; two add up with `+`."""

    sources: int = 0
    source_tokens: int = 0  # BOS and EOS counted
    padded_tokens: int = 0  # source positions computed, padding included
    target_tokens: int = 0  # of the best translations, EOS counted
    memory_backoffs: int = 0  # times that a batch was cut because memory ran out

    @property
    def padding(self) -> float:
        """The share of source positions that were padding; 0 of no work."""
        return 1 - self.source_tokens / self.padded_tokens if self.padded_tokens else 0.0

    def __add__(self, other: Work) -> Work:
        mine, others = dataclasses.asdict(self), dataclasses.asdict(other)
        return Work(**{name: value + others[name] for name, value in mine.items()})


class Translator(Protocol):
    """A loaded model. Threads may share one; it must be weak-referenceable."""

    @property
    def decoding(self) -> Decoding:
        """How it searches."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalises texts and turns them into ids, BOS and EOS included."""

    def translate_ids(self, source_ids: list[list[int]]) -> tuple[list[Translation], Work]:
        """Translate ids; return the translations in the order of their sources."""

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown, where `encode` gave it an unknown token."""

    def is_input_error(self, error: Exception) -> bool:
        """Tells whether a source can have caused an error; else it was the machine."""


def is_on_gpus(translator: Translator) -> bool:
    """Says whether GPUs compute, which take large calls rather than several at once."""
    return bool(getattr(translator, "is_on_gpus", False))


def between(translator: Translator, *, source: str, target: str) -> Translator:
    """Returns a translator between two languages, where its model is told them; else itself.

    Args:
      translator: The model.
      source: Code of the language of the texts, or "".
      target: Code of the language to translate into, or "".

    Raises:
      UserError: The model is told the languages, and has not these.
    """
    choose = getattr(translator, "between", None)
    if choose is None:
        return translator
    chosen: Translator = choose(source=source, target=target)
    return chosen
