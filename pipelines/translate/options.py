"""The options of a job that translates tables."""

from __future__ import annotations

import dataclasses

from tt.model.errors import accept_one_string, one_of, require, require_one_of
from tt.pipelines.tables.finding import (
    COMPRESSIONS,
    FORMATS,
    PARQUET,
    TEXT_COMPRESSIONS,
    output_suffix,
)
from tt.pipelines.texts.options import TextOptions

FAIL, SKIP = "fail", "skip"
ON_BAD_FILE = (FAIL, SKIP)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions:
    """The input, the output and the options of a job that translates tables.

    Attributes:
      input: Translate these files, folders or globs of Parquet, CSV, TSV, JSONL or Arrow.

        They can be on any file system that Beam supports. The ending of a file determines its
        format, and files with unknown endings are read as Parquet. CSV, TSV and JSONL files may be
        compressed (.gz, .bz2 or .zst). A folder stands for all files with known endings in it, at
        any depth.
      output: Write the translated files to this folder; repeat the command to resume the job.

        An output file is finished if its size and checksum are correct; the checksum covers only
        the footer of a Parquet file.
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
      target_language_column: Read the target language of each row from this column.

        The column contains language codes as strings, for models with several target languages. If
        a value is null, `texts.target_language` applies.
      limit: Translate only the first N rows.
      unit_rows: Put at most N rows into a unit of work, which becomes one output file.
      max_failed: Exit with code 1 if a larger share of the rows fails or is skipped.

        The output is complete even then.
      retry_failed: Translate the failed rows and skipped units of a finished `output` again.

        In JSONL and CSV output, whole units with failed rows are translated again.
      memory: Reuse and store translations in this folder, the translation memory.

        It can be on any file system that Beam supports, and several jobs can use it at once. The
        memory returns translations of the same model with the same options. Human translations
        that `tt memory add` has added replace the translations of the model.
      on_bad_file: Stop if a file is damaged or lacks a column ("fail"), or "skip" the file.
      texts: How texts are translated.
    """

    input: tuple[str, ...]
    output: str
    overwrite: bool = False
    format: str = one_of(FORMATS, default=PARQUET)
    compression: str | None = one_of(COMPRESSIONS, default=None)
    text_columns: tuple[str, ...] = ()
    target_language_column: str | None = None
    limit: int | None = None
    unit_rows: int = 8192
    max_failed: float = 0.001
    retry_failed: bool = False
    memory: str | None = None
    on_bad_file: str = one_of(ON_BAD_FILE, default=FAIL)
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        accept_one_string(self)
        require(bool(self.input), "`input` is empty. Choose files, folders or globs")
        require(bool(self.output), "`output` is empty. Choose a folder")
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
        require_one_of("`on_bad_file`", self.on_bad_file, ON_BAD_FILE)
        require(
            0 <= self.max_failed <= 1,  # not NaN
            "`max_failed` must be a share of the rows, from 0 to 1",
            self.max_failed,
        )
        twice = sorted({name for name in self.text_columns if self.text_columns.count(name) > 1})
        require(not twice, "`text_columns` must name each column once", f"{', '.join(twice)} twice")
        require(
            not (self.overwrite and self.retry_failed),
            "`overwrite` deletes the translations that `retry_failed` needs. Remove either option",
        )

    @property
    def suffix(self) -> str:
        """The suffix of the output files."""
        return output_suffix(file_format=self.format, compression=str(self.compression))
