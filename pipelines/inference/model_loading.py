"""The model of a job: the launcher finds and checks it, and each worker process loads it once."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import logging
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tt.model.engines.loading import check_engine, convert, load_translator
from tt.model.engines.translator import Engine, Translator
from tt.model.errors import UserError, checked, require
from tt.model.folders import default_cache
from tt.model.formats.foreign import is_foreign, open_foreign
from tt.model.formats.model_card import About, TrainingData
from tt.model.formats.model_folder import (
    is_ctranslate2,
    load_about,
    model_files,
    model_fingerprint,
)
from tt.model.imports.hub import describe_license, is_non_commercial, parse_address
from tt.model.storage.files import AT_ONCE, copy, make_folder
from tt.model.storage.paths import is_local, normalize_path
from tt.model.storage.stores import StorageOptions, check_buckets
from tt.model.text.languages import are_different, read_language
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.staging import stage_model
from tt.pipelines.texts.flags import UNRELATED
from tt.pipelines.texts.languages import describe_other_language, is_detectable
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
      given: The model in the request.
      folder: Model folder on this machine; None for a loader.
      decoding: Options of the search.
      chosen_engine: The engine that translates with a model folder.
      about: The model card.
    """

    given: str | Loader
    folder: Path | None
    decoding: Decoding
    chosen_engine: Engine
    about: About = dataclasses.field(default_factory=About)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Digest of everything that the translations depend on; this reads all files.

        Raises:
          UserError: A file is damaged, or a loader has no fingerprint.
        """
        if self.folder is not None:
            return model_fingerprint(self.folder)
        assert not isinstance(self.given, str)
        fingerprint = self.given.fingerprint or ""
        message = "the loader in `model` needs an attribute for its fingerprint"
        require(bool(fingerprint), message, fingerprint)
        return fingerprint

    @property
    def engine(self) -> dict[str, Any]:
        """The engine and its options, in the form of a job's plan."""
        if self.folder is None:
            return {"name": getattr(self.given, "name", "custom")}
        return self.chosen_engine.as_json()

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

    def check(
        self,
        texts: TextOptions,
        *,
        has_source: bool = True,
        has_target: bool = True,
        is_here: bool = True,
    ) -> list[str]:
        """Check that the engine can translate texts with the model, and return warnings.

        The model of a loader is not checked.

        Args:
          texts: Options for texts.
          has_source: Whether all texts have the same source language; otherwise, each row names
            one.
          has_target: Whether all texts have the same target language; otherwise, each row names
            one.
          is_here: Whether this machine translates.

        Raises:
          UserError: The engine is not installed or does not fit the model, a length exceeds the
            model's limit, or the model does not have the languages.
        """
        if self.folder is None:
            return []
        data = self.data
        check_engine(
            self.folder,
            decoding=self.decoding,
            engine=self.chosen_engine,
            max_source_tokens=texts.max_source_tokens,
            is_here=is_here,
        )
        source, target = texts.source_language or data.source_language, texts.target_language
        self._check_languages(source, target, has_source=has_source, has_target=has_target)
        if UNRELATED in texts.flags:
            require(
                data.least_cosine is not None,
                f"the flag {UNRELATED} needs a model whose dataset has an `--alignment-filter`, "
                f"and {self.given} has none. Remove the flag",
            )
            check_alignment(
                f"the flag {UNRELATED}",
                source_language=source,
                target_language=target or data.target_language,
            )
        if texts.on_wrong_language is not None and has_source:
            require(
                is_detectable(source),
                "`on_wrong_language` needs a `source_language` that tt can detect. Set the "
                "language, or remove `on_wrong_language`",
                source or "none",
            )
        warnings = describe_other_language(texts.source_language, data=data)
        name_of_license = self.about.imported_from.get("license", "")
        if is_non_commercial(name_of_license):
            warnings.append(f"{self.given}: {describe_license(name_of_license)}")
        return warnings

    def _check_languages(
        self, source: str, target: str, *, has_source: bool, has_target: bool
    ) -> None:
        foreign = open_foreign(self.folder) if self.folder and is_foreign(self.folder) else None
        if foreign is not None:
            foreign.check(
                source=source, target=target, has_source=has_source, has_target=has_target
            )
        if foreign is None or not foreign.tokenization.has_source_language:
            require(
                has_source,
                "`source_language_column` needs a model with several source languages, and this "
                "model has only one. Remove the option",
            )
        if foreign is None or not foreign.tokenization.has_target_language:
            require(
                has_target,
                "`target_language_column` needs a model with several target languages, and this "
                "model has only one. Remove the option",
            )
            if target:
                read_language(target, name="`target_language`")
            own = self.data.target_language
            require(
                not are_different(target, own),
                f"`target_language` is {target}, but the model translates only to {own}. Remove "
                "the option, or choose another model",
            )

    def make_loader(self, *, threads: int, place: str = "", is_elsewhere: bool = False) -> Loader:
        """Return the loader of this model for workers, which may have another working directory.

        For CTranslate2 and with a `place`, this method converts the model, so that workers do not
        need TensorFlow. Workers on other machines get a copy of a model from the hub of Hugging
        Face.

        Args:
          threads: Number of threads per translation; see `load_translator`.
          place: Folder for a converted model if the workers are on other machines. Workers on this
            machine use the cache.
          is_elsewhere: Whether the workers are on other machines.

        Raises:
          UserError: The model cannot be converted, or the cache cannot be written.
        """
        if self.folder is None or not isinstance(self.given, str):
            assert not isinstance(self.given, str)
            return self.given
        folder = str(self.folder.absolute()) if is_local(self.given) else self.given
        fingerprint = self.fingerprint
        is_ready = is_ctranslate2(self.folder) and not (parse_address(self.given) and is_elsewhere)
        if place and self.chosen_engine.name == "ctranslate2" and not is_ready:
            converted = convert(self.folder)
            folder = _put(converted, place=place) if is_elsewhere else str(converted)
            fingerprint = model_fingerprint(converted)
        return ModelLoader(
            folder=folder,
            decoding=self.decoding,
            engine=self.chosen_engine,
            threads=threads,
            fingerprint=fingerprint,
        )


