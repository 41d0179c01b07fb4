"""The options of `tt memory`; this module imports no library."""

from __future__ import annotations

import dataclasses

from tt.model.errors import UserError, checked, one_of, require, require_one_of
from tt.model.text.languages import read_language

ADD, EXPORT, SHOW = "add", "export", "show"
ACTIONS = (ADD, EXPORT, SHOW)
TMX, PARQUET = "tmx", "parquet"
EXPORTS = (TMX, PARQUET)
ALL, HUMAN, MODEL = "all", "human", "model"
KINDS = (ALL, HUMAN, MODEL)
_LANGUAGES = ("source_language", "target_language")
_USED = {  # the options of each action
    ADD: ("files", "source_column", "target_column", *_LANGUAGES),
    EXPORT: ("output", "format", "kind", "overwrite", *_LANGUAGES),
    SHOW: (),
}


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryRequest:
    """An action on a translation memory, for `tt.pipelines.memory.actions`.

    Attributes:
      action: Add human translations, export the memory to a file, or show its contents.
      files: Add the translations in these tables or TMX files.

        A table is a Parquet, CSV, TSV, JSONL or Arrow file with a column for each side. In CSV and
        TSV files, the first line names the columns.
      memory: Use the translation memory in this folder.

        `tt memory add` creates the folder if it does not exist.
      source_language: Add or export translations from the language with this code.

        Regions do not matter: en-US and en are the same language. `tt memory add` needs both
        languages, and `tt memory export` exports all languages by default.
      target_language: Add or export translations into the language with this code.
      source_column: Read the source texts from this column of a table.
      target_column: Read the human translations from this column of a table.
      format: Export the memory in this format.
      output: Export the memory to this file.
      kind: Export only human translations, or only translations of models.
      overwrite: Replace the output file if it exists.
    """

    action: str = one_of(ACTIONS)
    files: tuple[str, ...] = ()
    memory: str = "memory"
    source_language: str = ""
    target_language: str = ""
    source_column: str = "source"
    target_column: str = "target"
    format: str = one_of(EXPORTS, default=TMX)
    output: str | None = None
    kind: str = one_of(KINDS, default=ALL)
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_one_of("`action`", self.action, ACTIONS)
        require_one_of("`format`", self.format, EXPORTS)
        require_one_of("`kind`", self.kind, KINDS)
        for field in dataclasses.fields(self):
            name = field.name
            if name in ("action", "memory", *_USED[self.action]):
                continue
            if getattr(self, name) != field.default:
                raise UserError(
                    f"`{name}` has no effect with `tt memory {self.action}`. Remove the option"
                )
        for name in _LANGUAGES:
            if code := getattr(self, name):
                read_language(code, name=f"`{name}`")
        if self.action == ADD:
            require(bool(self.files), "`files` is empty. Choose tables or TMX files")
            has_both = bool(self.source_language and self.target_language)
            require(
                has_both,
                "`tt memory add` needs the languages of the translations. Set `source_language` "
                "and `target_language`",
            )
        require(
            self.action != EXPORT or bool(self.output),
            "`tt memory export` needs a file. Set `output`",
        )
