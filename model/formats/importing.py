"""A model of another program to a model folder, by the options of `tt import`."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.errors import UserError, accept_one_string, one_of, require_one_of
from model.folders.atomic import atomic_folder, is_free
from model.folders.long_work import writing
from model.formats.argos import open_package
from model.formats.foreign import (
    TOKENIZATION_FILE,
    ForeignModel,
    describe_other_tool,
    is_foreign,
    open_foreign,
    tells_languages,
)
from model.formats.model_card import About, TrainingData
from model.formats.model_folder import WEIGHTS_FILE, write_about
from model.text.languages import are_different, read_language
from model.text.tokenization import SOURCE_LANGUAGE, TARGET_LANGUAGE, Tokenization, find_token
from model.text.vocabulary import SHARED_MODEL, SOURCE_MODEL, TARGET_MODEL

if TYPE_CHECKING:  # it imports NumPy, which the command's help needs not
    from model.formats.marian_import import MarianModel

CTRANSLATE2, MARIAN = "ctranslate2", "marian"
FORMATS = (CTRANSLATE2, MARIAN)
# Options that the other format has not.
_NOT_OF = {
    CTRANSLATE2: ("vocab",),
    MARIAN: ("source_prefix", "source_suffix", "target_prefix"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """A model of another program to write to a model folder.

    >>> ImportRequest(format="ctranslate2", model="opus-mt-en-de", output="M").write()
    ... # doctest: +SKIP

    Attributes:
      format: Format of the model: "ctranslate2", what CTranslate2's converters write, or "marian",
        the .npz of a Marian transformer, which becomes a model for TensorFlow.
      model: Folder of the model, or a package of Argos Translate; of Marian, the .npz.
      output: Folder to write.
      source_vocabulary: SentencePiece model of sources. By default the one in the folder.
      target_vocabulary: SentencePiece model of translations. By default that of sources, if that is
        given, else the one in the folder.
      vocab: Marian's list of tokens, vocab.yml, or one for each side. By default its tokens are
        those of the SentencePiece models.
      source_prefix: Tokens that the model gets before those of a source, with spaces between them;
        "{source_language}" and "{target_language}" stand for the tokens of the languages. By
        default those tokens, where the vocabulary has such as NLLB's and M2M's are, else none.
      source_suffix: Tokens that the model gets behind those of a source, with spaces between them;
        by default as `source_prefix`.
      target_prefix: Tokens that every translation begins with, with spaces between them; by default
        as `source_prefix`.
      source_language: Code of the language to translate from; of a model of several, from it alone.
      target_language: Code of the language to translate into; of a model of several, into it alone.
      overwrite: Replace an earlier import.
    """

    format: str = one_of(FORMATS)
    model: str
    output: str
    source_vocabulary: str | None = None
    target_vocabulary: str | None = None
    vocab: tuple[str, ...] = ()
    source_prefix: str | None = None
    source_suffix: str | None = None
    target_prefix: str | None = None
    source_language: str = ""
    target_language: str = ""
    overwrite: bool = False

    def __post_init__(self) -> None:
        accept_one_string(self)
        require_one_of("`format`", self.format, FORMATS)
        for name in _NOT_OF[self.format]:
            if getattr(self, name) not in (None, ()):
                of = "Marian" if self.format == CTRANSLATE2 else "CTranslate2"
                raise UserError(f"`{name}` is for imports of models for {of}: leave it out")

    def find(self) -> ForeignModel:
        """Finds the model as it is to be imported.

        Raises:
          UserError: There is none, or its files do not belong together.
        """
        folder = open_package(Path(self.model))
        if not is_foreign(folder):
            raise UserError(
                describe_other_tool(folder)
                or f"{self.model} is no model for CTranslate2 that another program wrote, with a "
                "model.bin: name another folder. Models of `tt` need no import"
            )
        model = open_foreign(folder, models=self._vocabularies())
        model = dataclasses.replace(model, tokenization=self._tokenize(model))
        model.check_pieces()
        languages = model.languages
        tokens = {}
        asked = {"source_language": self.source_language, "target_language": self.target_language}
        given: dict[str, Any] = {field: code for field, code in asked.items() if code}
        for field, code in given.items():
            name = {"source_language": SOURCE_LANGUAGE}.get(field, TARGET_LANGUAGE)
            if name in model.tokenization.added:
                tokens[name] = find_token(code, languages=languages, field=field)
            else:
                _check_own(code, field=field, model=model)
        return dataclasses.replace(
            model,
            tokenization=model.tokenization.with_tokens(tokens),
            data=dataclasses.replace(model.data, **given),
        )

    def write(self, *, prepare: Callable[[], None] | None = None) -> None:
        """Writes the folder; `prepare` is called before TensorFlow is imported, for Marian.

        Raises:
          UserError: As `find`, or the output cannot be written.
        """
        if self.format == MARIAN:
            self._write_marian(prepare)
            return
        model = self.find()
        output = Path(self.output)
        _check_output(output, model=model.folder, overwrite=self.overwrite)
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
                size = sum(path.stat().st_size for path in copied.values())
                with writing(folder, total=size):
                    for name, path in copied.items():
                        shutil.copyfile(path, folder / name)
                text = json.dumps(dataclasses.asdict(tokenization), indent=2, ensure_ascii=False)
                (folder / TOKENIZATION_FILE).write_text(f"{text}\n", "utf-8")
                write_about(folder, About(data=model.data))
        except OSError as error:
            raise UserError(
                f"{output} cannot be written: {error.strerror or error}. Name another `output`"
            ) from error

    def _write_marian(self, prepare: Callable[[], None] | None) -> None:
        found = self._find_marian()
        output = Path(self.output)
        _check_output(output, model=found.path, overwrite=self.overwrite)
        data = TrainingData(
            source_language=self.source_language, target_language=self.target_language
        )
        for name in ("source_language", "target_language"):
            if code := getattr(data, name):
                read_language(code, name=f"`{name}`")
        if prepare is not None:
            prepare()
        from model.formats.marian_import import write_model

        write_model(found, output, data=data, overwrite=self.overwrite)

    def _find_marian(self) -> MarianModel:
        beside = Path(self.model).parent
        source, target = self.source_vocabulary, self.target_vocabulary
        if source is None:
            if target is not None:
                raise UserError(_BOTH)
            if not (beside / SOURCE_MODEL).is_file() or not (beside / TARGET_MODEL).is_file():
                raise UserError(
                    f"`source_vocabulary` must name a SentencePiece model: {SOURCE_MODEL} and "
                    f"{TARGET_MODEL} are not beside {self.model}"
                )
            source, target = str(beside / SOURCE_MODEL), str(beside / TARGET_MODEL)
        from model.formats.marian_import import read_marian

        return read_marian(
            Path(self.model),
            source_vocabulary=Path(source),
            target_vocabulary=Path(target or source),
            lists=tuple(map(Path, self.vocab)),
        )

    def _vocabularies(self) -> tuple[str, str] | None:
        """Returns the paths of the SentencePiece models that are given, if any are."""
        if self.source_vocabulary is None and self.target_vocabulary is None:
            return None
        if self.source_vocabulary is None:
            raise UserError(_BOTH)
        source = Path(self.source_vocabulary).absolute()
        return str(source), str(Path(self.target_vocabulary or source).absolute())

    def _tokenize(self, model: ForeignModel) -> Tokenization:
        given: dict[str, Any] = {
            field: tuple(tokens.split())
            for field in ("source_prefix", "source_suffix", "target_prefix")
            if (tokens := getattr(self, field)) is not None
        }
        return dataclasses.replace(model.tokenization, **given)


def _check_own(code: str, *, field: str, model: ForeignModel) -> None:
    """Raises if a model of two languages tells another one than is given."""
    read_language(code, name=f"`{field}`")
    own = getattr(model.data, field)
    if are_different(code, own):
        named = tells_languages(model.folder.name)
        raise UserError(
            f"`{field}` is {code}, and {model.folder.name} translates "
            f"{'from' if field == 'source_language' else 'to'} {own} alone: leave it out"
            f"{', or rename the folder if its name is wrong' if named else ''}"
        )


_BOTH = "`target_vocabulary` needs `source_vocabulary`: give both, or neither"


def _check_output(output: Path, *, model: Path, overwrite: bool) -> None:
    if is_free(output):
        return
    output = output.resolve()
    names = (TOKENIZATION_FILE, WEIGHTS_FILE)
    if not any((output / name).is_file() for name in names):
        raise UserError(
            f"the output must be a new folder; {output} is no imported model: name another"
        )
    if output in (model.resolve(), *model.resolve().parents):
        raise UserError(f"{output} holds the model that is imported: name another folder")
    if not overwrite:
        raise UserError(f"{output} exists already: name another folder, or `overwrite`")
