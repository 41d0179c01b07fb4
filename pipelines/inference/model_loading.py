"""The model of a job: the launcher finds and checks it, and each worker process loads it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tt.model.engines.loading import check_engine, load_translator
from tt.model.engines.translator import Engine, Translator
from tt.model.errors import UserError, checked, require
from tt.model.folders import default_cache
from tt.model.formats.foreign import is_foreign, open_foreign
from tt.model.formats.model_card import About, TrainingData
from tt.model.formats.model_folder import is_ctranslate2, load_about, model_fingerprint
from tt.model.imports.hub import describe_license, is_non_commercial, parse_address
from tt.model.storage.paths import is_local, normalize_path
from tt.model.storage.stores import StorageOptions, check_buckets
from tt.model.text.languages import are_different, read_language
from tt.model.transformer.search_options import Decoding
from tt.pipelines.texts.languages import describe_other_language, is_detectable
from tt.pipelines.texts.limits import UNRELATED
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.similarity import check_alignment

_LOGGER = logging.getLogger(__name__)


@runtime_checkable
class Loader(Protocol):
    """A function that loads a model in each worker process. It must pickle.

    `ModelLoader` is the loader of model folders. Write your own for another model. If it has an
    attribute `name`, this is the name of its engine in manifests; otherwise, it is "custom".

    Attributes:
      fingerprint: Digest of everything that the translations depend on.
    """

    @property
    def fingerprint(self) -> str | None:
        """Digest of everything that the translations depend on."""

    def __call__(self) -> Translator:
        """Load the model."""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """The model of a job, and the options to run it.

    Attributes:
      model: Model folder, run folder or CTranslate2 export, here or on an object store;
        a model of Hugging Face, such as "hf:Helsinki-NLP/opus-mt-en-es"; or a loader of another
        model.
      decoding: Options of the search.
      engine: Engine that translates with a model folder.
      beam: Options of Apache Beam, such as "--runner=DataflowRunner".
    """

    model: str | Loader
    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    engine: Engine = dataclasses.field(default_factory=Engine)
    beam: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundModel:
    """A model that `find_model` has found.

    Attributes:
      folder: Model folder on this machine; None for a loader.
      fingerprint: Digest of everything that the translations depend on.
      engine: The engine and its options, in the form of a job's plan.
      about: The model card.
    """

    folder: Path | None
    fingerprint: str
    engine: dict[str, Any]
    about: About = dataclasses.field(default_factory=About)

    @property
    def size(self) -> int:
        """The total size of the model's files in bytes; 0 for a loader."""
        if self.folder is None:
            return 0
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    @property
    def data(self) -> TrainingData:
        """The model's training data."""
        return self.about.data

    @property
    def languages(self) -> dict[str, str]:
        """The codes of the model's languages, in the form of a job's plan."""
        if self.folder is None:
            return {}
        return {"source": self.data.source_language, "target": self.data.target_language}

    def check(self, *, name: str | Loader, **settings: Any) -> list[str]:
        """Check that the model can translate, and return warnings; see `check_model`.

        The model of a loader is not checked.

        Raises:
          UserError: The model cannot translate with these settings.
        """
        if self.folder is None:
            return []
        warnings = check_model(self.folder, name=str(name), data=self.data, **settings)
        name_of_license = self.about.imported_from.get("license", "")
        if is_non_commercial(name_of_license):
            warnings.append(f"{name}: {describe_license(name_of_license)}")
        return warnings

    def loader(
        self, model: str | Loader, *, decoding: Decoding, engine: Engine, threads: int
    ) -> Loader:
        """Return the loader of this model for workers, which may have another working directory.

        Args:
          model: The model that the user gave.
          decoding: Options of the search.
          engine: The engine that translates.
          threads: Number of threads per translation; see `load_translator`.
        """
        if not isinstance(model, str):
            return model
        return ModelLoader(
            folder=str(self.folder.absolute()) if self.folder and is_local(model) else model,
            decoding=decoding,
            engine=engine,
            threads=threads,
            fingerprint=self.fingerprint,
        )


def find_model(
    model: str | Loader, *, engine: Engine, report: Callable[[str], object]
) -> FoundModel:
    """Find a model, and copy a remote model to the cache.

    Args:
      model: Model folder, run folder or CTranslate2 export, here or on an object store;
        or a loader.
      engine: The engine that translates with a model folder.
      report: Receives a message if a model is copied.

    Raises:
      UserError: The model is missing or cannot be read, or a loader has no fingerprint.
    """
    if not isinstance(model, str):
        fingerprint = model.fingerprint or ""
        require(
            bool(fingerprint),
            "the loader in `model` needs an attribute for its fingerprint",
            fingerprint,
        )
        engine_name = {"name": getattr(model, "name", "custom")}
        return FoundModel(folder=None, fingerprint=fingerprint, engine=engine_name)
    from tt.pipelines.runners.staging import stage_model  # imports Beam, which takes seconds

    check_buckets([model])
    folder = stage_model(model, cache=default_cache(), report=report)
    return FoundModel(
        folder=folder,
        fingerprint=model_fingerprint(folder),
        engine=choose_engine(folder, engine).as_json(),
        about=load_about(folder),
    )


