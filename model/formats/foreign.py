"""CTranslate2 models: their files, and the folders of other programs.

- CTranslate2's converters write model.bin, config.json and vocabularies. The SentencePiece models
  must be next to these files: `source.spm` and `target.spm` for OPUS-MT and Marian,
  `sentencepiece.bpe.model` for OpenNMT, fairseq, NLLB and M2M.
- An Argos Translate package contains `model/`, `sentencepiece.model` and `metadata.json`.
- `tt import` adds `tokenization.json`, and `tt export` writes our vocabularies.

This module does not import CTranslate2.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import regex
import sentencepiece

from tt.model.errors import UserError
from tt.model.formats.model_card import TrainingData
from tt.model.json_files import parse_fields, read_json, read_text
from tt.model.text.languages import is_one_language
from tt.model.text.tokenization import (
    SOURCE_LANGUAGE,
    TARGET_LANGUAGE,
    Tokenization,
    language_tokens,
    load_pieces,
)
from tt.model.text.vocabulary import VOCABULARY_FILE

CTRANSLATE2_FILE = "model.bin"  # the weights
_CONFIG_FILE = "config.json"
TOKENIZATION_FILE = "tokenization.json"
METADATA_FILE = "metadata.json"  # in Argos Translate packages
ABOUT_FILE = "about.json"  # in our exports and imports
ARGOS_MODEL = "model"  # folder of the weights in Argos Translate packages
# The size of the position table in our exports. CTranslate2's default cuts sources at 1024 tokens.
POSITIONS = 2048

_OLDEST = 5  # the oldest version of model.bin, from 2021, whose weights this module can check
_ITEM_BYTES = (4, 1, 2, 4, 2, 2)  # for float32, int8, int16, int32, float16 and bfloat16
_SETTINGS: dict[str, Any] = {  # CTranslate2's defaults
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "decoder_start_token": "<s>",
    "add_source_bos": False, "add_source_eos": False,
}  # fmt: skip
_PAIRS = (("source.spm", "target.spm"), ("source.model", "target.model"))
_SHARED = (
    "sentencepiece.bpe.model", "sentencepiece.model", "spm.model", "spiece.model", "sp.model",
    "flores200_sacrebleu_tokenizer_spm.model", "spm.128k.model", "vocabulary.spm",
)  # fmt: skip
_FILE_NAME = regex.compile(r"[^/\0]*[^/\0.][^/\0]*")  # a file in the same folder
_OPUS_NAME = regex.compile(
    r"(?:.*[-_.])?opus-?mt-(?:tc-(?:big|base)-)?(?P<source>[a-z]{2,3})-(?P<target>[a-z]{2,3})"
    r"(?:[-_.].*)?"
)
_MOST_MISSING = 0.2  # greatest share of pieces without a token, and of tokens without a piece


class Sizes(NamedTuple):
    """The sizes that a model.bin declares.

    Attributes:
      source: Rows of the source embeddings; 0 if unknown.
      target: Rows of the target embeddings; 0 if unknown.
      positions: The maximum number of tokens in a source or translation, with special tokens.
    """

    source: int = 0
    target: int = 0
    positions: int = POSITIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """A folder with a CTranslate2 model that another program wrote.

    Attributes:
      folder: The folder that the user chose.
      weights: The subfolder of model.bin, "" or "model".
      tokenization: The tokenization of the model.
      data: The languages of the model, if the folder contains them.
    """

    folder: Path
    weights: str
    tokenization: Tokenization
    data: TrainingData = dataclasses.field(default_factory=TrainingData)

    @property
    def weights_folder(self) -> Path:
        """The folder that CTranslate2 loads."""
        return self.folder / self.weights

    @property
    def files(self) -> list[str]:
        """The files on which translations depend, relative to the folder."""
        inside = f"{self.weights}/" if self.weights else ""
        own = [n for n in (TOKENIZATION_FILE, ABOUT_FILE) if (self.folder / n).is_file()]
        return [*(inside + n for n in self.weights_files), *self.tokenization.models, *own]

    @property
    def weights_files(self) -> list[str]:
        """The names of the files that CTranslate2 loads."""
        names = [CTRANSLATE2_FILE, *token_files(self.weights_folder)]
        has_config = (self.weights_folder / _CONFIG_FILE).is_file()
        return [*names, _CONFIG_FILE] if has_config else names

    @property
    def languages(self) -> dict[str, str]:
        """The model's language tokens by code; empty for a model with two languages."""
        if not (self.tokenization.has_source_language or self.tokenization.has_target_language):
            return {}
        source, target = (load_tokens(self.weights_folder, side) for side in ("source", "target"))
        return language_tokens(source) or language_tokens(target)

    def check(
        self,
        *,
        source: str = "",
        target: str = "",
        has_source: bool = True,
        has_target: bool = True,
    ) -> None:
        """Check that the model can translate between two languages, without reading the weights.

        Args:
          source: Code of the source language, or "".
          target: Code of the target language, or "".
          has_source: Whether all rows have the same source language. If not, `source` is ignored.
          has_target: Whether all rows have the same target language. If not, `target` is ignored.

        Raises:
          UserError: The model does not translate, its SentencePiece models are missing or belong to
            another model, or it needs a language that is missing.
        """
        self.check_pieces()
        tokenization, languages = self.tokenization, self.languages
        if not has_source:
            source = next(iter(languages), "")
        if not has_target:
            target = next(iter(languages), "")
        tokenization.between(source=source, target=target, languages=languages)

    def check_pieces(self) -> None:
        """Check that weights, vocabularies and SentencePiece models belong together.

        Raises:
          UserError: A file is missing, cannot be read, or does not fit the others.
        """
        folder, tokenization = self.folder, self.tokenization
        sizes = read_sizes(self.weights_folder)
        source, target = (load_tokens(self.weights_folder, side) for side in ("source", "target"))
        for side, rows, tokens in (
            ("source", sizes.source, source), ("target", sizes.target, target),
        ):  # fmt: skip
            if rows and rows != len(tokens):
                raise UserError(
                    f"the {side} vocabulary of {folder} has {len(tokens):,} tokens, but its "
                    f"model.bin has {rows:,}. Copy the complete folder again from its source"
                )
        source_pieces, target_pieces = (
            set(piece_names(load_pieces(folder / name)))
            for name in (tokenization.source_model, tokenization.target_model)
        )
        known = source_pieces | target_pieces if source == target else target_pieces
        check_share(folder / tokenization.source_model, source_pieces, source)
        check_share(folder / tokenization.target_model, target, known)
        settings = load_settings(self.weights_folder)
        added = {SOURCE_LANGUAGE, TARGET_LANGUAGE, settings["eos_token"]}
        for side, wanted, tokens in (
            ("source", tokenization.source_prefix + tokenization.source_suffix, source),
            ("target", tokenization.target_prefix, target),
        ):
            if missing := set(wanted).difference(tokens, added):
                raise UserError(
                    f"the {side} vocabulary of {folder} has no token {min(missing)!r}. Choose "
                    f"another prefix or suffix for the {side}"
                )
        if settings["decoder_start_token"] is None and not tokenization.target_prefix:
            raise UserError(
                f"{_CONFIG_FILE} in {folder} has no decoder_start_token. Set the first "
                "token of translations with `tt import ctranslate2 --target-prefix`"
            )


