"""How a worker gets its model."""

from __future__ import annotations

import dataclasses

from model.config import Decoding
from model.translation import TranslatorLike


@dataclasses.dataclass(frozen=True)
class ModelLoader:
    """Loads an exported model in the worker; TensorFlow is imported only there."""

    folder: str
    decoding: Decoding

    def __call__(self) -> TranslatorLike:
        """Loads the model."""
        from model.translator import Translator

        return Translator.load(self.folder, decoding=self.decoding)