def choose_engine(folder: Path | None, engine: Engine) -> Engine:
    """Return the engine with its name, which follows from the folder if the user gave no name."""
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
    has_source: bool = True,
    has_target: bool = True,
    is_here: bool = True,
) -> list[str]:
    """Check that an engine can translate texts with a model, and return warnings.

    Args:
      folder: Model folder, run folder or CTranslate2 export.
      name: Name of the model that the user gave.
      decoding: Options of the search.
      engine: The engine that translates.
      texts: Options for texts.
      data: The model's training data.
      has_source: Whether all texts have the same source language; otherwise, each row names one.
      has_target: Whether all texts have the same target language; otherwise, each row names one.
      is_here: Whether this machine translates.

    Raises:
      UserError: The engine is not installed or does not fit the model, a length exceeds the model's
        limit, or the model does not have the languages.
    """
    longest = texts.max_source_tokens
    check_engine(
        folder, decoding=decoding, engine=engine, max_source_tokens=longest, is_here=is_here
    )
    source, target = texts.source_language or data.source_language, texts.target_language
    foreign = open_foreign(folder) if is_foreign(folder) else None
    if foreign is not None:
        foreign.check(source=source, target=target, has_source=has_source, has_target=has_target)
    if foreign is None or not foreign.tokenization.has_source_language:
        require(
            has_source,
            "`source_language_column` needs a model with several source languages, and this model "
            "has only one. Remove the option",
        )
    if foreign is None or not foreign.tokenization.has_target_language:
        require(
            has_target,
            "`target_language_column` needs a model with several target languages, and this model "
            "has only one. Remove the option",
        )
        if target:
            read_language(target, name="`target_language`")
        require(
            not are_different(target, data.target_language),
            f"`target_language` is {target}, but the model translates only to "
            f"{data.target_language}. Remove the option, or choose another model",
        )
    if UNRELATED in texts.flags:
        require(
            data.least_cosine is not None,
            f"the flag {UNRELATED} needs a model whose dataset has an `--alignment-filter`, and "
            f"{name} has none. Remove the flag",
        )
        check_alignment(
            f"the flag {UNRELATED}",
            source_language=source or "",
            target_language=target or data.target_language,
        )
    if texts.on_wrong_language is not None and has_source:
        require(
            is_detectable(source or ""),
            "`on_wrong_language` needs a `source_language` that tt can detect. Set the language, "
            "or remove `on_wrong_language`",
            source or "none",
        )
    return describe_other_language(texts.source_language, data=data)


@checked
@dataclasses.dataclass(frozen=True)
class ModelLoader:
    """Loads a model in a worker process, after copying a remote model to the worker's cache.

    Attributes:
      folder: Model folder, run folder or CTranslate2 export, here or on an object store.
      decoding: Options of the search.
      engine: The engine that translates.
      threads: Number of threads per translation; see `load_translator`.
      fingerprint: Fingerprint that the model must have; None accepts any model.
      storage: The addresses of object stores.
    """

    folder: str
    decoding: Decoding = dataclasses.field(default_factory=Decoding)
    engine: Engine = dataclasses.field(default_factory=Engine)
    threads: int = 0
    fingerprint: str | None = None
    storage: StorageOptions = dataclasses.field(
        default_factory=StorageOptions.of_this_process, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        require(self.threads >= 0, "`threads` must be at least 0", self.threads)
        if parse_address(self.folder) is None:  # a worker may have another working directory
            object.__setattr__(self, "folder", normalize_path(self.folder))

    def find_state(self) -> Hashable:
        """Return a value that changes whenever the model's files change.

        For a local folder, it contains the names, sizes and modification times of the files. For a
        remote folder, it is the name of the local copy, which depends on the content. The times of
        a copy are useless, because they change when another process copies the same files again.

        Raises:
          UserError: The model does not exist or cannot be copied.
        """
        folder = self._stage()
        if not is_local(self.folder):
            return folder.name
        files = [(str(path), path.stat()) for path in folder.rglob("*") if path.is_file()]
        return tuple(sorted((name, each.st_size, each.st_mtime_ns) for name, each in files))

    def describe(self, texts: TextOptions) -> tuple[About, list[str]]:
        """Return the model card, and warnings about options that do not fit the model.

        Raises:
          UserError: The model cannot translate with these options; see `check_model`.
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
          UserError: The model is missing or cannot be read, does not fit the engine, or has another
            fingerprint.
        """
        folder = self._stage()
        found = None if self.fingerprint is None else model_fingerprint(folder)
        if found != self.fingerprint:
            raise UserError(
                f"the model at {self.folder} has changed since the job was planned: its "
                f"fingerprint was {self.fingerprint} and is now {found}. Restore the model, or "
                "choose a new output folder"
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