def _put(folder: Path, *, place: str) -> str:
    """Copy a model to a folder on any file system, and return that folder."""
    make_folder(place)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(
            pool.map(
                lambda name: copy(f"{folder}/{name}", f"{place}/{name}", temporary_folder=place),
                model_files(folder),
            )
        )
    return place


def find_model(request: ModelRequest, *, report: Callable[[str], object]) -> FoundModel:
    """Find the model of a request, and copy a remote model to the cache.

    Args:
      request: The model and its options.
      report: Receives a message if a model is copied.

    Raises:
      UserError: The model is missing or cannot be read, or the engine cannot translate with it.
    """
    given = request.model
    folder = None
    if isinstance(given, str):
        check_buckets([given])
        folder = stage_model(given, cache=default_cache(), report=report)
    is_export = folder is not None and is_ctranslate2(folder)
    return FoundModel(
        given=given,
        folder=folder,
        decoding=request.decoding,
        chosen_engine=request.engine.for_model(is_ctranslate2=is_export),
        about=About() if folder is None else load_about(folder),
    )


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

    def describe(self, texts: TextOptions) -> About:
        """Return the model card, and log warnings about options that do not fit the model.

        Raises:
          UserError: The model cannot translate with these options; see `FoundModel.check`.
        """
        request = ModelRequest(model=self.folder, decoding=self.decoding, engine=self.engine)
        found = find_model(request, report=_LOGGER.info)
        for line in found.check(texts):
            _warn_once(line)
        return found.about

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
        return stage_model(self.folder, cache=default_cache(), report=_LOGGER.info)


@functools.cache  # once per process, not once per thread
def _warn_once(line: str) -> None:
    _LOGGER.warning(line)
