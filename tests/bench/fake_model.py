"""Run `tt translate-batch` with a fake model of one step, so that only the job is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tt.model.engines.translator import Hypothesis, Input, Languages, Translation, Work
from tt.model.transformer.search_options import Decoding
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.options import TranslateOptions


class OneStep:
    """A fake translator that returns every source unchanged."""

    decoding = Decoding()

    def prepare(
        self, texts: list[str], *, languages: Languages = ("", ""), most_tokens: int | None = None
    ) -> list[Input]:
        """Return texts with one token per character."""
        return [Input(text, len(text)) for text in texts]

    def translate(self, inputs: list[Input]) -> tuple[list[Translation], Work]:
        """Return the texts."""
        found = [Translation((Hypothesis(each.text, -1.0),)) for each in inputs]
        return found, Work(sources=len(inputs))

    def is_input_error(self, error: Exception) -> bool:
        """Fail for no text."""
        return False


class OneStepLoader:
    """The loader of `OneStep`."""

    fingerprint = "one step"

    def __call__(self) -> OneStep:
        """Return a new translator."""
        return OneStep()


def translate(source: str | Path, output: str | Path, *, workers: int = 1, **options: Any) -> int:
    """Run the job; return its number of rows."""
    chosen = TranslateOptions(input=(str(source),), output=str(output), **options)
    threads = ("--direct_running_mode=multi_threading", f"--direct_num_workers={workers}")
    return TranslateRequest(options=chosen, model=OneStepLoader(), beam=threads).plan().run().rows
