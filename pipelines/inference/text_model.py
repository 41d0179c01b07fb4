"""A model with what it needs to translate texts: their options, a glossary, and what is usual."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence

from model.engines.translator import Translator
from model.errors import UserError
from model.formats.model_card import About
from model.text.glossary import Glossary, read_glossary
from pipelines.inference.model_loading import ModelLoader
from pipelines.storage import paths
from pipelines.storage.files import read_bytes
from pipelines.texts.limits import Limits
from pipelines.texts.options import TextOptions
from pipelines.texts.translating import TranslatedTexts, translate_texts

_LOGGER = logging.getLogger(__name__)
_said: set[str] = set()  # warnings of this process
_glossary_lock = threading.Lock()
_glossaries: dict[str, Glossary] = {}  # the last ones of this process, by their digests
_KEPT_GLOSSARIES = 8


def load_glossary(path: str | None) -> Glossary | None:
    """Reads the glossary of `TextOptions`, from any file system that Beam knows.

    Raises:
      UserError: It is missing, or not a glossary.
    """
    if path is None:
        return None
    return read_glossary(path, read=lambda name: read_bytes(paths.normalize_path(name)))


@dataclasses.dataclass(frozen=True)
class NamedGlossary:
    """A glossary by its file, for workers to read: a job need not carry its terms.

    Attributes:
      path: The file, absolute or with its scheme.
      digest: The glossary's digest where the job starts.
    """

    path: str
    digest: str

    @classmethod
    def of(cls, path: str | None) -> NamedGlossary | None:
        """Reads the glossary of `TextOptions`, if there is one, to see that it is good.

        Raises:
          UserError: It is missing, or not a glossary.
        """
        glossary = load_glossary(path)
        if path is None or glossary is None:
            return None
        with _glossary_lock:  # the workers of this process need not read it again
            _keep(glossary)
        return cls(paths.normalize_path(path), glossary.digest)

    def read(self) -> Glossary:
        """Reads the glossary, once a process: threads share its terms.

        Raises:
          UserError: It cannot be read here, or is another one than where the job started.
        """
        with _glossary_lock:
            if self.digest not in _glossaries:
                glossary = load_glossary(self.path)
                if glossary is None or glossary.digest != self.digest:
                    raise UserError(
                        f"`glossary` {self.path} is another one on this worker than where the job "
                        "started: put the same file there, or name one that all can read"
                    )
                _keep(glossary)
            return _glossaries[self.digest]


def _keep(glossary: Glossary) -> None:
    _glossaries.pop(glossary.digest, None)
    while len(_glossaries) >= _KEPT_GLOSSARIES:
        del _glossaries[next(iter(_glossaries))]
    _glossaries[glossary.digest] = glossary


def encode_text(text: str | bytes | None) -> bytes | None:
    """Returns the bytes of a text; those of half a character are not UTF-8, and fail later."""
    return text.encode(errors="surrogatepass") if isinstance(text, str) else text


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextModel:
    """Texts to translations."""

    translator: Translator
    options: TextOptions  # with the model's language and placeholders, if none were given
    glossary: Glossary | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)

    @classmethod
    def of(
        cls,
        translator: Translator,
        *,
        load: Callable[[], Translator],
        options: TextOptions,
        glossary: NamedGlossary | None,
    ) -> TextModel:
        """Takes what the folder of a model says of it, and warns where the options do not fit it.

        Args:
          translator: What was loaded.
          load: What loaded it; of another than a `ModelLoader` nothing is known of the model.
          options: How texts are treated.
          glossary: Terms whose translations are given.

        Raises:
          UserError: A length is beyond the model, or the glossary cannot be read here.
        """
        about = About()
        if isinstance(load, ModelLoader):
            about, warnings = load.describe(options)
            for line in warnings:
                if line not in _said:  # once a process, not once a thread
                    _said.add(line)
                    _LOGGER.warning(line)
        return cls(
            translator=translator,
            options=options.for_model(about.data),
            glossary=None if glossary is None else glossary.read(),
            limits=Limits.of(options.name_languages(about)),
        )

    def translate(self, texts: Sequence[str | bytes | None]) -> TranslatedTexts:
        """Translates texts; see `translate_texts`."""
        return translate_texts(
            [encode_text(text) for text in texts],
            translator=self.translator,
            options=self.options,
            glossary=self.glossary,
            limits=self.limits,
        )
