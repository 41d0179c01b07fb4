"""The options of `tt report`, `tt attention` and `tt evaluate`; this module imports no library."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tt.model.errors import (
    UserError,
    accept_one_string,
    one_of,
    require,
    require_one_of,
    require_text,
)
from tt.model.text.languages import read_language
from tt.model.text.scores import TOKENIZERS

STDIN = "-"  # the name of stdin
PICTURES = (".html", ".png", ".svg")
_KINDS = ("cross", "encoder", "decoder")


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
        accept_one_string(self)
        if not self.folders:
            raise UserError(
                "there is no folder to report on. Choose a dataset, a model, a translated folder, "
                "a run, or several runs"
            )
        for sentence in self.sentences:
            require_text("`sentences`", sentence)
        if not self.output.endswith((".html", ".htm")):
            raise UserError(f"`output` must end in .html. Received: {self.output}")


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
    """

    translations: str
    references: tuple[str, ...] = ()
    reference_columns: tuple[str, ...] = ()
    column: str | None = None
    tokenize: str | None = one_of(TOKENIZERS, default=None)
    language: str | None = None
    lowercase: bool = False

    def __post_init__(self) -> None:
        accept_one_string(self)
        if not (self.references or self.reference_columns):
            raise UserError(
                "there are no references. Choose a text file with `references`, or a column of the "
                "translations' table with `reference_columns`"
            )
        if self.tokenize is not None:
            require_one_of("`tokenize`", self.tokenize, TOKENIZERS)
        if self.language is not None:
            read_language(self.language, name="`language`")
