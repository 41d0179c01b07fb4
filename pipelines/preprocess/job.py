"""The preprocess job: ListUnits | TrainVocabularies | EncodeUnits | MergeShards | WriteManifest.

Rows stay in Arrow tables and lists, a unit at a time; only small descriptors of units, of regions
in spill files and of shards pass between the steps. A step that runs twice writes the same files
again, and a run that is started again takes over what the last one finished.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from model.dataset.manifest import DatasetManifest
from model.errors import UnfinishedError, UserError
from model.text.languages import find_language, read_language
from model.text.vocabulary import VOCABULARY_FILE, vocabulary_json
from pipelines.corpora.embedded import EmbeddedCorpus
from pipelines.corpora.naming import parse_weights
from pipelines.corpora.opening import open_corpora
from pipelines.pairs.work_folder import WORK_FOLDER, WorkFolder
from pipelines.preprocess.dataset_folder import (
    abandon_output,
    check_output,
    claim_output,
    find_finished,
    is_last_run,
)
from pipelines.preprocess.description import describe_plan
from pipelines.preprocess.options import PreprocessOptions, changed_fields, with_vocabulary_of
from pipelines.preprocess.plan import PreprocessPlan, plan_preprocess
from pipelines.preprocess.progress import Progress, ProgressWatch
from pipelines.preprocess.vocabulary_sample import VocabularySpec
from pipelines.runners.status_line import look_seconds, repeating
from pipelines.storage import files
from pipelines.storage.first_look import look_first
from pipelines.storage.paths import is_local, join, normalize_path

if TYPE_CHECKING:  # Beam is imported where it is needed: options and their help need none
    import apache_beam as beam

STEPS = (
    "List units", "Find held-out texts", "Train vocabularies", "Encode units", "Merge shards",
    "Write manifest",
)  # fmt: skip

_EMBEDDED_VOCABULARY_SIZE = 1000
_AUTO = "auto"  # the script of a language

_ABOUT_A_CORPUS = (
    "weights",
    "validation", "validation_source", "validation_target", "exclude", "held_out_by", "encoding",
    "source_column", "target_column", "source_language", "target_language", "data_dir", "download",
    "language_pair", "subsets",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessRequest:
    r"""A dataset to make of corpora.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> lines = [f"{chr(n)} dog\t{chr(n)} Hund\n" for n in range(65, 91)]
    >>> _ = (folder / "corpus.tsv").write_text("".join(lines))

    >>> options = PreprocessOptions(output=f"{folder}/dataset")
    >>> job = PreprocessRequest(corpora=(f"{folder}/corpus.tsv",), options=options).plan()
    >>> job.run().pairs_kept
    26

    Attributes:
      corpora: Corpora: [NAME=]PATH[:SOURCE_COLUMN:TARGET_COLUMN] (*.tsv, *.jsonl, *.parquet; globs
        too), [NAME=]TEXT+TEXT (line-aligned) or [NAME=]tfds:NAME[/CONFIG]; texts may end in .gz,
        .bz2 or .zst, and TSV in anything where its columns are named, as in fra.txt:0:1. Without
        any corpus: the embedded English-Spanish one.
      source: Text file, a source sentence a line; repeatable.
      target: Text file of the translations of `source`, line for line; repeatable.
      validation: Validation corpus, named as corpora are; repeatable.
      validation_source: Text file of the source of validation pairs; repeatable.
      validation_target: Text file of the translations of `validation_source`; repeatable.
      weights: Share of a corpus's pairs that is kept, by its name: NAME=0.1 keeps a tenth, chosen
        by a hash of the pair; repeatable.
      vocab_of: Model whose vocabulary, normalisation, placeholders and languages are taken, so that
        `tt train --init-from` can begin with it: a model folder or the run folder around it.
      source_script: Script that source texts must be in, such as Latin or Han; "none" is any, and
        "auto" is that of `options.source_language`.
      target_script: Script that target texts must be in, such as Latin or Han; "none" is any, and
        "auto" is that of `options.target_language`.
      options: Options of reading the corpora and of the dataset.
      beam_arguments: Beam's own flags; by default, the job runs on this machine.
    """

    corpora: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    validation_source: tuple[str, ...] = ()
    validation_target: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    vocab_of: str | None = None
    source_script: str = _AUTO
    target_script: str = _AUTO
    options: PreprocessOptions
    beam_arguments: tuple[str, ...] = ()

    @property
    def is_embedded(self) -> bool:
        """Whether no corpus is named: then it is the embedded one."""
        return not (self.corpora or self.source or self.target)

    def plan(self) -> PreprocessJob:
        """Looks everything up; writes nothing, unless TFDS is to `download`.

        Raises:
          UserError: The input or the options do not suit.
        """
        from pipelines.remote.checks import check_job
        from pipelines.runners import workers
        from pipelines.runners.beam_options import set_file_system_options

        if self.vocab_of is not None:
            set_file_system_options(self.beam_arguments)
            options = with_vocabulary_of(self.vocab_of, options=self.options)
            return dataclasses.replace(self, options=options, vocab_of=None).plan()
        arguments, options = self.beam_arguments, self.options
        folders = [options.data_dir] if options.data_dir else self._default_folders()
        # Not `vocabulary`, which this process copies to the output folder.
        places = {"`output`": [options.output], "`exclude`": options.exclude, "`data_dir`": folders}
        notices = check_job(arguments, places=places)
        set_file_system_options(arguments)
        look_first([*folders, options.output, *options.exclude, *options.vocabulary, *self._names])
        are_elsewhere = workers.are_elsewhere(arguments)
        request = self._with_whole_paths() if are_elsewhere else self
        if self.is_embedded:
            plan = request._plan_embedded()
        else:
            plan = request._plan_corpora(has_whole_paths=are_elsewhere)
        corpora = [file["path"] for identity in plan.identities for file in identity["files"]]
        warning = workers.check_places(arguments, places={"the corpus": corpora})
        if notices := notices or ([warning] if warning else []):
            plan = dataclasses.replace(plan, notices=[*notices, *plan.notices])
        return PreprocessJob(plan=plan, beam_arguments=arguments)

    @property
    def _names(self) -> list[str]:
        """Corpora and texts, as they are named."""
        texts = (self.source, self.target, self.validation_source, self.validation_target)
        return [*self.corpora, *self.validation, *itertools.chain(*texts)]

    def _default_folders(self) -> list[str]:
        """Returns where TFDS keeps what it prepares, if a corpus is of TFDS."""
        if not any("tfds:" in name for name in (*self.corpora, *self.validation)):
            return []
        return [os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"]

    def _with_whole_paths(self) -> PreprocessRequest:
        """Makes local paths absolute: workers have another folder, and would look there."""
        options = self.options
        whole = dataclasses.replace(
            options,
            output=normalize_path(options.output),
            exclude=tuple(normalize_path(path) for path in options.exclude),
            data_dir=normalize_path(options.data_dir) if options.data_dir else None,
        )
        return dataclasses.replace(self, options=whole)

    def _plan_embedded(self) -> PreprocessPlan:
        about = [*changed_fields(self, _ABOUT_A_CORPUS)]
        about += changed_fields(self.options, _ABOUT_A_CORPUS)
        if about:
            raise UserError(f"no corpus is named, and {', '.join(about)} is about one: name it")
        options = dataclasses.replace(self.options, source_language="en", target_language="es")
        if options.vocabulary_size is None and not options.vocabulary:
            options = dataclasses.replace(options, vocabulary_size=_EMBEDDED_VOCABULARY_SIZE)
        return plan_preprocess(
            sources=[EmbeddedCorpus("train")],
            options=self._with_scripts(options),
            corpus=EmbeddedCorpus.kind,
        )

    def _plan_corpora(self, *, has_whole_paths: bool) -> PreprocessPlan:
        options = self.options
        sources = open_corpora(
            self.corpora,
            options,
            source_texts=self.source,
            target_texts=self.target,
            has_whole_paths=has_whole_paths,
        )
        validation_sources = open_corpora(
            self.validation,
            dataclasses.replace(options, split=options.validation_split),
            source_texts=self.validation_source,
            target_texts=self.validation_target,
            text_fields=("validation_source", "validation_target"),
            has_whole_paths=has_whole_paths,
        )
        plan = plan_preprocess(
            sources=sources,
            validation_sources=validation_sources,
            weights=parse_weights(self.weights),
            options=self._with_scripts(options),
        )
        notices = [*self._unknown_scripts(), *self._equal_languages(), *plan.notices]
        return dataclasses.replace(plan, notices=notices)

    def _with_scripts(self, options: PreprocessOptions) -> PreprocessOptions:
        """Has the filters check the scripts that are asked for, or that the languages have."""
        scripts: dict[str, Any] = {}
        for side in ("source", "target"):
            asked, name = getattr(self, f"{side}_script"), f"{side}_script"
            scripts[name] = "" if asked == "none" else asked
            if asked == _AUTO:
                known = find_language(getattr(options, f"{side}_language"))
                scripts[name] = getattr(options.filters, name) or (known.script if known else "")
        filters = dataclasses.replace(options.filters, **scripts)
        return dataclasses.replace(options, filters=filters)

    def _unknown_scripts(self) -> Iterator[str]:
        for side in ("source", "target"):
            code = getattr(self.options, f"{side}_language")
            is_open = getattr(self, f"{side}_script") == _AUTO
            if is_open and code and not read_language(code, name=f"`{side}_language`").script:
                yield (
                    f"`{side}_language={code}` does not say one script, and pairs in a wrong one "
                    f"stay: name it with `{side}_script`, such as Latin, or none"
                )

    def _equal_languages(self) -> Iterator[str]:
        source, target = self.options.source_language, self.options.target_language
        if source and source.lower() == target.lower():
            yield (
                f"`source_language` and `target_language` are both {source}: if one is another "
                "dialect, name that, such as en-GB"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessJob:
    """A dataset that is planned and can be made."""

    plan: PreprocessPlan
    beam_arguments: Sequence[str] = ()  # Beam's own flags

    def describe(self, *, price_per_hour: float | None = None) -> list[str]:
        """Returns the lines that say what a run would do.

        Args:
          price_per_hour: Price of the machines, in any currency; None leaves prices out.

        Raises:
          UserError: Beam cannot take its flags, or the output folder holds something else.
        """
        check_output(self.plan)
        return describe_plan(
            self.plan, arguments=self._arguments(), steps=STEPS, price_per_hour=price_per_hour
        )

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds this very dataset: then a run leaves it as it is."""
        return find_finished(self.plan) is not None

    def run(
        self,
        progress: Callable[[Progress], object] | None = None,
        *,
        report: Callable[[str], object] = lambda line: None,
        detach: bool = False,
    ) -> DatasetManifest:
        """Makes the dataset folder, or finishes one that the same command has begun.

        Args:
          progress: Called now and then with how far the run is, in a thread of its own.
          report: Takes lines of the runner's job.
          detach: Whether to leave the job to its runner as soon as that has it.

        Raises:
          UserError: The input or the output folder does not suit, or an earlier job still runs.
          KeyboardInterrupt: The user wants the end; the job is cancelled.
          JobHandedOver: The runner has the job, or wrote it down for another program to start.
        """
        from pipelines.remote.dataflow import check_staging
        from pipelines.remote.wheel import with_own_wheel

        if self.is_finished and (finished := claim_output(self.plan)):
            return finished  # whether or not the runner is still there
        check_staging(self.beam_arguments)
        with with_own_wheel(self._arguments()) as arguments:
            return self._run(arguments, progress, report, detach=detach)

    def _arguments(self) -> list[str]:
        """Beam's own flags, with those that the job adds."""
        from pipelines.remote import dataflow, flink
        from pipelines.runners.beam_options import with_local_defaults

        arguments = with_local_defaults(self.beam_arguments)
        arguments = dataflow.with_settings(arguments, job="preprocess", shares_model=False)
        return flink.with_settings(arguments, job="preprocess", shares_model=False)

    def _run(
        self,
        arguments: Sequence[str],
        progress: Callable[[Progress], object] | None,
        report: Callable[[str], object],
        *,
        detach: bool,
    ) -> DatasetManifest:
        from pipelines.runners.jobs.job_file import JobFile
        from pipelines.runners.runner import make_pipeline, run_pipeline

        plan = self.plan
        output = plan.options.output
        pipeline = make_pipeline(arguments, detach=detach)
        has_begun = files.is_there(plan.work.run_file)
        run_id = uuid.uuid4().hex
        if finished := claim_output(plan, run_id=run_id):
            return finished
        job_file = JobFile(join(output, WORK_FOLDER))
        job_file.check_no_job_runs()
        _copy_vocabularies(plan.options, work=plan.work)
        _add_steps(pipeline, plan)
        try:
            with _watched(plan, progress):
                run_pipeline(pipeline, report, job_file=job_file, detach=detach)
        except Exception as error:
            if finished := find_finished(plan):
                return finished  # by another run of the same command
            is_mistake = isinstance(error, UserError) and not isinstance(error, UnfinishedError)
            # Else there is work of runs before, or of one that came after.
            if is_mistake and not has_begun and is_last_run(plan, run_id=run_id):
                abandon_output(output)
            raise
        return DatasetManifest.load(output, read=files.read_bytes)


