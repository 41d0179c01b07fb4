"""A request for a dataset, which finds the corpora and plans the job.

Methods import Arrow only to open corpora, because the help of the command does not need it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tt.model.errors import UserError, checked, require
from tt.model.storage.paths import normalize_path
from tt.model.storage.stores import check_buckets
from tt.model.text.languages import find_language
from tt.pipelines.preprocess.naming import parse_weights
from tt.pipelines.preprocess.options import (
    MAX_VALIDATION_FRACTION,
    PreprocessOptions,
    changed_fields,
    with_vocabulary_of,
)
from tt.pipelines.tables.finding import count_endings, describe_unread

if TYPE_CHECKING:
    from tt.pipelines.preprocess.job import PreprocessJob
    from tt.pipelines.preprocess.plan import PreprocessPlan

_EMBEDDED_VOCABULARY_SIZE = 1000
_AUTO = "auto"  # stands for the script of the language

_ABOUT_A_CORPUS = (
    "weights",
    "validation", "exclude", "held_out_by", "encoding", "source_column", "target_column",
    "source_language", "target_language", "data_dir", "download", "language_pair", "subsets",
)  # fmt: skip


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessRequest:
    r"""A request to make a dataset from corpora.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> lines = [f"{chr(n)} dog\t{chr(n)} Hund\n" for n in range(65, 91)]
    >>> _ = (folder / "corpus.tsv").write_text("".join(lines))

    >>> options = PreprocessOptions(output=f"{folder}/dataset")
    >>> job = PreprocessRequest(corpora=(f"{folder}/corpus.tsv",), options=options).plan()
    >>> job.run().pairs_kept
    26

    Attributes:
      corpora: Read these corpora, such as web.tsv or a.en+a.de. By default, the embedded corpus.

        The syntax is [NAME=]PATH[:SOURCE_COLUMN:TARGET_COLUMN] for *.tsv, *.csv, *.jsonl, *.parquet
        and *.arrow; [NAME=]SOURCE+TARGET for two line-aligned text files; and
        [NAME=]tfds:NAME[/CONFIG]. A path may be a glob, or a folder of Parquet files with a / at
        its end. Text files may end in .gz, .bz2 or .zst. A tab-separated file may have any ending
        if the string has its columns, as in fra.txt:0:1.
      source: Read source texts from this file, one per line; repeatable.
      target: Read the translations of `source` from this file, line by line; repeatable.
      validation: Validate on this corpus, in the same syntax as `corpora`; repeatable.
      weights: Keep only this share of a corpus, such as web=0.1 for a tenth of web; repeatable.

        A hash of each pair decides whether the dataset contains it.
      vocab_of: Use the vocabulary, normalization, placeholders and languages of this model.

        `tt train --init-from` can then start from the model. Give its model folder, or the run
        folder that contains it.
      source_script: Reject sources that are not in this script, such as Latin; "none" allows all.

        "auto" means the script of `options.source_language`.
      target_script: Reject targets that are not in this script, such as Latin; "none" allows all.

        "auto" means the script of `options.target_language`.
      options: Options for reading the corpora and making the dataset.
      beam_arguments: Beam's own options. By default, the job runs on this machine.
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

    @property
    def is_embedded(self) -> bool:
        """Whether the job uses the embedded corpus, because the request names no corpus."""
        return not (self.corpora or self.source or self.target)

    def plan(self) -> PreprocessJob:
        """Find all input and plan the job, without writing anything except TFDS downloads.

        Raises:
          UserError: The input or the options are unsuitable.
        """
        from tt.pipelines.preprocess.job import PreprocessJob
        from tt.pipelines.runners import workers

        if self.vocab_of is not None:
            options = with_vocabulary_of(self.vocab_of, options=self.options)
            return dataclasses.replace(self, options=options, vocab_of=None).plan()
        arguments, options = self.beam_arguments, self.options
        folders = [options.data_dir] if options.data_dir else self._default_folders()
        # `vocabulary` is not among them, because this process copies it to the output folder.
        places = {"`output`": [options.output], "`exclude`": options.exclude, "`data_dir`": folders}
        notices = workers.check_job(arguments, places=places)
        check_buckets(
            [*folders, options.output, *options.exclude, *options.vocabulary, *self._names]
        )
        are_elsewhere = workers.are_elsewhere(arguments)
        request = self._with_whole_paths() if are_elsewhere else self
        plan = request._plan(has_whole_paths=are_elsewhere)
        corpora = [file["path"] for identity in plan.identities for file in identity["files"]]
        notices = notices or workers.check_places(arguments, places={"the corpus": corpora})
        notices = [*notices, *describe_unread(plan.unread_files), *_describe_filters(plan.options)]
        plan = dataclasses.replace(plan, notices=notices)
        return PreprocessJob(plan=plan, beam_arguments=arguments)

    @property
    def _names(self) -> list[str]:
        """The corpora and text files, as the user gave them."""
        return [*self.corpora, *self.validation, *self.source, *self.target]

    def _default_folders(self) -> list[str]:
        """Return the folder of TFDS's prepared datasets, if the request has a TFDS corpus."""
        if not any("tfds:" in name for name in (*self.corpora, *self.validation)):
            return []
        return [os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"]

    def _with_whole_paths(self) -> PreprocessRequest:
        """Make local paths absolute, because workers run in another folder."""
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
                raise UserError(
                    f"these options need a corpus: {', '.join(about)}. Set `corpora`, or `source` "
                    "and `target`"
                )
            size = None if options.vocabulary else _EMBEDDED_VOCABULARY_SIZE
            options = dataclasses.replace(
                options,
                source_language="en",
                target_language="es",
                vocabulary_size=options.vocabulary_size or size,
                placeholder_share=options.placeholder_share or 0.0,  # It has enough spans.
                # All its pairs are right, and its entities are spans that models learn to copy.
                language_filter=options.language_filter or False,
                decode_entities=False,
            )
            return plan_preprocess(
                sources=[EmbeddedCorpus()],
                options=self._completed(options),
                corpus=EmbeddedCorpus.kind,
            )
        unread: list[str] = []
        sources = open_corpora(
            self.corpora,
            options,
            source_texts=self.source,
            target_texts=self.target,
            has_whole_paths=has_whole_paths,
            unread=unread,
        )
        validation_sources = open_corpora(
            self.validation,
            dataclasses.replace(options, split=options.validation_split),
            has_whole_paths=has_whole_paths,
            unread=unread,
        )
        return plan_preprocess(
            sources=sources,
            validation_sources=validation_sources,
            weights=parse_weights(self.weights),
            options=self._completed(options),
            unread_files=count_endings(unread),
        )

    def _completed(self, options: PreprocessOptions) -> PreprocessOptions:
        """Check options whose languages are known, and set the scripts of the filters."""
        if options.alignment:
            from tt.pipelines.texts.similarity import check_alignment

            check_alignment(
                "`alignment_filter`",
                source_language=options.source_language,
                target_language=options.target_language,
            )
        held_out = options.test_fraction + (0 if self.validation else options.validation_fraction)
        require(
            held_out <= MAX_VALIDATION_FRACTION,
            "the sum of `validation_fraction` and `test_fraction` must be at most "
            f"{MAX_VALIDATION_FRACTION}",
            f"{options.validation_fraction:g} + {options.test_fraction:g}",
        )
        return self._with_scripts(options)

    def _with_scripts(self, options: PreprocessOptions) -> PreprocessOptions:
        """Set the scripts of the filters: the given scripts, or the scripts of the languages."""
        scripts: dict[str, Any] = {}
        for side in ("source", "target"):
            asked, name = getattr(self, f"{side}_script"), f"{side}_script"
            scripts[name] = "" if asked == "none" else asked
            if asked == _AUTO:
                known = find_language(getattr(options, f"{side}_language"))
                scripts[name] = getattr(options.filters, name) or (known.script if known else "")
        filters = dataclasses.replace(options.filters, **scripts)
        return dataclasses.replace(options, filters=filters)


def _describe_filters(options: PreprocessOptions) -> Iterator[str]:
    """Yield a line if the language filter is off because a given language is not detectable."""
    codes = options.source_language, options.target_language
    if options.language_filter is None and all(codes) and not options.checks_languages:
        yield (
            f"the language filter is off, because tt cannot detect both {codes[0]} and {codes[1]}"
        )
