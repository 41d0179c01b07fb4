"""The model of a job: found and checked where the job starts, loaded in each worker process."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from tt.model.engines.loading import check_engine, load_translator
from tt.model.engines.translator import Engine, Translator
from tt.model.errors import UserError, accept_one_string, require
from tt.model.folders import default_cache
from tt.model.formats.foreign import is_foreign, open_foreign
from tt.model.formats.model_card import About, TrainingData
from tt.model.formats.model_folder import is_ctranslate2, load_about, model_fingerprint
from tt.model.text.languages import are_different, read_language
from tt.model.transformer.search_options import Decoding
from tt.pipelines.storage.object_stores import look_first
from tt.pipelines.storage.paths import is_local, normalize_path
from tt.pipelines.texts.languages import describe_other_language
from tt.pipelines.texts.options import TextOptions

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CustomModel:
    """A translator of your own, in place of a model folder.

    Attributes:
      load: Makes the translator, once in each worker process; must pickle.
      fingerprint: Digest of all that its translations depend on.
      name: Name of its engine.
    """

    load: Callable[[], Translator]
    fingerprint: str
    name: str = "custom"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """A job that a model is asked for.

    Attributes:
      model: Model folder, run folder or export for CTranslate2, on any file system that Beam knows;
        or a translator of your own.
      decoding: How to search.
      engine: Engine that computes; not used with a translator of your own.
      beam: Beam's own flags.
    """

    model: str | CustomModel
    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    engine: Engine = dataclasses.field(default_factory=Engine)
    beam: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        accept_one_string(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundModel:
    """A model that is there.

    Attributes:
      folder: Model folder on this machine; None of a `CustomModel`.
      fingerprint: Digest of all that its translations depend on.
      engine: What computes, and how, as a plan has it.
      about: What it is.
    """

    folder: Path | None
    fingerprint: str
    engine: dict[str, Any]
    about: About = dataclasses.field(default_factory=About)

    @property
    def size(self) -> int:
        """Bytes of its files; 0 of a `CustomModel`."""
        if self.folder is None:
            return 0
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    @property
    def data(self) -> TrainingData:
        """What it was trained on."""
        return self.about.data

    @property
    def languages(self) -> dict[str, str]:
        """The codes of its languages, as a plan has them."""
        if self.folder is None:
            return {}
        return {"source": self.data.source_language, "target": self.data.target_language}

    def check(self, *, name: str | CustomModel, **settings: Any) -> list[str]:
        """Check that the model can translate texts, and return warnings; see `check_model`.

        Nothing is known of a `CustomModel`.

        Raises:
          UserError: It cannot.
        """
        if self.folder is None:
            return []
        return check_model(self.folder, name=str(name), data=self.data, **settings)

    def loader(
        self, model: str | CustomModel, *, decoding: Decoding, engine: Engine, threads: int
    ) -> Callable[[], Translator]:
        """Return the loader of this model for workers, which may have another working folder.

        Args:
          model: The model that the user named.
          decoding: How to search.
          engine: The engine that translates.
          threads: Threads of a translation; see `load_translator`.
        """
        if isinstance(model, CustomModel):
            return model.load
        return ModelLoader(
            folder=str(self.folder.absolute()) if self.folder and is_local(model) else model,
            decoding=decoding,
            engine=engine,
            threads=threads,
            fingerprint=self.fingerprint,
        )


def find_model(
    model: str | CustomModel, *, engine: Engine, report: Callable[[str], object]
) -> FoundModel:
    """Find a model, and copies one of another file system to the cache.

    Args:
      model: Model folder, run folder or export for CTranslate2, of any file system that Beam
        knows; or a translator of the user's own.
      engine: What computes a model folder's translations.
      report: Takes a line that says what is copied, if anything is.

    Raises:
      UserError: It is missing or cannot be read.
    """
    if isinstance(model, CustomModel):
        return FoundModel(folder=None, fingerprint=model.fingerprint, engine={"name": model.name})
    from tt.pipelines.runners.staging import stage_model  # imports Beam, which takes seconds

    look_first([model])
    folder = stage_model(model, cache=default_cache(), report=report)
    return FoundModel(
        folder=folder,
        fingerprint=model_fingerprint(folder),
        engine=choose_engine(folder, engine).as_json(),
        about=load_about(folder),
    )


def choose_engine(folder: Path | None, engine: Engine) -> Engine:
    """Return the engine that computes a model's translations, by its name."""
    is_export = folder is not None and is_ctranslate2(folder)
    return engine.for_model(is_ctranslate2=is_export)


