"""Look up and store translations during a job."""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tt.model.engines.translator import Languages, Translation
from tt.model.storage.paths import normalize_path
from tt.model.text.languages import language_and_script
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_loading import FoundModel
from tt.pipelines.memory.entries import (
    complete,
    learned_table,
    merge_units,
    now,
    read_human,
    write_unit,
)
from tt.pipelines.memory.index import MemoryIndex
from tt.pipelines.memory.keys import Keys, model_context
from tt.pipelines.texts.known import Learned
from tt.pipelines.texts.options import TextOptions

_LANGUAGES = ("source_language", "target_language")
_LOGGER = logging.getLogger(__name__)
_opening = threading.Lock()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationMemory:
    """The memory of a job, for one model with fixed options; see `Memory`.

    The object contains no entries, so a job can send it to its workers. Each process updates the
    local index once per run.

    Attributes:
      folder: The folder of the memory, absolute or with its scheme.
      context: The result of `model_context`.
      source_language: The code of the source language; "" if it is unknown.
      target_language: The code of the model's target language; "" if it is unknown.
      job: The digest of the job's plan.
      run_id: The name of this run.
      is_temporary: Whether the memory belongs to this job, which deletes it at its end.
    """

    folder: str
    context: str
    source_language: str
    target_language: str
    job: str
    run_id: str
    is_temporary: bool = False

    @classmethod
    def of(
        cls,
        folder: str | None,
        *,
        model: FoundModel,
        decoding: Decoding,
        texts: TextOptions,
        job: str,
        run_id: str,
        is_temporary: bool = False,
    ) -> TranslationMemory | None:
        """Return the memory in a folder for a model; None if the folder is None.

        Args:
          folder: The folder that the user gave.
          model: The model.
          decoding: The options of the search.
          texts: The options for texts, after `for_model`.
          job: The digest of the job's plan.
          run_id: The name of this run.
          is_temporary: Whether the memory belongs to this job, which deletes it at its end.
        """
        if folder is None:
            return None
        data = texts.name_languages(model.about).data
        return cls(
            folder=normalize_path(folder).rstrip("/"),
            context=model_context(
                fingerprint=model.fingerprint, engine=model.engine, decoding=decoding
            ),
            source_language=data.source_language,
            target_language=data.target_language,
            job=job,
            run_id=run_id,
            is_temporary=is_temporary,
        )

    def prepare(self, report: Callable[[str], object]) -> None:
        """Update the index on this machine before the job starts.

        Args:
          report: Receives a line for each problem.

        Raises:
          UserError: The memory cannot be read, or the index cannot be written.
        """
        index = MemoryIndex(self.folder, is_temporary=self.is_temporary)
        index.update()
        for problem in index.problems():
            report(f"tt: warning: {_describe(problem)}")
        if index.has_corrections and not (self.source_language and self.target_language):
            report(
                "tt: warning: tt cannot use the human translations in the memory, because the "
                "model does not name its languages. Set `source_language` and `target_language`"
            )

    @property
    def languages(self) -> Languages:
        """The codes of the languages of texts that name none, or ""."""
        return self.source_language, self.target_language

    def find_translations(
        self, texts: Collection[str], *, languages: Languages
    ) -> Mapping[str, Translation]:
        """Return the model's earlier translations of those texts that the memory contains."""
        keys = Keys.of_model(self.context, complete(languages, self.languages))
        by_key = {keys.make(text): text for text in texts}
        found = self._index.find_translations(list(by_key))
        return {by_key[key]: translation for key, translation in found.items()}

    def find_corrections(self, texts: Iterable[str], *, languages: Languages) -> Mapping[str, str]:
        """Return the human translations of those texts that the memory contains."""
        own = complete(languages, self.languages)
        if not (self._index.has_corrections and all(own)):
            return {}
        keys = Keys.of_people(own)
        by_key = {keys.make(text): text for text in texts}
        found = self._index.find_corrections(list(by_key))
        return {by_key[key]: correction for key, correction in found.items()}

    def count_corrections(self, *, after: float) -> int:
        """Count the human translations for this job that were added after a time.

        Args:
          after: The time, in seconds since 1970.
        """
        if not all(self.languages):
            return 0
        wanted = [language_and_script(code) for code in self.languages]
        return sum(
            [language_and_script(code) for code in pair] == wanted
            for batch in read_human(self.folder, after=after)
            for pair in zip(*(batch[name].to_pylist() for name in _LANGUAGES), strict=True)
        )

    def store(self, learned: Sequence[Learned]) -> None:
        """Write the new translations of a unit to the memory.

        Raises:
          UserError: The memory cannot be written.
        """
        table = learned_table(
            learned,
            context=self.context,
            languages=self.languages,
            created=now(),
        )
        write_unit(table, folder=self.folder, job=self.job)

    def merge(self) -> None:
        """Merge the files of the job's units; the last step of the job."""
        merge_units(self.folder, job=self.job)

    def delete_index(self) -> None:
        """Delete the index on this machine."""
        MemoryIndex(self.folder, is_temporary=self.is_temporary).delete()

    @property
    def _index(self) -> MemoryIndex:
        with _opening:  # the threads of a process share one index
            return _open_index(self.folder, self.run_id, self.is_temporary)


@functools.lru_cache(maxsize=4)
def _open_index(folder: str, run_id: str, is_temporary: bool) -> MemoryIndex:
    index = MemoryIndex(folder, is_temporary=is_temporary)
    for problem in index.update():
        _LOGGER.warning(_describe(problem))  # `prepare` did not run on this machine
    return index


def _describe(problem: str) -> str:
    return f"{problem}, so `memory` does not use this file"
