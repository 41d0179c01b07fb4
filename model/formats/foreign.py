"""Models for CTranslate2: their files, and the folders of other programs; without CTranslate2.

- CTranslate2's converters write model.bin, config.json and vocabularies. The SentencePiece models
  stand next to these files: OPUS-MT and Marian (`source.spm`, `target.spm`), OpenNMT, fairseq, NLLB
  and M2M (`sentencepiece.bpe.model`).
- A package of Argos Translate contains `model/`, `sentencepiece.model` and `metadata.json`.
- `tt import` writes `tokenization.json` next to them; `tt export` writes our own vocabularies.
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
METADATA_FILE = "metadata.json"  # of Argos Translate
ABOUT_FILE = "about.json"  # of our exports and imports
ARGOS_MODEL = "model"  # folder of the weights
# CTranslate2 has a table of positions, we compute them: its own default cuts sources at 1024.
POSITIONS = 2048

_OLDEST = 5  # the first version of model.bin, of 2021, whose weights are read here
_ITEM_BYTES = (4, 1, 2, 4, 2, 2)  # of float32, int8, int16, int32, float16, bfloat16
_SETTINGS: dict[str, Any] = {  # CTranslate2's defaults
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "decoder_start_token": "<s>",
    "add_source_bos": False, "add_source_eos": False,
}  # fmt: skip
_PAIRS = (("source.spm", "target.spm"), ("source.model", "target.model"))
_SHARED = (
    "sentencepiece.bpe.model", "sentencepiece.model", "spm.model", "spiece.model", "sp.model",
    "flores200_sacrebleu_tokenizer_spm.model", "spm.128k.model", "vocabulary.spm",
)  # fmt: skip
_FILE_NAME = regex.compile(r"[^/\0]*[^/\0.][^/\0]*")  # of a file in the same folder
_OPUS_NAME = regex.compile(
    r"(?:.*[-_.])?opus-?mt-(?:tc-(?:big|base)-)?(?P<source>[a-z]{2,3})-(?P<target>[a-z]{2,3})"
    r"(?:[-_.].*)?"
)
_MOST_MISSING = 0.2  # share of pieces that a vocabulary may lack, and of tokens that are no pieces


class Sizes(NamedTuple):
    """The sizes that a model.bin declares.

    Attributes:
      source: Rows of the source embeddings; 0 if unknown.
      target: Rows of the target embeddings; 0 if unknown.
      positions: The greatest number of tokens of a source or translation, special ones included.
    """

    source: int = 0
    target: int = 0
    positions: int = POSITIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """A model of another program in its own folder.

    Attributes:
      folder: The folder that the user names.
      weights: The folder of model.bin in it, "" or "model".
      tokenization: How a text becomes its tokens.
      data: Its languages, as far as the folder tells them.
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
        """The names of all files that its translations depend on, relative to its folder."""
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
        """The tokens of its languages by their codes; empty for a model of two languages."""
        if not (self.tokenization.has_source_language or self.tokenization.has_target_language):
            return {}
        source, target = (load_tokens(self.weights_folder, side) for side in ("source", "target"))
        return language_tokens(source) or language_tokens(target)

    def check(self, *, source: str = "", target: str = "", has_target: bool = True) -> None:
        """Check that the model can translate between two languages; this reads no weights.

        Args:
          source: Code of the language of the texts, or "".
          target: Code of the language to translate into, or "".
          has_target: Whether there is one target language; else each row names its own.

        Raises:
          UserError: The model does not translate, its SentencePiece models are missing or belong to
            another model, or it needs a language that is not given.
        """
        self.check_pieces()
        tokenization, languages = self.tokenization, self.languages
        if not has_target:
            target = next(iter(languages), "")
        tokenization.between(source=source, target=target, languages=languages)

    def check_pieces(self) -> None:
        """Check that weights, vocabularies and SentencePiece models belong together.

        Raises:
          UserError: They do not.
        """
        folder, tokenization = self.folder, self.tokenization
        sizes = read_sizes(self.weights_folder)
        source, target = (load_tokens(self.weights_folder, side) for side in ("source", "target"))
        for side, rows, tokens in (
            ("source", sizes.source, source), ("target", sizes.target, target),
        ):  # fmt: skip
            if rows and rows != len(tokens):
                raise UserError(
                    f"the {side} vocabulary of {folder} has {len(tokens):,} tokens, its "
                    f"model.bin {rows:,}: copy the whole folder again from where it came"
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
                    f"the {side} vocabulary of {folder} has no token {min(missing)!r}: choose "
                    f"another prefix or suffix of the {side}"
                )
        if settings["decoder_start_token"] is None and not tokenization.target_prefix:
            raise UserError(
                f"{_CONFIG_FILE} of {folder} has no `decoder_start_token`: give the first token of "
                "translations to `tt import ctranslate2` with `target_prefix`"
            )


