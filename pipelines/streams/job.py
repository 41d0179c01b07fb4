"""Translate a stream on Dataflow or on this machine, where several processes can share it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence

from tt.model.errors import checked, require
from tt.pipelines.inference.model_copies import SharedTranslator
from tt.pipelines.inference.model_loading import FoundModel, ModelRequest, find_model
from tt.pipelines.inference.side_by_side import use_all_devices
from tt.pipelines.inference.text_model import NamedGlossary, TextModel
from tt.pipelines.runners import dataflow
from tt.pipelines.runners.beam_options import (
    LOCAL_RUNNER,
    find_runner_name,
)
from tt.pipelines.runners.runner import make_pipeline, run_pipeline
from tt.pipelines.runners.wheel import with_own_wheel
from tt.pipelines.runners.workers import are_elsewhere, check_job
from tt.pipelines.streams import connectors
from tt.pipelines.streams.connectors import TranslateMessages
from tt.pipelines.streams.kafka_member import plan_topics
from tt.pipelines.streams.messages import Answer, Message, answer_messages
from tt.pipelines.streams.metrics import Metrics, StreamMetrics, publishing
from tt.pipelines.streams.options import KafkaTopic, StreamOptions
from tt.pipelines.streams.plan import StreamPlan, StreamRun
from tt.pipelines.streams.pubsub import plan_subscription
from tt.pipelines.texts.results import TextFields


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamRequest(ModelRequest):
    """A request to translate a stream."""

    options: StreamOptions  # the input, the output and their settings
    accelerator: str | None = None  # GPUs per Dataflow worker, such as "nvidia-l4"

    @property
    def is_elsewhere(self) -> bool:
        """Whether workers of a Beam runner read and write the messages, and not this process."""
        return find_runner_name(self.beam) != LOCAL_RUNNER.lower()

    def plan(self, report: Callable[[str], object] = lambda line: None) -> StreamJob:
        """Check the input, the output and the model, without reading or writing messages.

        A remote model is copied to the cache.

        Args:
          report: Prints a line about each slow step.

        Raises:
          UserError: An option, a topic or the model cannot be used, or a service does not answer.
        """
        options = self.options
        arguments, notices = list(self.beam), list[str]()
        if self.is_elsewhere:
            arguments, notices = connectors.check_runner(
                options, arguments=self.beam, accelerator=self.accelerator
            )
            named = {"`model`": self.model, "`glossary`": options.texts.glossary}
            places = {what: [path] for what, path in named.items() if isinstance(path, str)}
            notices += check_job(self.beam, places=places)
        else:
            local = [each for each in self.beam if each.startswith("--direct_")]
            require(
                not local,
                "a stream on this machine is one process that uses all cores. Remove "
                f"{', '.join(local)}, and start several processes to share the work",
            )
        require(
            bool(options.fields) or self.decoding.n_best == 1,
            "`n_best` needs `fields`, because a message without fields can contain only one "
            "translation. Set `fields`, or remove `n_best`",
        )
        require(
            bool(options.fields) or not options.texts.detect_language,
            "`detect_language` needs `fields`, because a message without fields can contain only "
            "the translation. Set `fields`, or remove `detect_language`",
        )
        form = TextFields(
            fields=options.fields,
            has_n_best=self.decoding.n_best > 1,
            has_language=options.texts.detect_language,
        )
        plan_stream = plan_topics if isinstance(options.source, KafkaTopic) else plan_subscription
        plan: StreamPlan = plan_stream(options, form=form)
        model = find_model(self, report=report)
        if self.is_elsewhere:
            arguments = connectors.with_hints(
                arguments, model_bytes=lambda: model.size, accelerator=self.accelerator
            )
        notices += plan.notices
        notices += model.check(options.texts, is_here=not are_elsewhere(self.beam))
        return StreamJob(
            request=dataclasses.replace(self, engine=model.chosen_engine),
            arguments=tuple(arguments),
            plan=plan,
            lines=plan.lines,
            model=model,
            glossary=NamedGlossary.of(options.texts.glossary),
            notices=tuple(notices),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamJob:
    """A checked stream, of which no message has been read yet.

    `stop.set()` ends a run after the batch in progress.
    """

    request: StreamRequest
    model: FoundModel
    lines: tuple[str, ...]  # describe the run before it starts
    arguments: tuple[str, ...]  # Beam's flags, for another runner
    plan: StreamPlan
    glossary: NamedGlossary | None = None
    notices: tuple[str, ...] = ()  # warnings for the user
    metrics: StreamMetrics = dataclasses.field(default_factory=StreamMetrics)
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)

    def run(self, report: Callable[[str], object] = lambda line: None) -> Metrics:
        """Translate messages on this machine until `stop` is set; return the final metrics.

        Args:
          report: Prints a line for the user.

        Raises:
          UserError: A service stops answering, or a topic was deleted.
          KeyboardInterrupt: The user wants to stop at once; the batch in progress is not committed.
        """
        options = self.request.options
        with publishing(self.metrics, options, report=report):
            model = TextModel.of(
                use_all_devices(SharedTranslator(self.model.make_loader(threads=1)).acquire()),
                about=self.model.about,
                options=options.texts,
                glossary=self.glossary,
            )

            def answer(messages: Sequence[Message]) -> list[Answer]:
                return answer_messages(messages, form=self.plan.outputs.form, model=model)[0]

            report("Ready: tt translates messages as they arrive")
            run = StreamRun(answer=answer, metrics=self.metrics, stop=self.stop, report=report)
            self.plan.run(run)
        return self.metrics.snapshot()

    def submit(
        self, report: Callable[[str], object] = lambda line: None, *, detach: bool = False
    ) -> None:
        """Submit the stream to a runner, and wait until the user or the runner ends the job.

        Args:
          report: Prints a line about the runner's job.
          detach: Whether to leave the job to the runner as soon as the runner has accepted it.

        Raises:
          UserError: The runner refuses the job, or a worker raised the error.
          KeyboardInterrupt: The user wants to stop; the job is canceled.
          JobHandedOver: The runner has accepted the job, and `detach` is set.
        """
        dataflow.check_staging(self.arguments)
        options = self.request.options
        with with_own_wheel(self.arguments) as arguments:
            pipeline = make_pipeline(arguments, detach=detach)
            translate = TranslateMessages(
                load_translator=self.model.make_loader(threads=1),
                form=self.plan.outputs.form,
                options=options.texts,
                max_batch=options.max_batch,
            )
            connectors.build(pipeline, plan=self.plan, translate=translate)
            run_pipeline(pipeline, report, detach=detach)
