"""The job on streams: messages as they come, with their translations.

    ReadMessages | TranslateMessages | WriteAnswers

These are one stage. A bundle of messages is read, translated and written; then its source is told
that it is done. A run that is killed has lost nothing: the next one reads again what was not done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import uuid
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.worker import bundle_processor

from model.decoding.options import Decoding
from model.engines.translator import Engine, Translator
from model.errors import UserError, accept_one_string, require
from pipelines.flags.limits import Limits
from pipelines.inference.model_loading import (
    CustomModel,
    FoundModel,
    ModelLoader,
    choose_engine,
    find_model,
)
from pipelines.inference.model_sharing import SharedTranslator
from pipelines.inference.text_model import NamedGlossary
from pipelines.remote import dataflow, streams
from pipelines.remote.checks import check_job
from pipelines.remote.wheel import with_own_wheel
from pipelines.runners.beam_options import (
    LOCAL_RUNNER,
    find_runner_name,
    is_dataflow,
    local_workers,
    set_file_system_options,
)
from pipelines.runners.patches import Patch
from pipelines.runners.runner import make_pipeline, run_pipeline
from pipelines.runners.workers import are_elsewhere
from pipelines.storage.paths import is_local
from pipelines.streams.addresses import Folder, KafkaTopic, PubsubName
from pipelines.streams.ends import Ends
from pipelines.streams.kafka.connecting import connect_topics
from pipelines.streams.live_run import Metrics, find_run, forget_run
from pipelines.streams.messages import MessageFormat, MessageTexts
from pipelines.streams.metrics import appending, serving
from pipelines.streams.options import StreamOptions
from pipelines.streams.pubsub.connecting import connect_subscription
from pipelines.streams.pubsub.transforms import ReadSubscription, WriteTopics
from pipelines.streams.pubsub.writer import PubsubTarget
from pipelines.streams.transforms import (
    POLL_SECONDS,
    REMOTE_POLL_SECONDS,
    ReadMessages,
    TranslateMessages,
    WriteAnswers,
)

_SAMPLING_MSEC = 5  # between two looks at what a bundle does, for Beam's own times of steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamRequest:
    """A translation of a stream that is asked for."""

    options: StreamOptions  # what to translate, and where to
    # Model folder, run folder or export for CTranslate2, on any file system that Beam knows; or a
    # translator of your own.
    model: str | CustomModel
    decoding: Decoding = dataclasses.field(default_factory=Decoding)  # how to search
    # Engine that computes; not used with a translator of your own.
    engine: Engine = dataclasses.field(default_factory=Engine)
    beam: tuple[str, ...] = ()  # Beam's own flags
    accelerator: str | None = None  # GPUs of each worker of Dataflow, "nvidia-l4"

    def __post_init__(self) -> None:
        accept_one_string(self)

    @property
    def is_elsewhere(self) -> bool:
        """Whether a runner has workers of its own, which read and write."""
        return streams.is_elsewhere(self.beam)

    def plan(self, report: Callable[[str], object] = lambda line: None) -> StreamJob:
        """Looks at both ends and the model; reads and writes no message.

        A model of another machine is copied to the cache; `report` takes lines of what takes long.

        Raises:
          UserError: An option, an end or the model does not fit, or a service does not answer.
        """
        options = self.options
        arguments, notices = self._check_runner()
        require(
            bool(options.fields) or self.decoding.n_best == 1,
            "`n_best` needs `fields`: a message that is a text has room for one translation",
        )
        set_file_system_options(self.beam)
        run = uuid.uuid4().hex
        form = MessageFormat(fields=options.fields, has_n_best=self.decoding.n_best > 1)
        require(
            not isinstance(options.source, Folder),
            "a folder is watched by a `WatchRequest`, and is no stream of messages",
            options.input,
        )
        is_kafka = isinstance(options.source, KafkaTopic)
        if is_kafka:
            shares = streams.count_shares(arguments) if self.is_elsewhere else None
            ends = connect_topics(options, form=form, run=run, most_shares=shares, report=report)
        else:
            ends = connect_subscription(options, form=form, run=run)
        model = find_model(self.model, engine=self.engine, report=report)
        notices += ends.notices
        if self.is_elsewhere:
            arguments = streams.with_hints(
                arguments, model_bytes=lambda: model.size, accelerator=self.accelerator
            )
        notices += model.check(
            name=self.model,
            decoding=self.decoding,
            engine=self.engine,
            texts=options.texts,
            is_here=not are_elsewhere(self.beam),
        )
        texts = options.texts.for_model(model.data)
        return StreamJob(
            request=dataclasses.replace(self, engine=choose_engine(model.folder, self.engine)),
            name=run,
            arguments=tuple(arguments),
            ends=ends,
            model=model,
            texts=MessageTexts(
                form=form,
                options=texts,
                glossary=NamedGlossary.of(texts.glossary),
                limits=Limits.of(options.texts.name_languages(model.about)),
            ),
            notices=tuple(notices),
        )

    def _check_runner(self) -> tuple[list[str], list[str]]:
        """Returns Beam's flags with those that a stream adds, and warnings.

        Raises:
          UserError: The runner or an option is not for streams, or workers would lack something.
        """
        options = self.options
        if not self.is_elsewhere:
            check_beam(self.beam)
            return with_one_worker(self.beam), []
        metrics = next((m for m in ("metrics_port", "metrics_file") if getattr(options, m)), None)
        notices = streams.check_options(
            self.beam,
            is_kafka=isinstance(options.source, KafkaTopic),
            config=options.kafka_config,
            metrics=metrics,
        )
        named = {"`model`": self.model, "`glossary`": options.texts.glossary}
        places = {what: [path] for what, path in named.items() if isinstance(path, str)}
        notices += check_job(self.beam, places=places, engine=self.engine.name or "")
        return streams.with_settings(self.beam, accelerator=self.accelerator), notices


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamJob:
    """What a run will do; no message has been read yet."""

    request: StreamRequest
    name: str  # of its `LiveRun`
    arguments: tuple[str, ...]  # Beam's own flags, with those that a stream adds
    ends: Ends
    model: FoundModel
    texts: MessageTexts
    notices: tuple[str, ...] = ()  # lines that warn the user

    @property
    def engine(self) -> Engine:
        """What computes."""
        return self.request.engine

    def describe(self) -> list[str]:
        """Returns the lines that say what the run will do."""
        return list(self.ends.lines)

    def look(self) -> Metrics:
        """Returns what is known of the run now; may be called from any thread."""
        return find_run(self.name).look()

    def drain(self) -> None:
        """Asks the run to end when what is in hand is written and committed; of any thread."""
        find_run(self.name).is_draining = True

    def run(self, report: Callable[[str], object] = lambda line: None) -> Metrics:
        """Translates messages on this machine until `drain` is called; returns what was done.

        Args:
          report: Takes a line when the model is loaded and messages are read, and of metrics that
            cannot be written.

        Raises:
          UserError: What can only be seen while it runs: a service that does not answer any more,
            a topic that is gone.
          KeyboardInterrupt: The user wants the end at once; nothing is lost.
        """
        options = self.request.options
        pipeline = make_pipeline(self.arguments)
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(serving(self.look, port=options.metrics_port))
                stack.enter_context(appending(self.look, path=options.metrics_file, report=report))
                # Here, so that a model that does not load ends the run before it begins.
                translator = SharedTranslator(self._loader()).acquire()
                report("Ready: messages are translated as they come")
                stack.enter_context(_metrics_added_up())
                stack.enter_context(_bundles_ended_at_once())
                try:
                    run_pipeline(self.build(pipeline), report)
                except BaseException:
                    with contextlib.suppress(UserError):  # the first error is the one to tell
                        self.ends.close()
                    raise
                self.ends.close()
                del translator
            return self.look()
        finally:
            forget_run(self.name)

    def submit(
        self, report: Callable[[str], object] = lambda line: None, *, detach: bool = False
    ) -> None:
        """Has a runner's own workers translate messages, until the user or the runner ends it.

        Args:
          report: Takes lines of the runner's job.
          detach: Whether to leave the job to its runner as soon as that has it.

        Raises:
          UserError: The runner does not take the job, or what a run alone sees.
          KeyboardInterrupt: The user wants the end; the job is cancelled.
          JobHandedOver: The runner has the job.
        """
        dataflow.check_staging(self.arguments)
        with with_own_wheel(self.arguments, engine=str(self.engine.name)) as arguments:
            pipeline = make_pipeline(arguments, detach=detach)
            run_pipeline(self.build(pipeline), report, detach=detach)

    def build(self, pipeline: beam.Pipeline) -> beam.Pipeline:
        """Wires the steps into a pipeline."""
        options, target = self.request.options, self.ends.target
        read: beam.PTransform
        write: beam.PTransform = WriteAnswers(target=target)
        if isinstance(target, PubsubTarget) and is_dataflow(self.arguments):
            assert isinstance(options.source, PubsubName)
            read, write = ReadSubscription(subscription=options.source), WriteTopics(target=target)
        else:
            read = ReadMessages(
                sources=self.ends.sources,
                # Half of it: a message may just miss a bundle, and wait for all of the next.
                max_latency=options.max_latency / 2,
                max_batch=options.max_batch,
                poll_seconds=REMOTE_POLL_SECONDS if self.request.is_elsewhere else POLL_SECONDS,
            )
        translate = TranslateMessages(
            load_translator=self._loader(), texts=self.texts, max_batch=options.max_batch
        )
        _ = (
            pipeline
            | "Messages" >> read
            | "Translate messages" >> translate
            | "Write answers" >> write
        )
        return pipeline

    def _loader(self) -> Callable[[], Translator]:
        request = self.request
        if isinstance(request.model, CustomModel):
            return request.model.load
        folder = request.model
        if is_local(folder) and self.model.folder is not None:
            folder = str(self.model.folder.absolute())
        return ModelLoader(
            folder=folder,
            decoding=request.decoding,
            engine=request.engine,
            threads=1,  # as many calls of one as there are cores
            fingerprint=self.model.fingerprint,
        )


# Beam 2.77 leaves it to the end of a run to add up its runner's metrics, by a generator around that
# of the bundle before: an idle stream would take a megabyte a second.
_metrics_added_up = Patch(
    fn_runner, "consolidate_monitoring_infos", lambda add_up: lambda infos: list(add_up(infos))
)

# At the end of a bundle, Beam 2.77 waits until the thread that samples states has slept its period,
# which grows with the bundle, to 200 ms: that was a tenth of a stream's time.
_bundles_ended_at_once = Patch(
    bundle_processor.statesampler,
    "StateSampler",
    lambda sampler: functools.partial(sampler, sampling_period_ms=_SAMPLING_MSEC),
)


def check_beam(arguments: Sequence[str]) -> None:
    """Checks that Beam's flags leave a stream its one worker on this machine.

    With more, Beam's own runner drops what a reader has left to read, in silence
    (https://github.com/apache/beam/issues/19842).

    Raises:
      UserError: They do not, or Beam cannot read one.
    """
    if find_runner_name(arguments) != LOCAL_RUNNER.lower():
        raise UserError(
            f"a stream is translated on this machine, by {LOCAL_RUNNER}, on Flink or on "
            "Dataflow: leave out --runner, or name one of these"
        )
    names = {argument.partition("=")[0] for argument in arguments}
    if local_workers(arguments) not in (None, 1):
        raise UserError(
            "a stream has one worker, whose model uses all cores; with more, messages would be "
            "lost: leave out --direct_num_workers"
        )
    others = sorted(
        name for name in names if name.startswith("--direct_") and name != "--direct_num_workers"
    )
    if others:
        raise UserError(f"a stream has one worker, in this process: leave out {', '.join(others)}")


def with_one_worker(arguments: Sequence[str]) -> list[str]:
    """Returns Beam's flags with the one worker said, whatever Beam's default is.

    >>> with_one_worker(["--s3_region_name=eu"])
    ['--s3_region_name=eu', '--direct_num_workers=1', '--direct_running_mode=in_memory']
    """
    kept = [each for each in arguments if not each.startswith("--direct_num_workers")]
    return [*kept, "--direct_num_workers=1", "--direct_running_mode=in_memory"]
