"""The Beam transform that translates messages, for streams on Dataflow.

Dataflow retries a failed bundle forever. A worker with other versions than the job fails its
messages instead, because no retry can fix that.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Callable, Iterator, Mapping

import apache_beam as beam
from apache_beam.transforms import util

from model.engines.translator import Translator
from model.errors import UserError
from pipelines.inference.transforms import TranslatorDoFn
from pipelines.runners.transforms import check_versions, versions_here
from pipelines.streams.messages import Answer, Message, MessageTexts, answer_messages, fail
from pipelines.streams.side_by_side import share
from pipelines.texts.translating import FAILED


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class TranslateMessages(beam.PTransform):
    """Messages to answers, one for each, in batches that end with their bundle."""

    load_translator: Callable[[], Translator]  # called once per worker process; must pickle
    texts: MessageTexts
    max_batch: int  # messages that are translated together
    versions: Mapping[str, str] = dataclasses.field(default_factory=versions_here)  # of the job

    def expand(self, messages: beam.PCollection[Message]) -> beam.PCollection[Answer]:
        """Wires the transform."""
        return (
            messages
            | "Batch"
            >> beam.BatchElements(min_batch_size=self.max_batch, max_batch_size=self.max_batch)
            | "Translate" >> beam.ParDo(_TranslateBatch(self))
        )


class _TranslateBatch(TranslatorDoFn):
    def __init__(self, config: TranslateMessages) -> None:
        super().__init__(config.load_translator)
        self._texts = config.texts
        self._versions = dict(config.versions)
        self._fault = ""  # reason why this worker can translate nothing

    def setup(self) -> None:
        # `BatchElements` logs a line about each bundle.
        logging.getLogger(util.__name__).setLevel(logging.WARNING)
        try:
            check_versions(self._versions, versions_here(), machine=socket.gethostname())
        except UserError as error:
            self._fault = str(error)
            logging.error("all messages of this worker fail: %s", self._fault)
            return
        super().setup()
        self._side_by_side = share(self.translator)

    def process(self, batch: list[Message]) -> Iterator[Answer]:
        if self._fault:
            self.count_statuses({FAILED: len(batch)})
            yield from (fail(each, self._fault, form=self._texts.form) for each in batch)
            return
        answers, found = answer_messages(batch, texts=self._texts, translator=self._side_by_side)
        self.count_statuses(found.by_status)
        self.count_flags(found.by_flag)
        yield from answers
