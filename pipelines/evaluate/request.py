"""The way in to an evaluation: files of translations and references to their scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from model.errors import UserError, accept_one_string, counted, one_of, require_one_of
from model.text.languages import find_language, read_language
from model.text.scores import TOKENIZERS, bleu_tokenizer, describe_scores
from pipelines.evaluate.lines import check_pipes, read_lines

_SAMPLE = 1000  # references that are looked at, where no language is known
_UNSPACED = {  # scripts without spaces between words, as `regex` names their letters
    "Han characters or kana": r"[\p{Hiragana}\p{Katakana}\p{Han}]",
    "Hangul": r"\p{Hangul}",
    "Thai": r"\p{Thai}",
}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What came of an evaluation."""

    scores: list[str]  # a line for BLEU and one for chrF, each with sacreBLEU's signature
    notices: list[str]  # lines about what they are scores of


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """Translations to score by BLEU and chrF.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = Path(folder, "a.txt").write_text("A cat sat on the mat.")
    >>> request = EvaluateRequest(translations=f"{folder}/a.txt", references=(f"{folder}/a.txt",))
    >>> request.run().scores[0][:50]
    'BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|'

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
        check_pipes([self.translations, *self.references])

    def run(self) -> Evaluation:
        """Reads the texts and scores them.

        Raises:
          UserError: A file cannot be read, or they are not of the same sentences.
        """
        from pipelines.evaluate.outputs import describe_skipped, planned_language

        translations = read_translations(self.translations, column=self.column)
        references = self._read_references(len(translations))
        notices = describe_skipped(self.translations)
        if nulls := translations.count(None):
            verb = "is null and counts" if nulls == 1 else "are null and count"
            notices.append(
                f"{nulls:,} of {counted(len(translations), 'translation')} {verb} as empty"
            )
        code = planned_language(self.translations) if self.language is None else self.language
        tokenize = self.tokenize
        if tokenize is None and find_language(code):
            tokenize = bleu_tokenizer(code)
        elif tokenize is None:
            notices += describe_unspaced([text for texts in references for text in texts])
        scores = describe_scores(
            [text or "" for text in translations],
            references,
            tokenize=tokenize,
            lowercase=self.lowercase,
        )
        return Evaluation(scores, notices)

    def _read_references(self, count: int) -> list[list[str]]:
        tables = [path for path in self.references if self._is_table(path)]
        if tables and not self.reference_columns:
            raise UserError(
                f"{tables[0]} is Parquet: name the column of its references with "
                "`reference_columns`"
            )
        if self.reference_columns and not tables:
            tables = [self.translations]
        found = [(path, read_lines(path), "line") for path in self.references if path not in tables]
        found += [
            (path, read_references(path, column), "row")
            for path in tables
            for column in self.reference_columns
        ]
        for path, texts, unit in found:
            if len(texts) != count:
                raise UserError(
                    "translations and references must be of the same sentences. Received: "
                    f"{counted(count, 'translation')} in {self.translations} and "
                    f"{counted(len(texts), unit)} in {path}. Name the right files"
                )
        if count == 0:
            raise UserError(f"{self.translations} is empty, with nothing to score: name another")
        return [texts for _, texts, _ in found]

    def _is_table(self, path: str) -> bool:
        return path.endswith(".parquet") or (bool(self.reference_columns) and Path(path).is_dir())


def read_translations(path: str, *, column: str | None = None) -> list[str | None]:
    """Reads translations from a text, or from a column, by default "translation", of Parquet.

    The path is of a file or a folder, or "-".

    Raises:
      UserError: There is nothing, or not the column.
    """
    from pipelines.evaluate.columns import read_column  # Arrow, which the command's help needs not
    from pipelines.evaluate.outputs import find_parquet

    files = find_parquet(path)
    if not files:
        if column is not None:
            raise UserError(f"`column` belongs to Parquet, and {path} is a text: leave it out")
        return [*read_lines(path)]
    tables = read_column(files, column or "translation", field="column")
    return [text for _, texts in tables for text in texts]


def read_references(path: str, column: str) -> list[str]:
    """Reads a column of Parquet of which every row has a text.

    Raises:
      UserError: The path is of a text, there is no such column, or a row is null.
    """
    from pipelines.evaluate.columns import read_column
    from pipelines.evaluate.outputs import find_parquet

    files = find_parquet(path)
    if not files:
        raise UserError(
            f"`reference_columns` belongs to Parquet, and {path} is a text: name Parquet with "
            "`references`, or leave it out"
        )
    references: list[str] = []
    for file, texts in read_column(files, column, field="reference_columns"):
        if None in texts:
            raise UserError(
                f"each row needs a reference, and column {column!r} of {file} is null in row "
                f"{texts.index(None) + 1:,}: leave such rows out of the table, or choose another "
                "column"
            )
        references += [text for text in texts if text is not None]
    return references


def describe_unspaced(texts: Sequence[str]) -> list[str]:
    """Warns of texts whose language is not known and whose script has no spaces between words."""
    import regex

    sample = "".join(texts[:_SAMPLE])
    letters = len(regex.findall(r"\p{L}", sample))
    return [
        f"warning: the references are written in {name}, and BLEU's tokenizer 13a takes what "
        "stands between two spaces for a word: give their `language`, or `tokenize`"
        for name, pattern in _UNSPACED.items()
        if 2 * len(regex.findall(pattern, sample)) > letters
    ]
