"""The Beam transform that translates messages, for streams on Dataflow."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator

import apache_beam as beam

from model.engines.translator import Translator
from pipelines.inference.transforms import TranslatorDoFn
from pipelines.runners.jobs.transforms import CheckWorker
from pipelines.streams.messages import Answer, Message, MessageTexts, answer_messages
from pipelines.streams.side_by_side import share


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class TranslateMessages(beam.PTransform):
    """Messages to answers, one for each, in batches that end with their bundle."""

    load_translator: Callable[[], Translator]  # called once per worker process; must pickle
    texts: MessageTexts
    max_batch: int  # messages that are translated together

    def expand(self, messages: beam.PCollection[Message]) -> beam.PCollection[Answer]:
        """Wires the transform."""
        return (
            messages
            | "Batch"
            >> beam.BatchElements(min_batch_size=self.max_batch, max_batch_size=self.max_batch)
            | "Check worker" >> CheckWorker()
            | "Translate" >> beam.ParDo(_TranslateBatch(self))
        )


class _TranslateBatch(TranslatorDoFn):
    def __init__(self, config: TranslateMessages) -> None:
        super().__init__(config.load_translator)
        self._texts = config.texts

    def setup(self) -> None:
        super().setup()
        # `BatchElements` logs a line about each bundle.
        logging.getLogger("apache_beam.transforms.util").setLevel(logging.WARNING)
        self._side_by_side = share(self.translator)

    def process(self, batch: list[Message]) -> Iterator[Answer]:
        answers, found = answer_messages(batch, texts=self._texts, translator=self._side_by_side)
        self.count_statuses(found.by_status)
        self.count_flags(found.by_flag)
        yield from answers