def piece_names(processor: sentencepiece.SentencePieceProcessor) -> list[str]:
    """Return all pieces of a SentencePiece model, in the order of their ids."""
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def check_share(path: Path, wanted: Collection[str], known: Collection[str]) -> None:
    """Check that a SentencePiece model fits a model, by comparing their tokens.

    Args:
      path: The SentencePiece model.
      wanted: Tokens that must be known: the pieces, or the tokens of the model.
      known: Known tokens: the tokens of the model, or the pieces.

    Raises:
      UserError: More than a fifth of the tokens in `wanted` are unknown.
    """
    missing = set(wanted).difference(known)
    if len(missing) > _MOST_MISSING * len(wanted):
        raise UserError(
            f"{path} does not belong to the model: {len(missing):,} of {len(wanted):,} tokens are "
            f"only in one of them, such as {min(missing)!r}. Choose the SentencePiece model that "
            "the model was trained with"
        )


def weights_folder(folder: str | Path) -> Path | None:
    """Return the folder that contains model.bin, or None if a folder has no CTranslate2 model."""
    given = Path(folder)
    if (given / CTRANSLATE2_FILE).is_file():
        return given
    if (given / METADATA_FILE).is_file() and (given / ARGOS_MODEL / CTRANSLATE2_FILE).is_file():
        return given / ARGOS_MODEL
    return None


def is_foreign(folder: str | Path) -> bool:
    """Return whether a folder contains a CTranslate2 model that `tt export` did not write."""
    given, found = Path(folder), weights_folder(folder)
    if found != given or (given / TOKENIZATION_FILE).is_file():
        return found is not None
    return not ((given / ABOUT_FILE).is_file() or (given / VOCABULARY_FILE).is_file())


