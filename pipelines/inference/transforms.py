"""The steps that translate, and what they count."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import apache_beam as beam
from apache_beam.metrics import Metrics

from model.engines.translator import Translator
from pipelines.flags.limits import FLAGS
from pipelines.inference.model_sharing import SharedTranslator
from pipelines.texts.translating import STATUSES


class TranslatorDoFn(beam.DoFn):
    """A step that has the model of its process as `translator`, and counts what it translates.

    Args:
      load_translator: Called once in each process by all steps that share it; must pickle.
    """

    def __init__(self, load_translator: Callable[[], Translator]) -> None:
        self._model = SharedTranslator(load_translator)
        # To be looked at while a job runs; the numbers of a manifest are those of its units.
        self._rows = {status: Metrics.counter("tt", f"rows_{status}") for status in STATUSES}
        self._flagged = {flag: Metrics.counter("tt", f"rows_flagged_{flag}") for flag in FLAGS}

    def setup(self) -> None:
        """Loads the model, unless another step of this process has done so."""
        self.translator = self._model.acquire()

    def teardown(self) -> None:
        """Lets go of the model."""
        del self.translator

    def count_statuses(self, rows: Mapping[str, int]) -> None:
        """Counts rows by their status."""
        for status, count in rows.items():
            self._rows[status].inc(count)

    def count_flags(self, rows: Mapping[str, int]) -> None:
        """Counts rows by their flags."""
        for flag, count in rows.items():
            self._flagged[flag].inc(count)
