"""Folders to a report: one page that opens offline."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from model.errors import UserError, accept_one_string, require_text

if TYPE_CHECKING:  # the help of the command needs none
    from pipelines.report.page import Section


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """A report to write.

    >>> ReportRequest(folders=("run",), output="report.html").write()  # doctest: +SKIP

    Attributes:
      folders: A dataset folder, a translated folder, or one or more run folders, which are
        compared.
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
                "there is nothing to report on: name a dataset, a run, several runs, or a "
                "translated folder"
            )
        for sentence in self.sentences:
            require_text("`sentences`", sentence)
        if not self.output.endswith((".html", ".htm")):
            raise UserError(f"`output` must end in .html. Received: {self.output}")

    def check(self) -> str:
        """Checks what can be known before TensorFlow is imported; returns the kind of the folders.

        Raises:
          UserError: A folder is missing or no such one, they are of several kinds, or the output
            cannot be written.
        """
        from pipelines.report.page import check_output
        from pipelines.summaries.folders import MODEL, RUN, kind_of_folder

        kinds = {folder: kind_of_folder(folder) for folder in self.folders}
        for folder, kind in kinds.items():
            if kind == MODEL:
                raise UserError(
                    f"{folder} is a model folder: name the run folder that it lies in, or look at "
                    "it with `tt show`"
                )
        found = set(kinds.values())
        if len(found) > 1:
            told = ", ".join(f"{folder} is a {kind} folder" for folder, kind in kinds.items())
            raise UserError(f"a report is on folders of one kind: {told}. Make one for each")
        [kind] = found
        if len(self.folders) > 1 and kind != RUN:
            raise UserError(
                f"only runs are put side by side. Received: {len(self.folders)} {kind} folders; "
                "make a report for each"
            )
        is_chosen = kind == RUN and len(self.folders) == 1
        if self.sentences and not is_chosen:
            raise UserError("`sentences` are for the report of one run: leave them out")
        check_output(self.output, overwrite=self.overwrite)
        return kind

    def write(self) -> None:
        """Writes the page.

        Raises:
          UserError: See `check`; or something in a folder is damaged.
        """
        from pipelines.report.page import check_output, page, write_whole_file

        kind = self.check()
        names = ", ".join(os.path.basename(os.path.abspath(name)) for name in self.folders)  # noqa: PTH100, PTH119
        text = page(
            title=f"{kind.capitalize()}{'s' if len(self.folders) > 1 else ''}: {names}",
            lead="Made by tt report.",
            sections=self._sections(kind),
        )
        content = text.encode(errors="backslashreplace")  # names of folders may be no Unicode
        write_whole_file(check_output(self.output, overwrite=self.overwrite), content)

    def _sections(self, kind: str) -> list[Section]:
        from pipelines.summaries.folders import DATASET, TRANSLATED

        folder = self.folders[0]
        if kind == DATASET:
            from model.summaries.dataset import summarize_dataset
            from pipelines.report.dataset_part import dataset_sections

            return dataset_sections(summarize_dataset(folder))
        if kind == TRANSLATED:
            from pipelines.report.translated_part import translated_sections
            from pipelines.summaries.translated import summarize_translated

            return translated_sections(summarize_translated(folder))
        from model.summaries.run import summarize_run
        from pipelines.report.run_part import run_attention, run_sections
        from pipelines.report.runs_part import runs_sections

        runs = [summarize_run(each) for each in self.folders]
        if len(runs) > 1:
            return runs_sections(runs)
        return run_sections(runs[0], attention=run_attention(folder, runs[0], self.sentences))
