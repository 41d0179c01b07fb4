"""The options of `tt report`, `tt attention` and `tt evaluate`; this module imports no library."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from tt.model.errors import (
    UserError,
    checked,
    one_of,
    require,
    require_one_of,
    require_text,
)
from tt.model.text.languages import read_language
from tt.model.text.scores import PAIRED_TESTS, TOKENIZERS

STDIN = "-"  # the name of stdin
PICTURES = (".html", ".png", ".svg")
_KINDS = ("cross", "encoder", "decoder")
_OF_PAIRED_TEST = ("paired_test", "samples", "seed")


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """A report to write with `tt.pipelines.reports.report.write_report`.

    Attributes:
      folders: Report on this dataset, model, run or translated folder, or compare several runs.
      output: Write the report to this HTML file.
      sentences: Show the attention for this sentence in the report of a run; repeatable.

        By default, the report shows two sentences of the run's log.
      overwrite: Replace the output file if it exists.
    """

    folders: tuple[str, ...] = ()
    output: str = "report.html"
    sentences: tuple[str, ...] = ()
    overwrite: bool = False

    def __post_init__(self) -> None:
        if not self.folders:
            raise UserError(
                "there is no folder to report on. Choose a dataset, a model, a translated folder, "
                "a run, or several runs"
            )
        for sentence in self.sentences:
            require_text("`sentences`", sentence)
        if not self.output.endswith((".html", ".htm")):
            raise UserError(f"`output` must end in .html. Received: {self.output}")


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionRequest:
    """Attention to draw with `tt.pipelines.reports.report.write_attention`.

    Attributes:
      sentence: Draw the attention for this sentence in the model's source language.
      output: Write the drawing to this .html, .png or .svg file.

        A page (.html) lets its reader choose the kind, the layer and the head.
      model: Load the model from this model folder or run folder.
      reference: Show the attention for this translation instead of the model's own.
      kind: Draw this kind of attention in a picture, or show it first in a page.
      layer: Draw only this layer, counted from 0. By default all layers.
      head: Draw only this head, counted from 0. By default all heads.
      beam_size: Keep N hypotheses while translating the sentence; 1 is greedy search.
      overwrite: Replace the output file if it exists.
    """

    sentence: str
    output: str
    model: str = "run"
    reference: str | None = None
    kind: str = one_of(_KINDS, default="cross")
    layer: int | None = None
    head: int | None = None
    beam_size: int = 4
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_text("`sentence`", self.sentence)
        require_text("`reference`", self.reference or "")
        require_one_of("`kind`", self.kind, _KINDS)
        require(self.beam_size >= 1, "`beam_size` must be at least 1", self.beam_size)
        is_known = Path(self.output).suffix in PICTURES
        require(is_known, "`output` must end in .html, .png or .svg", self.output)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """Translations to score with `tt.pipelines.reports.evaluate.evaluate`.

    Attributes:
      translations: Score this text file, Parquet file or `tt translate-batch` folder; "-" is stdin.

        A text file may be plain or gzip.
      references: Read references from this text or Parquet file; repeatable.

        Each line or row is the reference of the translation in the same place. Text may be gzip,
        and "-" is stdin. Several files give each translation several references.
      reference_columns: Read references from this Parquet column; repeatable.

        It is a column of the Parquet `references`. Without Parquet `references`, it is a column of
        the translations' own table.
      column: Read translations from this Parquet column. By default "translation".
      tokenize: Use this tokenizer of sacreBLEU for BLEU. By default, the tokenizer of `language`.
      language: Choose the tokenizer for this language code.

        By default, the target language that `tt translate-batch` recorded.
      lowercase: Ignore case.
      against: Compare with the translations of another system in this file or folder.

        It takes the same inputs as `translations`, from the same `column` by default. sacreBLEU's
        paired test estimates whether the difference of the scores is due to chance.
      against_column: Compare with this Parquet column.

        It is a column of `against`, or else of the translations' own table.
      paired_test: Use this paired test of sacreBLEU. By default bootstrap.
      samples: Draw N samples for the paired test. By default 1000, or 10000 for randomization.
      seed: Seed the random numbers of the paired test. By default 12345.
      source: Read sources from this text or Parquet file, and show scores by source length.
      source_column: Read sources from this Parquet column, and show scores by source length.

        It is a column of `source`, or else of the translations' own table.
      scorer: Score with this command, which reads rows and writes scores as JSON lines.

        An example is "comet-env/bin/python score.py"; `tt.pipelines.reports.scorer` describes the
        lines. With a scorer, references are optional.
    """

    translations: str
    references: tuple[str, ...] = ()
    reference_columns: tuple[str, ...] = ()
    column: str | None = None
    tokenize: str | None = one_of(TOKENIZERS, default=None)
    language: str | None = None
    lowercase: bool = False
    against: str | None = None
    against_column: str | None = None
    paired_test: str | None = one_of(PAIRED_TESTS, default=None)
    samples: int | None = None
    seed: int | None = None
    source: str | None = None
    source_column: str | None = None
    scorer: str | None = None

    def __post_init__(self) -> None:
        for name in ("translations", "against", "source"):
            require(getattr(self, name) != "", f"`{name}` is empty. Choose a file")
        has_references = bool(self.references or self.reference_columns)
        if not has_references and self.scorer is None:
            raise UserError(
                "there are no references. Choose a text file with `references`, or a column of the "
                "translations' table with `reference_columns`"
            )
        if self.tokenize is not None:
            require_one_of("`tokenize`", self.tokenize, TOKENIZERS)
        if self.language is not None:
            read_language(self.language, name="`language`")
        for_bleu = ("tokenize", "language", "lowercase", *_OF_PAIRED_TEST)
        for name in () if has_references else for_bleu:
            require(not getattr(self, name), f"`{name}` needs references. Choose `references`")
        for name in () if self.against or self.against_column else _OF_PAIRED_TEST:
            is_set = getattr(self, name) is not None
            require(not is_set, f"`{name}` needs a second system. Choose it with `against`")
        if self.paired_test is not None:
            require_one_of("`paired_test`", self.paired_test, PAIRED_TESTS)
        if self.samples is not None:
            require(self.samples >= 1, "`samples` must be at least 1", self.samples)
        if self.seed is not None:
            require(self.seed >= 1, "`seed` must be at least 1", self.seed)
        if self.scorer is not None:
            split_command(self.scorer)


def split_command(command: str) -> list[str]:
    """Return the words of a command.

    Raises:
      UserError: The command is empty, or a quotation mark is missing.

    >>> split_command("comet-env/bin/python 'my score.py'")
    ['comet-env/bin/python', 'my score.py']
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(
            f"`scorer` is not a command ({error}). Received: {command}. Check the quotation marks"
        ) from error
    if not words or not words[0]:
        raise UserError(
            "`scorer` is empty. Choose a command such as 'comet-env/bin/python score.py'"
        )
    return words