def piece_names(processor: sentencepiece.SentencePieceProcessor) -> list[str]:
    """Return the names of all pieces by their ids."""
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def check_share(path: Path, wanted: Collection[str], there: Collection[str]) -> None:
    """Raise a UserError unless nearly all tokens that are wanted are there."""
    missing = set(wanted).difference(there)
    if len(missing) > _MOST_MISSING * len(wanted):
        raise UserError(
            f"{path} is another model's: {len(missing):,} of {len(wanted):,} tokens are not both "
            f"its pieces and in the model's vocabulary, {min(missing)!r} for example. Name the "
            "SentencePiece model that the model was trained with"
        )


def weights_folder(folder: str | Path) -> Path | None:
    """Return the folder of CTranslate2's model in a folder, or None if there is none."""
    given = Path(folder)
    if (given / CTRANSLATE2_FILE).is_file():
        return given
    if (given / METADATA_FILE).is_file() and (given / ARGOS_MODEL / CTRANSLATE2_FILE).is_file():
        return given / ARGOS_MODEL
    return None


def is_foreign(folder: str | Path) -> bool:
    """Say whether a folder holds a model for CTranslate2 that `tt export` did not write."""
    given, found = Path(folder), weights_folder(folder)
    if found != given or (given / TOKENIZATION_FILE).is_file():
        return found is not None
    return not ((given / ABOUT_FILE).is_file() or (given / VOCABULARY_FILE).is_file())


def open_foreign(folder: str | Path, *, models: tuple[str, str] | None = None) -> ForeignModel:
    """Find out how a foreign folder is laid out.

    Args:
      folder: The folder.
      models: Paths of the SentencePiece models of both sides; None looks for them in the folder.

    Raises:
      UserError: A file of it is missing or cannot be read.
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
                raise ValueError("a SentencePiece model is in another folder")
            has_about = (given / ABOUT_FILE).is_file()
            about = read_json(given / ABOUT_FILE, dict) if has_about else {}
            data = parse_fields(TrainingData, about.get("about", {}).get("data", {}))
            return ForeignModel(folder=given, weights="", tokenization=tokenization, data=data)
        metadata = read_json(given / METADATA_FILE, dict) if found != given else {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{given} cannot be read ({error}): copy or import it again") from error
    source, target = models or _find_models(given)
    if found == given:
        tokenization = guess_tokenization(given, source_model=source, target_model=target)
        data = _languages_of_name(given.resolve().name)
        return ForeignModel(folder=given, weights="", tokenization=tokenization, data=data)
    prefix = (str(metadata["target_prefix"]),) if metadata.get("target_prefix") else ()
    tokenization = Tokenization(source_model=source, target_model=target, target_prefix=prefix)
    source, target = (str(metadata.get(name, "")) for name in ("from_code", "to_code"))
    data = TrainingData(source_language=source, target_language=target)
    return ForeignModel(folder=given, weights=ARGOS_MODEL, tokenization=tokenization, data=data)


def tells_languages(name: str) -> bool:
    """Say whether the name of a folder tells a model's languages.

    >>> tells_languages("opus-mt-en-de"), tells_languages("model")
    (True, False)
    """
    return _languages_of_name(name) != TrainingData()


def _languages_of_name(name: str) -> TrainingData:
    """Return the languages of a model that the name of its folder tells.

    >>> data = _languages_of_name("opus-mt-mul-en")  # from several languages
    >>> data.source_language, data.target_language
    ('', 'en')
    """
    matched = _OPUS_NAME.fullmatch(name.lower())
    codes = matched.groupdict() if matched else {}
    return TrainingData(
        **{f"{side}_language": code for side, code in codes.items() if is_one_language(code)}
    )


def guess_tokenization(weights: Path, *, source_model: str, target_model: str) -> Tokenization:
    """Return the tokens that a model needs next to those of a text, by its vocabularies.

    Models of Hugging Face need EOS after a source: for them, CTranslate2 adds none, and their
    decoder does not begin with BOS. Tokens of languages stand before a source, those of NLLB, M2M
    and mBART-50 also at the start of a translation. mBART-25 has no start token except that of the
    target language, and needs EOS and its language after a source.
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
    """Return the tokens of a model's translations that are no part of a text.

    The unknown token is not among them, because it stands for a part of a text.
    """
    settings = load_settings(weights)
    languages = language_tokens(load_tokens(weights, "target")).values()
    named = (settings[name] for name in ("bos_token", "eos_token", "decoder_start_token"))
    return {"<pad>", "<mask>", *languages, *named} - {None, settings["unk_token"]}


