"""The options of a translation of tables."""

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
    """What to translate, and where to.

    Attributes:
      input: Files, globs, or folders of them, on any file system: Parquet, CSV, TSV, JSONL (also
        .gz, .bz2, .zst), Arrow IPC.

        The ending tells the format; another ending is Parquet. In a folder every file with one of
        these endings counts, at any depth.
      output: Folder to write; the same request again resumes it. What is finished is known by its
        size and footer, or the checksum of JSONL and CSV.
      overwrite: Delete what a job has left in `output`, unless it is this one, unfinished: that
        goes on. A folder with other files in it is refused.
      format: Format of the output files: "parquet", "jsonl", or "csv"; refused where it cannot hold
        a column.
      compression: Compression of the output files: "zstd", "snappy", "gzip", "brotli", "lz4" or
        "none"; of JSONL and CSV "zstd", "gzip" or "none". By default "zstd" of Parquet, "none" of
        the others.
      text_columns: Column to translate, of strings or of lists of strings, or a field of a struct
        (product.title); repeatable. By default the only column of strings.
      target_language_column: Column of strings with the code of the language to translate each row
        into, for models of several languages; where it is null, `texts.target_language` holds.
      limit: Translate only so many rows, the first of all: to try.
      unit_rows: Most rows of a unit of work, which are rows of one file and make one output file.
      max_failed: Share of rows that may fail or be skipped; with more the run has failed, and the
        exit code is 1.
      retry_failed: Translate the failed rows of a finished `output` again, and no others; of JSONL
        and CSV the units that have any.
      on_bad_file: What becomes of a file that is damaged, not of its format or without the column:
        "fail" ends the run, "skip" leaves the file out.
      texts: How texts are treated.
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
    on_bad_file: str = one_of(ON_BAD_FILE, default=FAIL)
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        accept_one_string(self)
        require(bool(self.input), "`input` is empty: name files, folders or globs")
        require(bool(self.output), "`output` is empty: name a folder")
        require(self.unit_rows >= 1, "`unit_rows` must be at least 1", self.unit_rows)
        require(
            self.limit is None or self.limit >= 1,
            "`limit` must be at least 1; leave it out to translate all rows",
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
            "`max_failed` must be a share of the rows, 0 to 1",
            self.max_failed,
        )
        twice = sorted({name for name in self.text_columns if self.text_columns.count(name) > 1})
        require(
            not twice, "each of `text_columns` must be another column", f"{', '.join(twice)} twice"
        )
        require(
            not (self.overwrite and self.retry_failed),
            "`overwrite` starts again and `retry_failed` keeps what is there: choose one",
        )

    @property
    def suffix(self) -> str:
        """Suffix of the output files."""
        return output_suffix(file_format=self.format, compression=str(self.compression))
