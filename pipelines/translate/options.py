"""The options of a job that translates tables."""

from __future__ import annotations

import dataclasses
import re

from tt.model.errors import checked, one_of, require, require_one_of, require_text
from tt.pipelines.streams.options import MetricsOptions
from tt.pipelines.tables.formats import (
    COMPRESSIONS,
    FORMATS,
    JSON,
    JSONL,
    LAKE_PREFIXES,
    PARQUET,
    TEXT_COMPRESSIONS,
    ReadOptions,
    output_suffix,
)
from tt.pipelines.texts.options import TRANSLATION, TextOptions
from tt.pipelines.translate.column_choice import ColumnChoice

FAIL, SKIP = "fail", "skip"
ON_BAD_FILE = (FAIL, SKIP)
REFUSE, REDO = "refuse", "redo"
CHANGED = (REFUSE, REDO)
UNIT, JOB, AUTO = "unit", "job", "auto"
DEDUPLICATE = (UNIT, JOB, AUTO)
KEEP, DELETE = "keep", "delete"
DEFAULT_TAG = "<BT>"  # the tag of Caswell et al., "Tagged Back-Translation", 2019
# The column of the translations before they become sources. The name is not "translation", because
# many tables already have a column with this name.
_OF_CORPUS = "back_translation"
REMOVED = (KEEP, DELETE)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchOptions(MetricsOptions):
    """How to repeat a job on an input that grows.

    Attributes:
      watch: Translate new files and rows at this interval, such as 30s or 5m, until SIGTERM.
    """

    watch: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        found = self.watch is None or _DURATION.fullmatch(self.watch)
        rule = "`watch` must be a number of seconds, minutes or hours, such as 30s, 5m or 1h"
        require(bool(found) and self.seconds != 0, rule, self.watch)
        has_metrics = self.metrics_port is not None or self.metrics_file is not None
        require(
            self.watch is not None or not has_metrics,
            "`metrics_port` and `metrics_file` need `watch`. Set `watch`, or remove them",
        )

    @property
    def seconds(self) -> float | None:
        """The seconds between two looks at the input; None if the job runs only once."""
        if self.watch is None or not (found := _DURATION.fullmatch(self.watch)):
            return None
        return float(found[1]) * _SECONDS[found[2]]


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class BackTranslation:
    """How to make the pairs of a corpus from texts and their translations.

    Attributes:
      tag: Put this tag and a space in front of each source; '' for no tag.
    """

    tag: str = DEFAULT_TAG

    def __post_init__(self) -> None:
        require_text("`tag`", self.tag)
        rule = "`tag` must not begin or end with a space, or contain a tab or a line break"
        require(self.tag == " ".join(self.tag.split()), rule, repr(self.tag))


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """The input, the output and the options of a job that translates tables.

    Attributes:
      input: Translate these files, folders or globs of Parquet, CSV, TSV, JSONL, Arrow or text.

        They can be on an object store. The ending of a file determines its
        format unless `input_format` is set, and files with unknown endings are read as Parquet.
        CSV, TSV, JSONL, JSON and text files may be compressed (.gz, .bz2 or .zst). A text file ends
        in .txt, and each of its lines is a row with the column "text". A folder stands for all
        files with known endings except .txt and .json in it, at any depth. delta:PATH is a table of
        Delta Lake, and iceberg:CATALOG.NAMESPACE.TABLE is a table of Iceberg. Append @VERSION or
        @SNAPSHOT to translate an earlier state of the table.
      output: Write the translated files to this folder; repeat the command to resume the job.

        An output file is finished if its size and checksum are correct; the checksum covers only
        the footer of a Parquet file. With delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE, the job
        adds all rows to this table in one commit at its end, and creates the table if necessary.
      overwrite: First delete the files of a finished or different job in `output`.

        An unfinished job with the same options is resumed instead. `tt` refuses a folder with files
        that no job wrote.
      format: Write output files in this format.

        It is "parquet", "jsonl" or "csv". `tt` refuses the job if the format cannot store a column.
      compression: Compress output files. By default "zstd" for Parquet, "none" for JSONL and CSV.

        For Parquet it is "zstd", "snappy", "gzip", "brotli", "lz4" or "none"; for JSONL and CSV,
        "zstd", "gzip" or "none".
      text_columns: Translate this column; repeatable. By default the only column of strings.

        A column may contain strings or lists of strings. A dot names a field of a struct, such as
        product.title.
      source_language_column: Read the source language of each row from this column.

        The column contains language codes as strings, for models with several source languages. If
        a value is null, `texts.source_language` applies.
      target_language_column: Read the target language of each row from this column.

        The column contains language codes as strings, for models with several target languages. If
        a value is null, `texts.target_language` applies.
      where: Translate only the rows for which this condition in DuckDB's SQL is true.

        An example is "lang = 'en' AND length(body) > 10". All other rows get the status "skipped"
        and no translation. The condition can use all columns of a row, and the partition columns of
        folders such as year=2024/. It cannot contain subqueries, aggregates, or functions of the
        time or of chance.
      output_column: Write translations to this column; the names of all new columns start with it.
      keep_columns: Write only these input columns, separated by commas; repeatable.

        The output always has the new columns. By default, it has all input columns.
      drop_columns: Do not write these input columns, separated by commas; repeatable.

        Even a text column can be left out.
      limit: Translate only the first N rows.
      unit_rows: Put at most N rows into a unit of work, which becomes one output file.
      max_failed: Exit with code 1 if over this share of the rows fails or is in skipped files.

        The output is complete even then.
      retry_failed: Translate the failed rows and skipped units of a finished `output` again.

        In JSONL and CSV output, whole units with failed rows are translated again.
      memory: Reuse and store translations in this folder, the translation memory.

        It can be on an object store, and several jobs can use it at once. The
        memory returns translations of the same model with the same options. Human translations
        that `tt memory add` has added replace the translations of the model.
      deduplicate: Translate equal sentences once per unit or job; auto estimates what is faster.

        "job" first translates each distinct sentence of the whole job, and needs more memory on
        this machine. "auto" chooses "job" if a sample shows that at least 20 % of the sentences
        occur in several units.
      on_bad_file: Stop if a file is damaged or lacks a column ("fail"), or "skip" the file.
      key: Compare rows by this column instead of files; repeatable.

        A key can have several columns. If you run the same command on a changed input, a row whose
        key and texts are unchanged keeps its translation and its status, and all other rows are
        translated. The output then has exactly the rows of the new input.
      changed: Refuse to continue if an input file changed since the last run, or redo the file.
      removed: Keep or delete the translations of removed files. By default keep; for tables delete.

        The output of a Delta Lake or Iceberg table always has exactly the rows of the table.
      read: How the input files are read.
      texts: How texts are translated.
      corpus: How to make a corpus of pairs, as `tt back-translate` does; None for tables.

        The output then has only the columns "source", with the translations, and "target", with
        the texts. It has only rows with the status ok or from_memory, and without flags.
    """

    input: tuple[str, ...]
    output: str
    overwrite: bool = False
    format: str = one_of(FORMATS, default=PARQUET)
    compression: str | None = one_of(COMPRESSIONS, default=None)
    text_columns: tuple[str, ...] = ()
    source_language_column: str | None = None
    target_language_column: str | None = None
    where: str | None = None
    output_column: str = TRANSLATION
    keep_columns: tuple[str, ...] = ()
    drop_columns: tuple[str, ...] = ()
    limit: int | None = None
    unit_rows: int = 8192
    max_failed: float = 0.001
    retry_failed: bool = False
    memory: str | None = None
    deduplicate: str = one_of(DEDUPLICATE, default=AUTO)
    on_bad_file: str = one_of(ON_BAD_FILE, default=FAIL)
    key: tuple[str, ...] = ()
    changed: str = one_of(CHANGED, default=REFUSE)
    removed: str | None = one_of(REMOVED, default=None)
    read: ReadOptions = dataclasses.field(default_factory=ReadOptions)
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)
    corpus: BackTranslation | None = None

    def __post_init__(self) -> None:
        require(bool(self.input), "`input` is empty. Choose files, folders or globs")
        require(bool(self.output), "`output` is empty. Choose a folder")
        require(bool(self.output_column), "`output_column` must be the name of a column")
        chosen = self.column_choice
        object.__setattr__(self, "keep_columns", chosen.keep)
        object.__setattr__(self, "drop_columns", chosen.drop)
        require(self.unit_rows >= 1, "`unit_rows` must be at least 1", self.unit_rows)
        require(
            self.limit is None or self.limit >= 1,
            "`limit` must be at least 1; remove it to translate all rows",
            self.limit,
        )
        require_one_of("`format`", self.format, FORMATS)
        is_parquet = self.format == PARQUET
        if self.compression is None:
            object.__setattr__(self, "compression", "zstd" if is_parquet else "none")
        known = COMPRESSIONS if is_parquet else tuple(TEXT_COMPRESSIONS)
        name = "`compression`" if is_parquet else f"`compression` of {self.format}"
        require_one_of(name, self.compression, known)
        require_one_of("`deduplicate`", self.deduplicate, DEDUPLICATE)
        require_one_of("`on_bad_file`", self.on_bad_file, ON_BAD_FILE)
        require_one_of("`changed`", self.changed, CHANGED)
        self._choose_removed()
        require(
            0 <= self.max_failed <= 1,  # not NaN
            "`max_failed` must be a share of the rows, from 0 to 1",
            self.max_failed,
        )
        for option, names in (("text_columns", self.text_columns), ("key", self.key)):
            twice = sorted({name for name in names if names.count(name) > 1})
            require(
                not twice, f"`{option}` must name each column once", f"{', '.join(twice)} twice"
            )
        is_whole = self.limit is None or not self.key
        require(is_whole, "`key` compares whole tables. Remove `limit`", self.limit)
        rule = f"`key` needs the format {PARQUET}. Remove `format`, or compare files without `key`"
        require(is_parquet or not self.key, rule, self.format)
        require(
            not (self.overwrite and self.retry_failed),
            "`overwrite` deletes the translations that `retry_failed` needs. Remove either option",
        )
        if self.corpus is not None:
            self._check_corpus()
            object.__setattr__(self, "output_column", _OF_CORPUS)

    def _choose_removed(self) -> None:
        tables = sum(argument.startswith(LAKE_PREFIXES) for argument in self.input)
        rule = "`input_format` cannot be combined with tables of Delta Lake or Iceberg"
        require(not tables or self.read.input_format is None, rule, self.read.input_format)
        if self.removed is None and tables in (0, len(self.input)):
            object.__setattr__(self, "removed", DELETE if tables else KEEP)
        rule = (
            "the output of a table contains exactly the rows of the table. Set `removed=delete`, "
            "or translate other files into a separate output"
        )
        require(self.removed == DELETE or not tables, rule, self.removed)
        require_one_of("`removed`", self.removed, REMOVED)

    def _check_corpus(self) -> None:
        count = len(self.text_columns)
        require(count <= 1, "a corpus needs one text column. Set `text_columns` once", count)
        rule = f"a corpus needs the format {PARQUET}. Remove `format`"
        require(self.format == PARQUET, rule, self.format)
        rule = "a corpus has no other columns. Remove `keep_columns` and `drop_columns`"
        require(not self.column_choice, rule)
        require(not self.key, "a corpus cannot be compared by `key`. Remove `key`")

    def keeps_lines(self, path: str) -> bool:
        """Return whether the output contains the lines of a JSONL file, with added keys."""
        found = self.read.format_of(path)
        is_json = found is not None and found.name in (JSONL, JSON)
        return self.format == JSONL and is_json and not self.column_choice

    @property
    def column_choice(self) -> ColumnChoice:
        """The input columns that the output contains."""
        return ColumnChoice.of(keep=self.keep_columns, drop=self.drop_columns)

    @property
    def suffix(self) -> str:
        """The suffix of the output files."""
        return output_suffix(file_format=self.format, compression=str(self.compression))