def _watched(
    plan: PreprocessPlan, progress: Callable[[Progress], object] | None
) -> AbstractContextManager[None]:
    if progress is None:
        return contextlib.nullcontext()
    watch = ProgressWatch(plan)
    interval = look_seconds(is_local=is_local(plan.work.path))
    return repeating(lambda: watch.look(time.monotonic()), progress, interval=interval)


def _add_steps(pipeline: beam.Pipeline, whole_plan: PreprocessPlan) -> None:
    import apache_beam as beam

    from pipelines.preprocess.encode_steps import (
        EncodeUnits,
        FindHeldOut,
        ListUnits,
        TrainVocabularies,
    )
    from pipelines.preprocess.manifest import WriteManifest
    from pipelines.preprocess.merge_steps import MergeShards

    plan = whole_plan.for_steps
    units, cut = pipeline | "List units" >> ListUnits(plan=plan)
    held_out = beam.pvalue.AsSingleton(units | "Find held-out texts" >> FindHeldOut(plan=plan))
    specs = [] if _has_vocabularies(plan.options) else _vocabulary_specs(plan.options)
    vocabularies = units | "Train vocabularies" >> TrainVocabularies(
        plan=plan, specs=specs, held_out=held_out
    )
    encoded = units | "Encode units" >> EncodeUnits(
        plan=plan, vocabulary_folder=beam.pvalue.AsSingleton(vocabularies), held_out=held_out
    )
    shards = encoded.regions | "Merge shards" >> MergeShards(plan=plan, units=encoded.statistics)
    _ = pipeline | "Write manifest" >> WriteManifest(
        plan=plan, cut=cut, units=encoded.statistics, shards=shards
    )