def _find_models(folder: Path) -> tuple[str, str]:
    """Return the names of the SentencePiece models of both sides.

    Raises:
      UserError: There are none, or their names do not tell which is which.
    """
    there = {path.name for path in folder.iterdir() if path.suffix in (".spm", ".model")}
    for pair in (*_PAIRS, *((name, name) for name in _SHARED)):
        if there.issuperset(pair):
            return pair
    if len(there) == 1 and not there & {"bpe.model", *_PAIRS[0], *_PAIRS[1]}:
        return min(there), min(there)
    raise UserError(
        f"{folder} must have its SentencePiece models beside it, source.spm and target.spm or "
        f"sentencepiece.bpe.model; it has {', '.join(sorted(there)) or 'none'}: copy them from "
        "where the model came, or name them to `tt import ctranslate2`"
    )


def token_files(folder: Path) -> list[str]:
    """Return the names of all files that map ids to tokens."""
    found = {file for side in ("source", "target") if (file := _token_file(folder, side))}
    return sorted(file.name for file in found)


def _token_file(folder: Path, side: str) -> Path | None:
    names = [f"{name}_vocabulary.{end}" for name in ("shared", side) for end in ("json", "txt")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def load_tokens(folder: Path, side: str) -> list[str]:
    """Return CTranslate2's tokens of a side, "source" or "target", by their ids.

    Raises:
      UserError: There is no such file, or it cannot be read.
    """
    path = _token_file(folder, side)
    if path is None:
        raise UserError(f"{folder} has no {side}_vocabulary.json: copy the whole folder again")
    try:
        if path.suffix == ".json":
            tokens: list[Any] = read_json(path, list)
        else:
            # Only \n ends a line: a token may contain U+2028 and other line separators.
            tokens = read_text(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
        if not all(isinstance(token, str) for token in tokens):
            raise ValueError("a token in it is no text")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): write the folder again") from error
    return tokens


def load_settings(folder: Path) -> dict[str, Any]:
    """Return the content of config.json with CTranslate2's defaults, also if there is no file.

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
            f"{path} cannot be read as CTranslate2's ({error}): convert the model again"
        ) from error
    return read


def read_sizes(folder: Path) -> Sizes:
    """Read the header of a model.bin and the shapes of its weights, but not the weights.

    A file of before 2021 declares no sizes.

    Raises:
      UserError: The file is not CTranslate2's, its model does not translate, or it is cut off.
    """
    path = folder / CTRANSLATE2_FILE
    try:
        with path.open("rb") as file:
            version = _number(file, "I")
            kind = _string(file)
            if kind.isidentifier() and kind != "TransformerSpec":
                raise UserError(
                    f"{path} is CTranslate2's {kind}, which does not translate: choose a model "
                    "with an encoder and a decoder of texts"
                )
            _number(file, "I")  # its revision
            if version < _OLDEST:
                return Sizes()
            shapes = _read_shapes(file, end=path.stat().st_size)
    except (struct.error, ValueError) as error:
        raise UserError(
            f"{path} is cut off, or no weights of CTranslate2's ({error}): copy it again"
        ) from error
    rows = {name: shape[0] for name, shape in shapes.items() if shape}
    tables = [f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")]
    return Sizes(
        source=rows.get("encoder/embeddings_0/weight", rows.get("encoder/embeddings/weight", 0)),
        target=rows.get("decoder/embeddings/weight", 0),
        positions=min([*(rows[name] for name in tables if name in rows), POSITIONS]),
    )


def _read_shapes(file: BinaryIO, *, end: int) -> dict[str, list[int]]:
    """Return the shapes of weights by their names, and by their other names.

    Raises:
      ValueError, struct.error: The file ends before they do.
    """
    shapes: dict[str, list[int]] = {}
    for _ in range(_number(file, "I")):
        name = _string(file)
        shapes[name] = [_number(file, "I") for _ in range(_number(file, "B"))]
        item, content = _number(file, "B"), _number(file, "I")
        # CTranslate2 reads as many bytes as the shape needs, even if the file has fewer.
        is_whole = item < len(_ITEM_BYTES) and file.tell() + content <= end
        if not is_whole or content != math.prod(shapes[name]) * _ITEM_BYTES[item]:
            raise ValueError(f"{name!r} has {content:,} bytes, which is not the size of its shape")
        file.seek(content, 1)
    for _ in range(_number(file, "I")):
        alias = _string(file)
        shapes[alias] = shapes.get(_string(file), [])
    return shapes


def _number(file: BinaryIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0])


def _string(file: BinaryIO) -> str:
    return file.read(_number(file, "H")).rstrip(b"\0").decode()
