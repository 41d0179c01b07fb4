"""Models of other programs for CTranslate2: the one place that knows how their folders look.

- What CTranslate2's converters write, beside its SentencePiece models: OPUS-MT and Marian
  (`source.spm`, `target.spm`), OpenNMT, fairseq, NLLB and M2M (`sentencepiece.bpe.model`).
- A package of Argos Translate: `model/`, `sentencepiece.model` and `metadata.json`.
- What `tt import` writes: `tokenization.json` says all of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import regex

from model.errors import UserError
from model.folders.json_files import check_fields, read_json
from model.formats.ctranslate2_files import (
    CTRANSLATE2_CONFIG,
    CTRANSLATE2_FILE,
    TRANSFORMER,
    load_settings,
    load_tokens,
    read_sizes,
    token_files,
)
from model.formats.model_card import TrainingData
from model.text.languages import is_one_language
from model.text.tokenization import (
    SOURCE_LANGUAGE,
    TARGET_LANGUAGE,
    Tokenization,
    language_tokens,
    load_pieces,
)
from model.text.vocabulary import VOCABULARY_FILE

TOKENIZATION_FILE = "tokenization.json"
METADATA_FILE = "metadata.json"  # of Argos Translate
_ABOUT_FILE = "about.json"  # of exports of ours
ARGOS_MODEL = "model"  # folder of the weights
_PAIRS = (("source.spm", "target.spm"), ("source.model", "target.model"))
_SHARED = (
    "sentencepiece.bpe.model", "sentencepiece.model", "spm.model", "spiece.model", "sp.model",
    "flores200_sacrebleu_tokenizer_spm.model", "spm.128k.model", "vocabulary.spm",
)  # fmt: skip
_OPUS_NAME = regex.compile(
    r"(?:.*[-_.])?opus-?mt-(?:tc-(?:big|base)-)?(?P<source>[a-z]{2,3})-(?P<target>[a-z]{2,3})"
    r"(?:[-_.].*)?"
)
_OWN_SIGN = regex.compile(
    r"<.*>|>>.*<<|__.*__|[a-z]{2,3}_[A-Z][A-Za-z]+|madeupword\d+|averageww\d+"
)
_LEAST_KNOWN = 0.8  # share of pieces that a vocabulary must have, and of tokens that are pieces

_OF_PYTORCH = "ct2-opennmt-py-converter` or `ct2-fairseq-converter"
_CONVERT = "convert it with CTranslate2's `{}`, and copy its SentencePiece models beside model.bin"
_OTHER_TOOLS = {
    "*.npz": ("Marian model", "make a model folder of its .npz with `tt import marian`"),
    "pytorch_model*.bin": ("Hugging Face model", _CONVERT.format("ct2-transformers-converter")),
    "*.safetensors": ("Hugging Face model", _CONVERT.format("ct2-transformers-converter")),
    "tf_model.h5": ("Hugging Face model", _CONVERT.format("ct2-transformers-converter")),
    "*.pt": ("PyTorch model", _CONVERT.format(_OF_PYTORCH)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """A model of another program, in a folder as it was found.

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
        names = self.weights_files
        own = [n for n in (TOKENIZATION_FILE, _ABOUT_FILE) if (self.folder / n).is_file()]
        return [*(inside + name for name in names), *self.tokenization.models, *own]

    @property
    def weights_files(self) -> list[str]:
        """The names of the files that CTranslate2 loads."""
        names = [CTRANSLATE2_FILE, *token_files(self.weights_folder)]
        has_config = (self.weights_folder / CTRANSLATE2_CONFIG).is_file()
        return [*names, CTRANSLATE2_CONFIG] if has_config else names

    @property
    def languages(self) -> dict[str, str]:
        """Tokens of its languages by their codes; empty of a model of two languages."""
        tokenization = self.tokenization
        if not (tokenization.has_source_language or tokenization.has_target_language):
            return {}
        tokens = load_tokens(self.weights_folder, "source")
        return language_tokens(tokens) or language_tokens(
            load_tokens(self.weights_folder, "target")
        )

    def check(self, *, source: str = "", target: str = "", has_target: bool = True) -> None:
        """Checks that it can translate between two languages; reads no weights.

        Args:
          source: Code of the language of the texts, or "".
          target: Code of the language to translate into, or "".
          has_target: Whether there is one target language; else each row names its own.

        Raises:
          UserError: The model is none that translates, its SentencePiece models are missing or
            another's, or it is not told a language.
        """
        self.check_pieces()
        tokenization, languages = self.tokenization, self.languages
        if not has_target:
            if not tokenization.has_target_language:
                raise UserError(
                    f"`target_language_column` is for models of several languages, and "
                    f"{self.folder} is told none: leave it out"
                )
            target = next(iter(languages), "")
        tokenization.between(source=source, target=target, languages=languages)

    def check_pieces(self) -> None:
        """Checks that weights, vocabularies and SentencePiece models belong together.

        Raises:
          UserError: They do not.
        """
        sizes = read_sizes(self.weights_folder)
        if sizes.kind != TRANSFORMER:
            raise UserError(
                f"the model must be one that translates, of an encoder and a decoder; "
                f"{self.folder} is CTranslate2's {sizes.kind}: name another"
            )
        tokens = {side: load_tokens(self.weights_folder, side) for side in ("source", "target")}
        for side, rows in (("source", sizes.source), ("target", sizes.target)):
            if rows and rows != len(tokens[side]):
                raise UserError(
                    f"the {side} vocabulary of {self.folder} has {len(tokens[side]):,} tokens, its "
                    f"model.bin {rows:,}: copy the whole folder again from where it came"
                )
        pieces = {name: _pieces_of(self.folder / name) for name in self.tokenization.models}
        source, target = (
            pieces[name]
            for name in (self.tokenization.source_model, self.tokenization.target_model)
        )
        known = source | target if tokens["source"] == tokens["target"] else target
        for name, wanted, there in (
            (self.tokenization.source_model, source, tokens["source"]),
            (self.tokenization.target_model, tokens["target"], known),
        ):
            _check_share(self.folder / name, wanted, there, size=len(pieces[name]))
        settings = load_settings(self.weights_folder)
        tokenization = self.tokenization
        for side, added in (
            ("source", tokenization.source_prefix + tokenization.source_suffix),
            ("target", tokenization.target_prefix),
        ):
            known = {*tokens[side], SOURCE_LANGUAGE, TARGET_LANGUAGE, settings["eos_token"]}
            for token in added:
                if token not in known:
                    raise UserError(
                        f"the {side} vocabulary of {self.folder} has no token {token!r}, which "
                        f"the {side}'s prefix or suffix names: name one of its own"
                    )
        if settings["decoder_start_token"] is None and not tokenization.target_prefix:
            raise UserError(
                f"{CTRANSLATE2_CONFIG} of {self.folder} names no `decoder_start_token`: its "
                "translations begin with a token that must be given. Name it to `tt import "
                "ctranslate2` as `--target-prefix`"
            )


