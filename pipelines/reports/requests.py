"""The options of `tt report`, `tt attention` and `tt evaluate`; no library is imported here."""

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

STDIN = "-"  # the name of the standard input
PICTURES = (".html", ".png", ".svg")
_KINDS = ("cross", "encoder", "decoder")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """A report to write with `tt.pipelines.reports.report.write_report`.

    Attributes:
      folders: A dataset folder, a model folder, a translated folder, or one or more run folders,
        which are compared.
      output: HTML file to write.
      sentences: Sentence of whose translation a run's report shows the attention; several are shown
        one after the other. By default two of the log's samples.
      overwrite: Replace the file if it is there.
    """

    folders: tuple[str, ...] = ()
    output: str = "report.html"
    sentences: tuple[str, ...] = ()
    overwrite: bool = False

    def __post_init__(self) -> None:
        accept_one_string(self)
        if not self.folders:
            raise UserError(
                "there is nothing to report on: name a dataset, a run, several runs, a model, or a "
                "translated folder"
            )
        for sentence in self.sentences:
            require_text("`sentences`", sentence)
        if not self.output.endswith((".html", ".htm")):
            raise UserError(f"`output` must end in .html. Received: {self.output}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionRequest:
    """Attention to draw with `tt.pipelines.reports.report.write_attention`.

    Attributes:
      sentence: Sentence of the model's source language.
      output: File to write; its ending says what: .html (a page in which kind, layer and head are
        chosen), .png or .svg.
      model: Run folder, or an exported model folder.
      reference: Translation to look at instead of the model's own.
      kind: Attention of a picture, and that which a page shows first: "cross", "encoder" or
        "decoder".
      layer: Layer to draw, from 0. By default all.
      head: Head to draw, from 0. By default all.
      beam_size: Hypotheses kept while the model translates; 1 is greedy search.
      overwrite: Replace the file if it is there.
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
        endings = f"{', '.join(PICTURES[:-1])} or {PICTURES[-1]}"
        is_known = Path(self.output).suffix in PICTURES
        require(is_known, f"`output` must end in {endings}", self.output)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """Translations to score with `tt.pipelines.reports.evaluate.evaluate`.

    Attributes:
      translations: Translations: a text ("-" is stdin; gzip too), Parquet, or a folder that
        `tt translate-batch` wrote.
      references: References, line for line: a text ("-" is stdin; gzip too) or Parquet; several
        are several references of each translation.
      reference_columns: Column of the Parquet references, or of the translations' own table where
        `references` names no Parquet; several are several references.
      column: Column of the Parquet translations. By default "translation".
      tokenize: Tokenizer of sacreBLEU for BLEU: "13a", "intl", "zh", "char" or "none". By default
        that of `language`.
      language: Code of the translations' language, which chooses the tokenizer. By default the
        one that `tt translate-batch` wrote down.
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
                "there is no reference: name a text with `references`, or a column of the "
                "translations' table with `reference_columns`"
            )
        if self.tokenize is not None:
            require_one_of("`tokenize`", self.tokenize, TOKENIZERS)
        if self.language is not None:
            read_language(self.language, name="`language`")
