"""The transforms of a stream: they only wire.

All from reading to writing is one stage: a runner commits a bundle when all of it is written, and
not before. So nothing here groups, shuffles, or has side inputs, state or timers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam
from apache_beam.io import unbounded_source
from apache_beam.io.unbounded_source import UnboundedSource

from model.engines.machine import cores
from model.engines.translator import Translator, is_on_gpus
from pipelines.inference.transforms import TranslatorDoFn
from pipelines.runners.jobs.transforms import CheckWorker
from pipelines.streams.ends import Target
from pipelines.streams.messages import Answer, Message, MessageTexts, answer_messages
from pipelines.streams.side_by_side import SideBySide

POLL_SECONDS = 0.05  # between two looks for messages, on this machine
# On runners for which each look is a bundle, kept until their next checkpoint.
REMOTE_POLL_SECONDS = 1.0


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class ReadMessages(beam.PTransform):
    """The messages of sources, in bundles of those of one that come within a while.

    `ReadFromUnboundedSource` of Beam is the same with one source. Flink gives the shares of one
    source to one worker: it goes by the element, which is the source.
    """

    sources: Sequence[UnboundedSource]
    max_latency: float  # seconds that a message may wait for others
    max_batch: int  # messages of a bundle
    poll_seconds: float = POLL_SECONDS

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Message]:
        """Wires the transform."""
        read = unbounded_source._ReadFromUnboundedSourceDoFn(
            poll_interval=self.poll_seconds,
            max_records_per_bundle=self.max_batch,
            max_read_time_seconds=self.max_latency,
        )
        return (
            begin
            | "Sources" >> beam.Create(self.sources, reshuffle=False)
            | "Read" >> beam.ParDo(read)
        )


@dataclasses.dataclass(kw_only=True, eq=False)
class TranslateMessages(beam.PTransform):
    """Messages to answers, one for each, in batches that end with their bundle."""

    load_translator: Callable[[], Translator]  # called once in each worker process; must pickle
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
        calls = 1 if is_on_gpus(self.translator) else cores()
        self._side_by_side = SideBySide(self.translator, calls=calls)

    def teardown(self) -> None:
        if side_by_side := self.__dict__.pop("_side_by_side", None):
            side_by_side.close()
        super().teardown()

    def process(self, batch: list[Message]) -> Iterator[Answer]:
        answers, found = answer_messages(batch, texts=self._texts, translator=self._side_by_side)
        self.count_statuses(found.by_status)
        self.count_flags(found.by_flag)
        yield from answers


@dataclasses.dataclass(kw_only=True, eq=False)
class WriteAnswers(beam.PTransform):
    """Answers to their target; a bundle is done when all of it is there."""

    target: Target

    def expand(self, answers: beam.PCollection[Answer]) -> beam.PCollection[None]:
        """Wires the transform."""
        return answers | "Write" >> beam.ParDo(_WriteAnswers(self.target))


class _WriteAnswers(beam.DoFn):
    def __init__(self, target: Target) -> None:
        self._target = target

    def setup(self) -> None:
        self._writer = self._target.open()

    def process(self, answer: Answer) -> None:
        self._writer.write(answer)

    def finish_bundle(self) -> None:
        self._writer.flush()

    def teardown(self) -> None:
        if writer := self.__dict__.pop("_writer", None):
            writer.close()