def _pieces_of(path: Path) -> set[str]:
    processor = load_pieces(path)
    return {processor.id_to_piece(i) for i in range(processor.get_piece_size())}


def _check_share(path: Path, wanted: Iterable[str], there: Iterable[str], *, size: int) -> None:
    """Raises a UserError unless nearly all tokens that are wanted are there."""
    learnt = [token for token in wanted if not _OWN_SIGN.fullmatch(token)]
    missing = set(learnt).difference(there)
    if learnt and len(missing) > (1 - _LEAST_KNOWN) * len(learnt):
        raise UserError(
            f"{path} is another model's: it has {size:,} pieces, and {len(missing):,} of "
            f"{len(learnt):,} are not the same in the model's vocabulary, {min(missing)!r} for "
            "example. Copy the SentencePiece model from where this model came, or name it to "
            "`tt import ctranslate2`"
        )


def weights_folder(folder: str | Path) -> Path | None:
    """Returns where CTranslate2's model lies in a folder, or None where there is none."""
    given = Path(folder)
    if (given / CTRANSLATE2_FILE).is_file():
        return given
    if (given / METADATA_FILE).is_file() and (given / ARGOS_MODEL / CTRANSLATE2_FILE).is_file():
        return given / ARGOS_MODEL
    return None


def is_foreign(folder: str | Path) -> bool:
    """Says whether a folder holds a model for CTranslate2 that `tt export` did not write."""
    found = weights_folder(folder)
    if found is None:
        return False
    given = Path(folder)
    if found != given or (given / TOKENIZATION_FILE).is_file():
        return True
    return not ((given / _ABOUT_FILE).is_file() or (given / VOCABULARY_FILE).is_file())


