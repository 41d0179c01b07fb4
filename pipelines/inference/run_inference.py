"""A model for Beam's own RunInference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.ml.inference.base import ModelHandler

from model.engines.translator import Translator
from pipelines.inference.model_sharing import SharedTranslator
from pipelines.inference.text_model import NamedGlossary, TextModel
from pipelines.inference.transforms import MAX_BATCH, MIN_BATCH
from pipelines.texts.options import TextOptions
from pipelines.texts.translating import TranslatedText


class TranslationModelHandler(ModelHandler[str | bytes | None, TranslatedText, TextModel]):
    """Texts to `TranslatedText`s by `RunInference`; with keys by Beam's `KeyedModelHandler`.

    It shares the model of a process with all steps that have its loader.

    Args:
      load_translator: Makes the translator, once in each process; a `ModelLoader`.
      options: How texts are treated.
      min_batch: Texts that are translated at once, at least, where a bundle has so many.
      max_batch: Texts that are translated at once, at most.
    """

    def __init__(
        self,
        load_translator: Callable[[], Translator],
        *,
        options: TextOptions | None = None,
        min_batch: int = MIN_BATCH,
        max_batch: int = MAX_BATCH,
    ) -> None:
        super().__init__(min_batch_size=min_batch, max_batch_size=max_batch)
        self._load = load_translator
        self._shared = SharedTranslator(load_translator)
        self._options = options or TextOptions()
        self._glossary = NamedGlossary.of(self._options.glossary)

    def load_model(self) -> TextModel:
        """Loads the model, unless another step of this process has done so."""
        return TextModel.of(
            self._shared.acquire(), load=self._load, options=self._options, glossary=self._glossary
        )

    def run_inference(
        self,
        batch: Sequence[str | bytes | None],
        model: TextModel,
        inference_args: dict[str, Any] | None = None,
    ) -> list[TranslatedText]:
        """Translates a batch."""
        return model.translate(batch).translations

    def get_metrics_namespace(self) -> str:
        """Returns where Beam puts its counts."""
        return "tt"