def open_foreign(folder: str | Path, *, models: tuple[str, str] | None = None) -> ForeignModel:
    """Return a description of a foreign model's folder.

    Args:
      folder: The folder.
      models: Paths of the SentencePiece models for source and target; None searches the folder.

    Raises:
      UserError: A file is missing or cannot be read.
    """
    given = Path(folder)
    found = weights_folder(given)
    assert found is not None
    saved = given / TOKENIZATION_FILE
    try:
        if saved.is_file() and models is None:
            values = read_json(saved, dict)
            parse_fields(Tokenization, values)
            tokenization = Tokenization.from_json(values)
            if not all(map(_FILE_NAME.fullmatch, tokenization.models)):
                raise ValueError("it names a SentencePiece model in another folder")
            has_about = (given / ABOUT_FILE).is_file()
            about = read_json(given / ABOUT_FILE, dict) if has_about else {}
            data = parse_fields(TrainingData, about.get("about", {}).get("data", {}))
            return ForeignModel(folder=given, weights="", tokenization=tokenization, data=data)
        metadata = read_json(given / METADATA_FILE, dict) if found != given else {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{given} cannot be read ({error}). Copy or import it again") from error
    source, target = models or _find_models(given)
    if found == given:
        tokenization = guess_tokenization(given, source_model=source, target_model=target)
        data = languages_of_name(given.resolve().name)
        return ForeignModel(folder=given, weights="", tokenization=tokenization, data=data)
    prefix = (str(metadata["target_prefix"]),) if metadata.get("target_prefix") else ()
    tokenization = Tokenization(source_model=source, target_model=target, target_prefix=prefix)
    source, target = (str(metadata.get(name, "")) for name in ("from_code", "to_code"))
    data = TrainingData(source_language=source, target_language=target)
    return ForeignModel(folder=given, weights=ARGOS_MODEL, tokenization=tokenization, data=data)


def has_languages(name: str) -> bool:
    """Return whether the name of a folder contains a model's languages.

    >>> has_languages("opus-mt-en-de"), has_languages("model")
    (True, False)
    """
    return languages_of_name(name) != TrainingData()


def languages_of_name(name: str) -> TrainingData:
    """Return the languages in the name of a model's folder.

    >>> data = languages_of_name("opus-mt-mul-en")  # "mul" means several languages
    >>> data.source_language, data.target_language
    ('', 'en')
    """
    matched = _OPUS_NAME.fullmatch(name.lower())
    codes = matched.groupdict() if matched else {}
    return TrainingData(
        **{f"{side}_language": code for side, code in codes.items() if is_one_language(code)}
    )


def guess_tokenization(weights: Path, *, source_model: str, target_model: str) -> Tokenization:
    """Return the tokenization of a model, with prefixes and suffixes according to its files.

    The decoder of Hugging Face models starts with EOS. These models also need EOS after a source,
    because CTranslate2 does not add it. Language tokens precede a source; for NLLB, M2M and
    mBART-50, a translation starts with one, too. mBART-25 needs EOS and the source language after a
    source, and its translations start with the target language.

    Args:
      weights: The folder of model.bin.
      source_model: SentencePiece model for sources.
      target_model: SentencePiece model for translations.
    """
    settings = load_settings(weights)
    eos = settings["eos_token"]
    adds_eos = not settings["add_source_eos"] and settings["decoder_start_token"] == eos
    prefix: tuple[str, ...] = ()
    target_prefix: tuple[str, ...] = ()
    if languages := language_tokens(load_tokens(weights, "source")):
        if any(token.startswith(">>") for token in languages.values()):
            prefix = (TARGET_LANGUAGE,)
        else:
            prefix, target_prefix = (SOURCE_LANGUAGE,), (TARGET_LANGUAGE,)
    suffix = (eos,) if adds_eos else ()
    if settings["decoder_start_token"] is None and target_prefix:
        prefix, suffix = (), (eos, *prefix)
    return Tokenization(
        source_model=source_model,
        target_model=target_model,
        source_prefix=prefix,
        source_suffix=suffix,
        target_prefix=target_prefix,
    )


def special_tokens(weights: Path) -> set[str]:
    """Return the tokens in a model's translations that are not part of a text.

    The unknown token is not one of them, because it represents a part of a text.
    """
    settings = load_settings(weights)
    languages = language_tokens(load_tokens(weights, "target")).values()
    named = (settings[name] for name in ("bos_token", "eos_token", "decoder_start_token"))
    return {"<pad>", "<mask>", *languages, *named} - {None, settings["unk_token"]}


def _find_models(folder: Path) -> tuple[str, str]:
    """Return the file names of the SentencePiece models for source and target.

    Raises:
      UserError: There are no SentencePiece models, or their names do not identify the sides.
    """
    names = {path.name for path in folder.iterdir() if path.suffix in (".spm", ".model")}
    for pair in (*_PAIRS, *((name, name) for name in _SHARED)):
        if names.issuperset(pair):
            return pair
    if len(names) == 1 and not names & {"bpe.model", *_PAIRS[0], *_PAIRS[1]}:
        return min(names), min(names)
    raise UserError(
        f"{folder} must contain SentencePiece models: source.spm and target.spm, or "
        f"sentencepiece.bpe.model. Received: {', '.join(sorted(names)) or 'none'}. Copy them from "
        "the source of the model, or import the model with "
        "`tt import ctranslate2 --source-vocabulary`"
    )


def token_files(folder: Path) -> list[str]:
    """Return the names of the files that list the tokens of a CTranslate2 model."""
    found = {file for side in ("source", "target") if (file := _token_file(folder, side))}
    return sorted(file.name for file in found)


def _token_file(folder: Path, side: str) -> Path | None:
    names = [f"{name}_vocabulary.{end}" for name in ("shared", side) for end in ("json", "txt")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def load_tokens(folder: Path, side: str) -> list[str]:
    """Return a CTranslate2 model's tokens in the order of their ids.

    Args:
      folder: The folder of model.bin.
      side: "source" or "target".

    Raises:
      UserError: The file of the tokens is missing or cannot be read.
    """
    path = _token_file(folder, side)
    if path is None:
        raise UserError(
            f"{folder} has no {side}_vocabulary.json. Copy the complete folder again from its "
            "source"
        )
    try:
        if path.suffix == ".json":
            tokens: list[Any] = read_json(path, list)
        else:
            # Only \n ends a line, because a token may contain U+2028 or other line separators.
            tokens = read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
        if not all(isinstance(token, str) for token in tokens):
            raise ValueError("a token is not a text")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}). Convert the model again") from error
    return tokens