def open_foreign(folder: str | Path, *, models: tuple[str, str] | None = None) -> ForeignModel:
    """Finds out how a foreign folder is laid out.

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
    if saved.is_file() and models is None:
        about = given / _ABOUT_FILE
        try:
            values = _read_json(saved)
            check_fields(Tokenization, values)
            tokenization = Tokenization.from_json(values)
            data = _read_json(about).get("about", {}).get("data", {}) if about.is_file() else {}
            training = TrainingData.from_json(data)
            if not all(map(_is_file_name, tokenization.models)):
                raise TypeError("a SentencePiece model is in another folder")
        except (AttributeError, TypeError) as error:
            raise UserError(
                f"{saved} or {about.name} cannot be read ({error}): import the model again"
            ) from error
        return ForeignModel(folder=given, weights="", tokenization=tokenization, data=training)
    source, target = models or _find_models(given)
    if found != given:
        return _open_argos(given, models=(source, target))
    return ForeignModel(
        folder=given,
        weights="",
        tokenization=guess_tokenization(given, source_model=source, target_model=target),
        data=_languages_of_name(given.resolve().name),
    )


def _is_file_name(name: str) -> bool:
    return name not in ("", "..") and "\0" not in name and Path(name).name == name


def tells_languages(name: str) -> bool:
    """Says whether the name of a folder tells a model's languages.

    >>> tells_languages("opus-mt-en-de"), tells_languages("model")
    (True, False)
    """
    return _languages_of_name(name) != TrainingData()


def _languages_of_name(name: str) -> TrainingData:
    """Returns the languages of a model that the name of its folder tells.

    >>> data = _languages_of_name("opus-mt-mul-en")  # from several languages
    >>> data.source_language, data.target_language
    ('', 'en')
    """
    matched = _OPUS_NAME.fullmatch(name.lower())
    if matched is None:
        return TrainingData()
    source, target = (
        matched[side] if is_one_language(matched[side]) else "" for side in ("source", "target")
    )
    return TrainingData(source_language=source, target_language=target)


def _open_argos(folder: Path, *, models: tuple[str, str]) -> ForeignModel:
    metadata = _read_json(folder / METADATA_FILE)
    prefix = str(metadata.get("target_prefix") or "")
    return ForeignModel(
        folder=folder,
        weights=ARGOS_MODEL,
        tokenization=Tokenization(
            source_model=models[0],
            target_model=models[1],
            target_prefix=(prefix,) if prefix else (),
        ),
        data=TrainingData(
            source_language=str(metadata.get("from_code", "")),
            target_language=str(metadata.get("to_code", "")),
        ),
    )


def guess_tokenization(weights: Path, *, source_model: str, target_model: str) -> Tokenization:
    """Returns the tokens that a model wants beside those of a text, by its vocabularies.

    Models of Hugging Face want EOS behind a source: there, CTranslate2 adds none, and their
    decoder does not begin with BOS. Tokens of languages stand before a source, those of NLLB, M2M
    and mBART-50 also at the begin of a translation. mBART-25 has no start token but that of the
    target language, and wants EOS and its language behind a source.
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
    """Returns the tokens of a model's translations that are no part of a text.

    The token of what is unknown is not among them: it stands for a part of a text.
    """
    settings = load_settings(weights)
    languages = language_tokens(load_tokens(weights, "target")).values()
    named = (settings[name] for name in ("bos_token", "eos_token", "decoder_start_token"))
    return {"<pad>", "<mask>", *languages, *named} - {None, settings["unk_token"]}


def _find_models(folder: Path) -> tuple[str, str]:
    """Returns the names of the SentencePiece models of both sides.

    Raises:
      UserError: There are none, or their names do not tell which is which.
    """
    for pair in _PAIRS:
        if all((folder / name).is_file() for name in pair):
            return pair
    for name in _SHARED:
        if (folder / name).is_file():
            return name, name
    others = sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix in (".spm", ".model") and path.is_file()
    )
    if len(others) == 1 and others[0] not in ("bpe.model", *(n for pair in _PAIRS for n in pair)):
        return others[0], others[0]
    if "bpe.model" in others:
        raise UserError(
            f"{folder} cuts texts into tokens by bpe.model, which is not SentencePiece's: name a "
            "model with SentencePiece"
        )
    there = f"it has {', '.join(others)}" if others else "it has none"
    raise UserError(
        f"{folder} must have its SentencePiece models beside it, source.spm and target.spm or "
        f"sentencepiece.bpe.model; {there}: copy them from where the model came, or name them to "
        "`tt import ctranslate2`"
    )


def describe_other_tool(folder: Path) -> str | None:
    """Says what to do with a folder or file of another program; None where it is not known."""
    names = [folder.name] if folder.is_file() else [path.name for path in _entries(folder)]
    for pattern, (kind, remedy) in _OTHER_TOOLS.items():
        found = [name for name in names if Path(name).match(pattern)]
        if found:
            return f"{folder} is a {kind} ({min(found)}): {remedy}"
    return None


def _entries(folder: Path) -> Sequence[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_json(path, dict)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): copy the folder again") from error