def check_model(
    folder: Path,
    *,
    name: str,
    decoding: Decoding,
    engine: Engine,
    texts: TextOptions,
    data: TrainingData,
    has_target: bool = True,
    is_here: bool = True,
) -> list[str]:
    """Check that an engine can translate texts with a model; returns warnings.

    Args:
      folder: Model folder, run folder or export for CTranslate2.
      name: What the user calls it.
      decoding: How to search.
      engine: What computes.
      texts: How texts are treated.
      data: What the model was trained on.
      has_target: Whether there is one target language; else each row names its own.
      is_here: Whether this machine translates.

    Raises:
      UserError: The engine is not installed, the model is not for it, a length is beyond it, or it
        has not the languages.
    """
    longest = texts.max_source_tokens
    check_engine(
        folder, decoding=decoding, engine=engine, max_source_tokens=longest, is_here=is_here
    )
    source, target = texts.source_language or data.source_language, texts.target_language
    foreign = open_foreign(folder) if is_foreign(folder) else None
    if foreign is not None:
        foreign.check(source=source, target=target, has_target=has_target)
    if foreign is None or not foreign.tokenization.has_target_language:
        require(
            has_target,
            "`target_language_column` is for models of several languages, and this one has two: "
            "leave it out",
        )
        if target:
            read_language(target, name="`target_language`")
        require(
            not are_different(target, data.target_language),
            f"`target_language` is {target}, and the model translates to {data.target_language} "
            "alone: leave it out, or name another model",
        )
    return describe_other_language(texts.source_language, data=data)


@dataclasses.dataclass(frozen=True)
class ModelLoader:
    """Loads a model in the worker, into which it is copied first; engines are imported there.

    Attributes:
      folder: A model folder, run folder or export for CTranslate2, of any file system that Beam
        knows.
      decoding: How to search.
      engine: What computes.
      threads: Threads of a translation; see `load_translator`.
      fingerprint: Fingerprint of the model that was planned; None takes any model.
    """

    folder: str
    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    engine: Engine = dataclasses.field(default_factory=Engine)
    threads: int = 0
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        # Workers may have another working folder.
        object.__setattr__(self, "folder", normalize_path(self.folder))

    def find_state(self) -> Hashable:
        """Return what changes with the model's files: their names, sizes and times of change.

        Of a folder of another file system it is the name of its copy, which tells the content: the
        times of the copy change whenever another process copies the same files.

        Raises:
          UserError: There is none, or it cannot be copied.
        """
        folder = self._stage()
        if not is_local(self.folder):
            return folder.name
        files = [(str(path), path.stat()) for path in folder.rglob("*") if path.is_file()]
        return tuple(sorted((name, each.st_size, each.st_mtime_ns) for name, each in files))

    def describe(self, texts: TextOptions) -> tuple[About, list[str]]:
        """Return what the model is, and warnings where it does not suit the options of texts.

        Raises:
          UserError: As `check_model`.
        """
        folder = self._stage()
        about = load_about(folder)
        return about, check_model(
            folder,
            name=self.folder,
            decoding=self.decoding,
            engine=self.engine,
            texts=texts,
            data=about.data,
        )

    def __call__(self) -> Translator:
        """Load the model.

        Raises:
          UserError: It is missing, cannot be read, not for the engine, or not the planned one.
        """
        folder = self._stage()
        found = None if self.fingerprint is None else model_fingerprint(folder)
        if found != self.fingerprint:
            raise UserError(
                f"a worker found another model at {self.folder} ({found}) than was planned "
                f"({self.fingerprint}): restore it, or choose a new output folder"
            )
        return load_translator(
            str(folder),
            decoding=self.decoding,
            engine=self.engine,
            threads=self.threads,
            is_checked=found is not None,
        )

    def _stage(self) -> Path:
        from tt.pipelines.runners.staging import stage_model

        return stage_model(self.folder, cache=default_cache(), report=_LOGGER.info)
