"""The options of an engine: which one computes, and in which type."""

from __future__ import annotations

import dataclasses

from model.errors import require_one_of

ENGINES = {"tensorflow": ("float32", "bfloat16", "float16"), "ctranslate2": ("float32", "int8")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine:
    """What computes translations.

    Attributes:
      name: What computes: "tensorflow", or "ctranslate2" where that extra is installed.
      compute_type: Type of the matrix products: "float32", or on GPUs "bfloat16" or "float16"
        ("tensorflow"); "float32" or "int8" ("ctranslate2").
    """

    name: str = "tensorflow"
    compute_type: str = "float32"

    def __post_init__(self) -> None:
        require_one_of("`engine`", self.name, tuple(ENGINES))
        require_one_of(
            f"`compute_type` of the engine {self.name}", self.compute_type, ENGINES[self.name]
        )
