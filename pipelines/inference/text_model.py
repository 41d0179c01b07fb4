"""A model with everything that it needs to translate texts: options, a glossary and limits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from tt.model.engines.translator import Languages, Translator, Work
from tt.model.errors import UserError
from tt.model.formats.model_card import About
from tt.model.storage import paths
from tt.model.storage.files import read_bytes
from tt.model.text.glossary import Glossary, read_glossary
from tt.model.text.languages import find_language
from tt.pipelines.texts.explaining import explain
from tt.pipelines.texts.flags import Limits
from tt.pipelines.texts.known import Memory
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import FAILED, NULL, TermCounts, TranslatedText, TranslatedTexts
from tt.pipelines.texts.translating import find_sentences, translate_texts


@dataclasses.dataclass(frozen=True)
class NamedGlossary:
    """The path of a glossary, which each worker reads; the job itself does not contain the terms.

    Attributes:
      path: Absolute path or URL of the file.
      digest: Digest of the glossary when the job started.
    """

    path: str
    digest: str

    @classmethod
    def of(cls, path: str | None) -> NamedGlossary | None:
        """Read and check the glossary at a path; return None if the path is None.

        Raises:
          UserError: The file is missing or is not a glossary.
        """
        if path is None:
            return None
        path = paths.normalize_path(path)
        named = cls(path, read_glossary(path, read=read_bytes).digest)
        named.read()  # caches the terms for workers in this process
        return named

    def read(self) -> Glossary:
        """Return the glossary, which each process reads only once.

        Raises:
          UserError: The file cannot be read on this worker, or differs from the file that the job
            started with.
        """
        return _read_same(self.path, self.digest)


@functools.lru_cache(maxsize=8)
def _read_same(path: str, digest: str) -> Glossary:
    glossary = read_glossary(path, read=read_bytes)
    if glossary.digest != digest:
        raise UserError(
            f"the file `glossary` {path} on this worker differs from the file that the job started "
            "with. Copy the same file to all workers, or use a file on shared storage"
        )
    return glossary


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextModel:
    """Translates texts with a model, options, a glossary, limits and a translation memory."""

    translator: Translator
    options: TextOptions  # after `for_model`, which adds the defaults of the model
    glossary: Glossary | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)
    memory: Memory | None = None

    @classmethod
    def of(
        cls,
        translator: Translator,
        *,
        about: About,
        options: TextOptions,
        glossary: NamedGlossary | None,
    ) -> TextModel:
        """Combine a translator with the information in its folder.

        Args:
          translator: The translator.
          about: The model card.
          options: Options for texts.
          glossary: The glossary, if there is one.

        Raises:
          UserError: The glossary cannot be read on this worker.
        """
        return cls(
            translator=translator,
            options=options.for_model(about.data),
            glossary=None if glossary is None else glossary.read(),
            limits=Limits.of(options.name_languages(about)),
        )

    def between(self, languages: Languages) -> TextModel:
        """Return this model for two languages; "" means the language in the options.

        Raises:
          UserError: The model does not have the source or the target language.
        """
        options, limits = self.options, self.limits
        source, target = languages
        if source:
            options = dataclasses.replace(options, source_language=source)
            limits = dataclasses.replace(limits, source_language=source)
        if target:
            known = find_language(target)
            options = dataclasses.replace(options, target_language=target)
            script = known.script if known else ""
            limits = dataclasses.replace(limits, target_script=script, target_language=target)
        self.translator.prepare([], languages=(options.source_language, options.target_language))
        return dataclasses.replace(self, options=options, limits=limits)

    def find_sentences(self, texts: Sequence[bytes | None]) -> set[str]:
        """Return the sentences of texts; see `find_sentences`."""
        return find_sentences(texts, **self._settings)

    def explain(self, text: str | bytes) -> Iterator[str]:
        """Yield lines that explain the translation of a text; see `explain`."""
        return explain(
            text,
            translator=self.translator,
            options=self.options,
            glossary=self.glossary,
            limits=self.limits,
            memory=self.memory,
        )

    def translate(self, texts: Sequence[str | bytes | None]) -> TranslatedTexts:
        """Translate texts; see `translate_texts`."""
        return translate_texts(texts, limits=self.limits, **self._settings)

    @property
    def _settings(self) -> dict[str, Any]:
        names = ("translator", "options", "glossary", "memory")
        return {name: getattr(self, name) for name in names}


def translate_by_language(
    cells: Sequence[bytes | None], codes: Sequence[Languages], *, model: TextModel
) -> TranslatedTexts:
    """Translate each text between the languages of its row; see `translate_texts`.

    A text fails if the model does not have its languages.

    Args:
      cells: Bytes of the text, or None, for each row.
      codes: Codes of both languages for each row; "" means the language in the options.
      model: The model.

    Raises:
      Exception: An error that no text has caused; see `translate_texts`.
    """
    made: dict[int, TranslatedText] = {}
    sums: dict[str, Any] = {
        "texts": 0, "distinct_texts": 0, "source_characters": 0, "work": Work(),
        "terms": TermCounts(), "remembered_texts": 0, "learned": (),
    }  # fmt: skip
    places_of: dict[Languages, list[int]] = {}
    for place, code in enumerate(codes):
        places_of.setdefault(code, []).append(place)
    for code, places in places_of.items():
        try:
            own = model.between(code)
        except UserError as error:  # the model does not have these languages
            failed = TranslatedText(status=FAILED, error=str(error))
            null = TranslatedText(status=NULL)
            made |= {i: null if cells[i] is None else failed for i in places}
        else:
            found = own.translate([cells[i] for i in places])
            made |= zip(places, found.translations, strict=True)
            sums = {name: total + getattr(found, name) for name, total in sums.items()}
    return TranslatedTexts(translations=[made[i] for i in range(len(cells))], **sums)