def load_settings(folder: Path) -> dict[str, Any]:
    """Return the content of config.json with CTranslate2's defaults for missing values.

    A missing file counts as empty.

    Raises:
      UserError: The file cannot be read.
    """
    path = folder / _CONFIG_FILE
    try:
        read = _SETTINGS | (read_json(path, dict) if path.exists() else {})
        for name, default in _SETTINGS.items():
            has_none = name == "decoder_start_token" and read[name] is None
            if type(read[name]) is not type(default) and not has_none:
                raise ValueError(f"{name} must be a {type(default).__name__}")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a configuration of CTranslate2 ({error}). Convert the model again"
        ) from error
    return read


def read_sizes(folder: Path) -> Sizes:
    """Read the sizes in the header of a model.bin and in the shapes of its weights.

    Files from before 2021 declare no sizes.

    Raises:
      UserError: The file is not a CTranslate2 model, is truncated, or does not translate.
    """
    path = folder / CTRANSLATE2_FILE
    try:
        with path.open("rb") as file:
            version = _number(file, "I")
            kind = _string(file)
            if kind.isidentifier() and kind != "TransformerSpec":
                raise UserError(
                    f"{path} is a CTranslate2 model of type {kind}, which does not translate. "
                    "Choose a model with an encoder and a decoder for texts"
                )
            _number(file, "I")  # the revision
            if version < _OLDEST:
                return Sizes()
            shapes = _read_shapes(file, end=path.stat().st_size)
    except (struct.error, ValueError) as error:
        raise UserError(
            f"{path} is truncated, or not a CTranslate2 model ({error}). Copy the file again"
        ) from error
    rows = {name: shape[0] for name, shape in shapes.items() if shape}
    tables = [f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")]
    return Sizes(
        source=rows.get("encoder/embeddings_0/weight", rows.get("encoder/embeddings/weight", 0)),
        target=rows.get("decoder/embeddings/weight", 0),
        positions=min([*(rows[name] for name in tables if name in rows), POSITIONS]),
    )


def _read_shapes(file: BinaryIO, *, end: int) -> dict[str, list[int]]:
    """Return the shapes of weights by their names and aliases.

    Raises:
      ValueError, struct.error: The file is truncated, or a weight does not fit its shape.
    """
    shapes: dict[str, list[int]] = {}
    for _ in range(_number(file, "I")):
        name = _string(file)
        shapes[name] = [_number(file, "I") for _ in range(_number(file, "B"))]
        item, content = _number(file, "B"), _number(file, "I")
        # CTranslate2 reads as many bytes as the shape needs, even if the file has fewer.
        is_whole = item < len(_ITEM_BYTES) and file.tell() + content <= end
        if not is_whole or content != math.prod(shapes[name]) * _ITEM_BYTES[item]:
            raise ValueError(f"{name!r} has {content:,} bytes, which does not fit its shape")
        file.seek(content, 1)
    for _ in range(_number(file, "I")):
        alias = _string(file)
        shapes[alias] = shapes.get(_string(file), [])
    return shapes


def _number(file: BinaryIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0])


def _string(file: BinaryIO) -> str:
    return file.read(_number(file, "H")).rstrip(b"\0").decode()
