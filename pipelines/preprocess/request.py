"""A dataset that is asked for: looked up, and planned.

Corpora need arrays, which are imported where they are opened: a request and its help need none.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from tt.model.errors import UserError, accept_one_string
from tt.model.text.languages import find_language
from tt.pipelines.preprocess.naming import parse_weights
from tt.pipelines.preprocess.options import PreprocessOptions, changed_fields, with_vocabulary_of
from tt.pipelines.storage.object_stores import look_first
from tt.pipelines.storage.paths import normalize_path

if TYPE_CHECKING:
    from tt.pipelines.preprocess.job import PreprocessJob
    from tt.pipelines.preprocess.plan import PreprocessPlan

_EMBEDDED_VOCABULARY_SIZE = 1000
_AUTO = "auto"  # the script of a language

_ABOUT_A_CORPUS = (
    "weights",
    "validation", "exclude", "held_out_by", "encoding", "source_column", "target_column",
    "source_language", "target_language", "data_dir", "download", "language_pair", "subsets",
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
    weights: tuple[str, ...] = ()
    vocab_of: str | None = None
    source_script: str = _AUTO
    target_script: str = _AUTO
    options: PreprocessOptions
    beam_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        accept_one_string(self)

    @property
    def is_embedded(self) -> bool:
        """Whether no corpus is named: then it is the embedded one."""
        return not (self.corpora or self.source or self.target)

    def plan(self) -> PreprocessJob:
        """Looks everything up; writes nothing, unless TFDS is to `download`.

        Raises:
          UserError: The input or the options do not suit.
        """
        from tt.pipelines.preprocess.job import PreprocessJob
        from tt.pipelines.runners import workers
        from tt.pipelines.runners.beam_options import set_file_system_options

        if self.vocab_of is not None:
            set_file_system_options(self.beam_arguments)
            options = with_vocabulary_of(self.vocab_of, options=self.options)
            return dataclasses.replace(self, options=options, vocab_of=None).plan()
        arguments, options = self.beam_arguments, self.options
        folders = [options.data_dir] if options.data_dir else self._default_folders()
        # Not `vocabulary`, which this process copies to the output folder.
        places = {"`output`": [options.output], "`exclude`": options.exclude, "`data_dir`": folders}
        notices = workers.check_job(arguments, places=places)
        set_file_system_options(arguments)
        look_first([*folders, options.output, *options.exclude, *options.vocabulary, *self._names])
        are_elsewhere = workers.are_elsewhere(arguments)
        request = self._with_whole_paths() if are_elsewhere else self
        plan = request._plan(has_whole_paths=are_elsewhere)
        corpora = [file["path"] for identity in plan.identities for file in identity["files"]]
        notices = notices or workers.check_places(arguments, places={"the corpus": corpora})
        plan = dataclasses.replace(plan, notices=notices)
        return PreprocessJob(plan=plan, beam_arguments=arguments)

    @property
    def _names(self) -> list[str]:
        """Corpora and texts, as they are named."""
        return [*self.corpora, *self.validation, *self.source, *self.target]

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

    def _plan(self, *, has_whole_paths: bool) -> PreprocessPlan:
        from tt.pipelines.preprocess.corpora import open_corpora
        from tt.pipelines.preprocess.plan import plan_preprocess
        from tt.pipelines.preprocess.ready_made import EmbeddedCorpus

        options = self.options
        if self.is_embedded:
            about = changed_fields(self, _ABOUT_A_CORPUS) + changed_fields(options, _ABOUT_A_CORPUS)
            if about:
                raise UserError(f"no corpus is named, and {', '.join(about)} is about one: name it")
            size = None if options.vocabulary else _EMBEDDED_VOCABULARY_SIZE
            options = dataclasses.replace(
                options,
                source_language="en",
                target_language="es",
                vocabulary_size=options.vocabulary_size or size,
            )
            return plan_preprocess(
                sources=[EmbeddedCorpus("train")],
                options=self._with_scripts(options),
                corpus=EmbeddedCorpus.kind,
            )
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
            has_whole_paths=has_whole_paths,
        )
        return plan_preprocess(
            sources=sources,
            validation_sources=validation_sources,
            weights=parse_weights(self.weights),
            options=self._with_scripts(options),
        )

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