def _vocabulary_specs(options: PreprocessOptions) -> list[VocabularySpec]:
    kinds = {
        "shared": options.source_vocabulary_type,
        "source": options.source_vocabulary_type,
        "target": options.target_vocabulary_type,
    }
    return [
        VocabularySpec(
            name=name,
            kind=kinds[name] or options.vocabulary_type,
            size=options.wanted_tokens,
            is_size_given=options.vocabulary_size is not None,
            normalization_rule=options.normalization_rule,
            character_coverage=options.character_coverage,
            byte_fallback=options.byte_fallback,
            user_symbols=options.all_symbols,
            keep_whitespace=not options.normalization.clean_whitespace,
        )
        for name in (["shared"] if options.is_shared else ["source", "target"])
    ]


def _has_vocabularies(options: PreprocessOptions) -> bool:
    """Says whether the folder has its vocabularies: given ones, or from a run cut short."""
    return all(files.is_there(join(options.output, name)) for name in options.model_files)


def _copy_vocabularies(options: PreprocessOptions, *, work: WorkFolder) -> None:
    text = vocabulary_json(shared=options.is_shared, normalization=options.normalization)
    work.write_text(join(options.output, VOCABULARY_FILE), text)
    for given, name in zip(options.vocabulary, options.model_files, strict=False):
        with work.write_whole(join(options.output, name)) as file:
            file.write(files.read_bytes(given))
