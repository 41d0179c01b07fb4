"""Run `tt translate-batch` with a fake model of one step, so that only the job is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tt.model.engines.translator import Hypothesis, Translation, Work
from tt.model.text.vocabulary import UnknownParts
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_loading import CustomModel
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.options import TranslateOptions


class OneStep:
    """A fake translator that returns every source unchanged."""

    decoding = Decoding()

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the bytes of each text."""
        return [[2, *text.encode(), 3] for text in texts]

    def translate_ids(self, source_ids: list[list[int]]) -> tuple[list[Translation], Work]:
        """Return the texts of the bytes."""
        texts = [bytes(ids[1:-1]).decode() for ids in source_ids]
        found = [Translation((Hypothesis(text, -1.0),)) for text in texts]
        return found, Work(sources=len(texts))

    def count_unknown(self, text: str) -> UnknownParts:
        """Know every text."""
        return UnknownParts(0, len(text), 0, len(text))

    def is_input_error(self, error: Exception) -> bool:
        """Fail for no text."""
        return False


def translate(source: str | Path, output: str | Path, *, workers: int = 1, **options: Any) -> int:
    """Run the job; return its number of rows."""
    chosen = TranslateOptions(input=(str(source),), output=str(output), **options)
    threads = ("--direct_running_mode=multi_threading", f"--direct_num_workers={workers}")
    model = CustomModel(load=OneStep, fingerprint="one step")
    return TranslateRequest(options=chosen, model=model, beam=threads).plan().run().rows
