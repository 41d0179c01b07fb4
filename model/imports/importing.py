"""Import of a model from another program into a model folder, as `tt import` does."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tt.model.errors import UserError, checked, one_of, require_one_of
from tt.model.folders import atomic_folder
from tt.model.formats.archives import open_package
from tt.model.formats.foreign import TOKENIZATION_FILE, ForeignModel, is_foreign, open_foreign
from tt.model.formats.model_card import About
from tt.model.formats.model_folder import check_output, write_about
from tt.model.imports.fetching import import_huggingface
from tt.model.storage.files import local_copy
from tt.model.storage.stores import check_buckets
from tt.model.text.languages import are_different, read_language
from tt.model.text.tokenization import SOURCE_LANGUAGE, TARGET_LANGUAGE, find_token
from tt.model.text.vocabulary import SHARED_MODEL, SOURCE_MODEL, TARGET_MODEL

HUGGINGFACE, CTRANSLATE2 = "huggingface", "ctranslate2"
FORMATS = (HUGGINGFACE, CTRANSLATE2)
_PREFIXES = ("source_prefix", "source_suffix", "target_prefix")
_ONLY_CTRANSLATE2 = (
    *_PREFIXES, "source_vocabulary", "target_vocabulary", "source_language", "target_language",
)  # fmt: skip


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """The options of an import of a model from another program.

    >>> ImportRequest(format="ctranslate2", model="opus-mt-en-de", output="M").write()
    ... # doctest: +SKIP

    Attributes:
      format: Import a model in this format: "huggingface" or "ctranslate2".

        An OPUS-MT model with two languages in the format "huggingface" becomes a TensorFlow model,
        which you can train further. Other models in this format become CTranslate2 models. The
        format "ctranslate2" is the output of CTranslate2's converters.
      model: Import this folder, Argos Translate package or hf:ORG/NAME.
      output: Write the model to this folder.
      source_vocabulary: Encode sources with this SentencePiece model. By default, the file in the
        folder.
      target_vocabulary: Decode translations with this SentencePiece model. By default, the same as
        for sources.

        Without `source_vocabulary`, the default is the file in the folder.
      source_prefix: Put these tokens, separated by spaces, before each source. By default, guessed
        from the model.

        "{source_language}" and "{target_language}" represent language tokens. By default, `tt` adds
        the language tokens and the EOS that the model needs, according to its vocabularies and its
        config.json.
      source_suffix: Put these tokens, separated by spaces, after each source. By default, guessed
        from the model.
      target_prefix: Put these tokens, separated by spaces, before each translation. By default,
        guessed from the model.
      source_language: Set the source language; a multilingual model then translates only from it.
      target_language: Set the target language; a multilingual model then translates only into it.
      overwrite: Replace an earlier import in the output folder.
    """

    format: str = one_of(FORMATS)
    model: str
    output: str
    source_vocabulary: str | None = None
    target_vocabulary: str | None = None
    source_prefix: str | None = None
    source_suffix: str | None = None
    target_prefix: str | None = None
    source_language: str = ""
    target_language: str = ""
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_one_of("`format`", self.format, FORMATS)
        for name in _ONLY_CTRANSLATE2:
            if self.format == HUGGINGFACE and getattr(self, name) not in (None, ""):
                raise UserError(
                    f"`{name}` is not available for imports from {self.format}. Remove the option"
                )

    def find(self) -> ForeignModel:
        """Return the CTranslate2 model to import, with the options of this request.

        Raises:
          UserError: There is no model, its files do not belong together, or an option does not fit.
        """
        folder = open_package(Path(self.model))
        if not is_foreign(folder):
            raise UserError(
                f"{self.model} has no model.bin from another program. Convert a model with one of "
                "CTranslate2's converters, and copy its SentencePiece models next to model.bin"
            )
        models = self._vocabularies()
        model = open_foreign(folder, models=models)
        given: dict[str, Any] = {
            field: tuple(getattr(self, field).split())
            for field in _PREFIXES
            if getattr(self, field) is not None
        }
        tokenization = dataclasses.replace(model.tokenization, **given)
        model = dataclasses.replace(model, tokenization=tokenization)
        model.check_pieces()
        tokens: dict[str, str] = {}
        codes: dict[str, Any] = {}
        for field, name in (
            ("source_language", SOURCE_LANGUAGE), ("target_language", TARGET_LANGUAGE),
        ):  # fmt: skip
            code, own = getattr(self, field), getattr(model.data, field)
            if not code:
                continue
            codes[field] = code
            if name in tokenization.added:
                tokens[name] = find_token(code, languages=model.languages, field=field)
                continue
            read_language(code, name=f"`{field}`")
            if are_different(code, own):
                raise UserError(
                    f"`{field}` must be {own}, according to the name or the metadata of "
                    f"{model.folder.name}. Received: {code}"
                )
        return dataclasses.replace(
            model,
            tokenization=tokenization.with_tokens(tokens),
            data=dataclasses.replace(model.data, **codes),
        )

    def write(self, *, prepare: Callable[[], None] = lambda: None) -> None:
        """Write the model folder.

        Args:
          prepare: Function to call before TensorFlow is imported, which not all models need.

        Raises:
          UserError: The model cannot be imported, or the output cannot be written.
        """
        check_buckets([self.model])
        with local_copy(self.model) as model:
            name = "" if model == self.model else self.model
            dataclasses.replace(self, model=model)._write(name=name, prepare=prepare)

    def _write(self, *, name: str, prepare: Callable[[], None]) -> None:
        """Write the folder; `name` is the path of the model if the given one is a copy."""
        output = Path(self.output)
        if self.format == HUGGINGFACE:
            import_huggingface(
                self.model, output, name=name, overwrite=self.overwrite, prepare=prepare
            )
            return
        model = self.find()
        check_output(output, model=model.folder, overwrite=self.overwrite)
        tokenization = model.tokenization
        is_shared = tokenization.source_model == tokenization.target_model
        names = (SHARED_MODEL, SHARED_MODEL) if is_shared else (SOURCE_MODEL, TARGET_MODEL)
        copied = {
            names[0]: model.folder / tokenization.source_model,
            names[1]: model.folder / tokenization.target_model,
            **{Path(name).name: model.weights_folder / name for name in model.weights_files},
        }
        tokenization = dataclasses.replace(
            tokenization, source_model=names[0], target_model=names[1]
        )
        try:
            with atomic_folder(output, overwrite=self.overwrite) as folder:
                for name, path in copied.items():
                    shutil.copyfile(path, folder / name)
                text = json.dumps(dataclasses.asdict(tokenization), indent=2, ensure_ascii=False)
                (folder / TOKENIZATION_FILE).write_text(f"{text}\n", "utf-8")
                write_about(folder, About(data=model.data))
        except OSError as error:
            raise UserError(
                f"{output} cannot be written: {error.strerror or error}. Choose another `output`"
            ) from error

    def _vocabularies(self) -> tuple[str, str] | None:
        """Return the given absolute paths of SentencePiece models, or None without any."""
        source, target = self.source_vocabulary, self.target_vocabulary
        if source is None and target is None:
            return None
        if source is None:
            raise UserError(
                "`target_vocabulary` needs `source_vocabulary`. Set both options, or neither"
            )
        return str(Path(source).absolute()), str(Path(target or source).absolute())
