"""A watched folder that is asked for: every file of it is a job of `translate-batch`.

Beam has a transform that watches, `Watch`. It is not used: on Beam's local runner it needs a
process with one worker, it starts a job that never ends, and what it saw is lost with that. A job
for each file has all that jobs have: units on all cores, a lock, a plan, a manifest, and it goes on
after a kill.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable

from model.engines.translator import Engine
from model.errors import UserError
from model.transformer.search_options import Decoding
from pipelines.inference.model_loading import CustomModel, choose_engine, find_model
from pipelines.runners.beam_options import LOCAL_RUNNER, find_runner_name, set_file_system_options
from pipelines.storage.object_stores import look_first
from pipelines.storage.paths import normalize_path
from pipelines.streams.options import StreamOptions
from pipelines.translate.job import TranslateRequest
from pipelines.translate.options import SKIP, TranslateOptions
from pipelines.watching.inbox import Inbox, WatchedFile, check_apart
from pipelines.watching.job import WatchJob
from pipelines.watching.records import Records


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchRequest:
    """A watched folder whose tables are to be translated."""

    options: StreamOptions  # what to translate, and where to
    model: str | CustomModel  # as of a `TranslateRequest`
    decoding: Decoding = dataclasses.field(default_factory=Decoding)  # how to search
    engine: Engine = dataclasses.field(default_factory=Engine)  # what computes
    beam: tuple[str, ...] = ()  # Beam's own flags

    def plan(self, report: Callable[[str], object] = lambda line: None) -> WatchJob:
        """Looks at the folder and the model; reads no file, and writes nothing.

        Raises:
          UserError: An option, the folder or the model does not fit.
        """
        options = self.options
        if find_runner_name(self.beam) != LOCAL_RUNNER.lower():
            raise UserError(
                f"a folder is watched from this machine, by {LOCAL_RUNNER}: leave out --runner, or "
                "translate what is there by translate-batch"
            )
        set_file_system_options(self.beam)
        look_first([options.input, options.output])
        inbox = Inbox(options.input, output=options.output)
        check_apart(inbox, options.output)
        model = find_model(self.model, engine=self.engine, report=report)
        notices = model.check(
            name=self.model, decoding=self.decoding, engine=self.engine, texts=options.texts
        )
        run = uuid.uuid4().hex
        return WatchJob(
            options=options,
            inbox=inbox,
            records=Records(output=normalize_path(options.output).rstrip("/"), run=run),
            request=self._request_of,
            model=model,
            engine=choose_engine(model.folder, self.engine),
            notices=tuple(notices),
        )

    def _request_of(self, file: WatchedFile, *, overwrite: bool = False) -> TranslateRequest:
        """Returns the job on a file: a folder of its name gets its translations."""
        options = TranslateOptions(
            input=(file.path,),
            output=f"{normalize_path(self.options.output).rstrip('/')}/{file.name}",
            text_columns=self.options.fields,
            overwrite=overwrite,
            on_bad_file=SKIP,
            max_failed=1.0,  # each row says for itself; a stream does not end for it
            texts=self.options.texts,
        )
        return TranslateRequest(
            options=options,
            model=self.model,
            decoding=self.decoding,
            engine=self.engine,
            beam=self.beam,
        )
