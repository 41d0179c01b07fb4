"""The files of a model in Hugging Face's layout, except the content of its weights.

Source:
  `configuration_*.py` and `tokenization_*.py` of marian, m2m_100 and nllb in
  huggingface/transformers, version 4.57.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tt.model.errors import UserError, first_line
from tt.model.formats.foreign import check_share, piece_names, weights_folder
from tt.model.json_files import read_json
from tt.model.text.tokenization import (
    SOURCE_LANGUAGE,
    START_TOKEN,
    TARGET_LANGUAGE,
    Tokenization,
    language_tokens,
    load_pieces,
)

MARIAN, M2M100 = "MarianMTModel", "M2M100ForConditionalGeneration"
CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
SOURCE_PIECES, TARGET_PIECES, SHARED_PIECES = "source.spm", "target.spm", "sentencepiece.bpe.model"
CARD = "README.md"
# The files that a model may have, besides its weights.
SMALL_FILES = (
    CONFIG, GENERATION, TOKENIZER, SPECIAL_TOKENS, VOCABULARY, TARGET_VOCABULARY, SOURCE_PIECES,
    TARGET_PIECES, SHARED_PIECES, CARD,
)  # fmt: skip

SAFETENSORS, PYTORCH = "model.safetensors", "pytorch_model.bin"
# The files with weights that this module reads, in the order of preference. An index lists the
# shards of a large model.
PREFERRED = (SAFETENSORS, f"{SAFETENSORS}.index.json", PYTORCH, f"{PYTORCH}.index.json")
_OTHERS = {"tf_model.h5": "TensorFlow", "flax_model.msgpack": "Flax", "rust_model.ot": "Rust"}

_DEFAULTS: dict[str, dict[str, Any]] = {  # of fields that config.json may omit
    MARIAN: {
        "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
        "activation_function": "gelu", "scale_embedding": False, "max_position_embeddings": 1024,
        "vocab_size": 58101, "decoder_start_token_id": 58100, "eos_token_id": 0,
        "pad_token_id": 58100,
    },
    M2M100: {
        "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
        "activation_function": "relu", "scale_embedding": True, "max_position_embeddings": 1024,
        "vocab_size": 128112, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
    },
}  # fmt: skip
_MOST = {  # far above every known model; without limits, a file of a few bytes fills the memory
    "vocab_size": 2**20, "layers": 200, "attention_heads": 2**10, "ffn_dim": 2**16,
    "d_model": 2**16, "max_position_embeddings": 2**16,
}  # fmt: skip
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
_TOKENIZERS = {
    "MarianTokenizer", "M2M100Tokenizer", "NllbTokenizer", "NllbTokenizerFast", "SMALL100Tokenizer",
}  # fmt: skip
_SMALL100 = "SMALL100Tokenizer"  # puts the target language before the source
_FAIRSEQ = ["<s>", "<pad>", "</s>", "<unk>"]  # the first tokens of NLLB
_SKIPPED_PIECES = 3  # SentencePiece's own special pieces, which these tokens replace
# The languages of M2M-100 in the order of their ids. Transformers 5 stores only the name of this
# list, which is the default of `language_codes`.
_M2M100_CODES = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu "
    "ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr "
    "ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk "
    "ur uz vi wo xh yi yo zh zu"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """The encoder or the decoder of a model.

    Attributes:
      layers: The number of layers.
      heads: The number of attention heads.
      d_ff: The inner width of the feed-forward layers.
      tokens: The tokens in the order of their ids, one per row of the embedding table.
    """

    layers: int
    heads: int
    d_ff: int
    tokens: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model without its weights.

    Attributes:
      folder: The folder of the model.
      architecture: MARIAN or M2M100.
      d_model: The width of the model.
      encoder: The encoder.
      decoder: The decoder.
      activation: The activation in the feed-forward layers, as in `TransformerConfig`.
      is_scaled: Whether the embeddings are multiplied by the square root of the width.
      positions: The number of positions.
      is_shared: Whether both sides have one table of embeddings.
      is_tied: Whether the logits use the target embeddings.
      start: The id of the first token of the decoder.
      end: The id of EOS.
      never: The ids that the model must never choose.
      tokenization: The SentencePiece models, and the tokens to add.
    """

    folder: Path
    architecture: str
    d_model: int
    encoder: Side
    decoder: Side
    activation: str
    is_scaled: bool
    positions: int
    is_shared: bool
    is_tied: bool
    start: int
    end: int
    never: tuple[int, ...]
    tokenization: Tokenization

    @property
    def is_multilingual(self) -> bool:
        """Whether the source needs a language token."""
        return bool(self.tokenization.has_source_language or self.tokenization.has_target_language)


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder has the layout of Hugging Face, and no CTranslate2 model."""
    if weights_folder(folder) is not None:
        return False
    try:
        return (folder / CONFIG).is_file() and "model_type" in read_json(folder / CONFIG, dict)
    except (OSError, ValueError):
        return False


def check_configuration(config: Mapping[str, Any], *, model: str) -> str:
    """Return the architecture in a config.json.

    Args:
      config: The content of config.json.
      model: The model, for messages.

    Raises:
      UserError: `tt` does not support the architecture.
    """
    found = config.get("architectures") or [f"model_type {config.get('model_type')!r}"]
    if "auto_map" in config:
        raise UserError(
            f"{model} needs program code from its own repository, which tt never executes. Choose "
            f"a model of the architecture {MARIAN} or {M2M100}"
        )
    if found not in ([MARIAN], [M2M100]):
        raise UserError(
            f"{model} has the architecture {', '.join(map(str, found))}, but tt supports only "
            f"{MARIAN} (OPUS-MT) and {M2M100} (M2M-100, NLLB). Choose another model"
        )
    if config.get("quantization_config"):
        raise UserError(
            f"{model} is quantized. Choose the original model; `compute_type` quantizes it"
        )
    return str(found[0])


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the files of a model, except the weights.

    Raises:
      UserError: A file is missing or damaged, or `tt` does not support the model.
    """
    try:
        return _read_checkpoint(folder)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{folder} has a damaged {CONFIG}, {TOKENIZER} or {VOCABULARY} "
            f"({type(error).__name__}: {first_line(error)}). Download the model again"
        ) from error


def _read_checkpoint(folder: Path) -> Checkpoint:
    config = _read(folder / CONFIG)
    architecture = check_configuration(config, model=str(folder))
    settings = {**_DEFAULTS[architecture], **config}
    if (folder / GENERATION).is_file():
        settings |= {k: v for k, v in _read(folder / GENERATION).items() if v is not None}
    settings["decoder_vocab_size"] = settings.get("decoder_vocab_size") or settings["vocab_size"]
    is_shared = bool(settings.get("share_encoder_decoder_embeddings", True))
    rows = [
        _number(settings, "vocab_size", folder=folder),
        _number(settings, "decoder_vocab_size", folder=folder),
    ]
    options = _read(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else {}
    if (name := options.get("tokenizer_class", "MarianTokenizer")) not in _TOKENIZERS:
        raise UserError(f"{folder} has a {name}, which tt does not support. Choose another model")
    read_tokens = _marian_tokens if architecture == MARIAN else _m2m100_tokens
    lists, tokenization = read_tokens(folder, options, end=settings["eos_token_id"])
    tokens = [
        _fill(each, rows=count, folder=folder)
        for each, count in zip((lists[0], lists[-1]), rows, strict=True)
    ]
    sides = [
        Side(
            layers=_number(settings, f"{side}_layers", folder=folder),
            heads=_number(settings, f"{side}_attention_heads", folder=folder),
            d_ff=_number(settings, f"{side}_ffn_dim", folder=folder),
            tokens=each,
        )
        for side, each in zip(("encoder", "decoder"), tokens, strict=True)
    ]
    activation = settings["activation_function"]
    if activation not in _ACTIVATIONS:
        raise _unsupported(folder, "activation_function", activation)
    found = Checkpoint(
        folder=folder,
        architecture=architecture,
        d_model=_number(settings, "d_model", folder=folder),
        encoder=sides[0],
        decoder=sides[1],
        activation=_ACTIVATIONS[activation],
        is_scaled=bool(settings["scale_embedding"]),
        positions=_number(settings, "max_position_embeddings", folder=folder),
        is_shared=is_shared,
        is_tied=bool(settings.get("tie_word_embeddings", True)),
        start=settings["decoder_start_token_id"],
        end=settings["eos_token_id"],
        never=_bad_ids(settings, folder=folder),
        tokenization=tokenization,
    )
    size = len(found.decoder.tokens)
    never = [("bad_words_ids", number) for number in found.never]
    for name, number in (
        ("decoder_start_token_id", found.start), ("eos_token_id", found.end), *never,
    ):  # fmt: skip
        if type(number) is not int or not 0 <= number < size:
            raise _unsupported(folder, name, number)
    return found


def _bad_ids(settings: Mapping[str, Any], *, folder: Path) -> tuple[int, ...]:
    """Return the ids that generation must never choose.

    Raises:
      UserError: A sequence of several ids must not be chosen.
    """
    words = settings.get("bad_words_ids") or []
    if not all(isinstance(word, list) and len(word) == 1 for word in words):
        raise _unsupported(folder, "bad_words_ids", words)
    suppressed = settings.get("suppress_tokens") or []
    return tuple(sorted({word[0] for word in words} | set(suppressed)))


def _marian_tokens(
    folder: Path, options: Mapping[str, Any], *, end: int
) -> tuple[list[list[str]], Tokenization]:
    """Return the tokens of the sides of an OPUS-MT model, or of both sides, in order of ids."""
    _check_pieces(folder, SOURCE_PIECES, TARGET_PIECES)
    has_two = options.get("separate_vocabs") or (folder / TARGET_VOCABULARY).is_file()
    names = (VOCABULARY, TARGET_VOCABULARY) if has_two else (VOCABULARY,)
    lists = [_in_order(_read(folder / name), path=folder / name) for name in names]
    for name, tokens in ((SOURCE_PIECES, lists[0]), (TARGET_PIECES, lists[-1])):
        check_share(folder / name, piece_names(load_pieces(folder / name)), set(tokens))
    prefix: tuple[str, ...] = (TARGET_LANGUAGE,) if language_tokens(lists[0]) else ()
    if START_TOKEN in lists[0]:  # `tt export` wrote the model
        prefix = (START_TOKEN,)
    return lists, Tokenization(
        source_model=SOURCE_PIECES,
        target_model=TARGET_PIECES,
        source_prefix=prefix,
        source_suffix=(lists[0][end],),
    )


def _m2m100_tokens(
    folder: Path, options: Mapping[str, Any], *, end: int
) -> tuple[list[list[str]], Tokenization]:
    """Return the tokens of M2M-100 or NLLB, in the order of their ids."""
    _check_pieces(folder, SHARED_PIECES)
    pieces = piece_names(load_pieces(folder / SHARED_PIECES))
    if (folder / VOCABULARY).is_file():
        tokens = _in_order(_read(folder / VOCABULARY), path=folder / VOCABULARY)
        check_share(folder / SHARED_PIECES, pieces, set(tokens))
    else:
        tokens = [*_FAIRSEQ, *pieces[_SKIPPED_PIECES:]]
    special = _read(folder / SPECIAL_TOKENS) if (folder / SPECIAL_TOKENS).is_file() else {}
    added = {int(i): _content(each) for i, each in options.get("added_tokens_decoder", {}).items()}
    if not added:
        names = [
            _content(each)
            for each in options.get("additional_special_tokens")
            or special.get("additional_special_tokens")
            or ()
        ]
        added = dict(enumerate(names, start=len(tokens)))
    if max(added, default=0) >= _MOST["vocab_size"]:
        raise ValueError(f"the id {max(added)} of a token is too large")
    for number, name in sorted(added.items()):
        if number >= len(tokens):
            tokens += [f"<no token {i}>" for i in range(len(tokens), number)]
            tokens.append(name)
    is_m2m100 = options.get("tokenizer_class") == "M2M100Tokenizer"
    if is_m2m100 and not language_tokens(tokens) and options.get("language_codes") == "m2m100":
        tokens += [f"__{code}__" for code in _M2M100_CODES.split()]
    if not language_tokens(tokens):
        raise UserError(
            f"{folder} does not list the language tokens of the model: {TOKENIZER} or "
            f"{SPECIAL_TOKENS} is incomplete. Download the model again"
        )
    before: tuple[str, ...] = (SOURCE_LANGUAGE,)
    after: tuple[str, ...] = (tokens[end],)
    if options.get("tokenizer_class") == _SMALL100:
        before = (TARGET_LANGUAGE,)
    elif options.get("legacy_behaviour"):  # of NLLB's first release
        before, after = (), (tokens[end], SOURCE_LANGUAGE)
    return [tokens], Tokenization(
        source_model=SHARED_PIECES,
        target_model=SHARED_PIECES,
        source_prefix=before,
        source_suffix=after,
        target_prefix=() if options.get("tokenizer_class") == _SMALL100 else (TARGET_LANGUAGE,),
    )


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _check_pieces(folder: Path, *names: str) -> None:
    for name in names:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} has no {name}. tt supports only tokenizers of SentencePiece. Choose "
                "another model or revision"
            )


def _in_order(ids: Mapping[str, Any], *, path: Path) -> list[str]:
    names = sorted(ids, key=lambda name: ids[name])
    if [ids[name] for name in names] != list(range(len(names))):
        raise UserError(
            f"{path} must number its {len(names):,} tokens from 0. Download the model again"
        )
    return names


def _fill(tokens: Sequence[str], *, rows: int, folder: Path) -> list[str]:
    """Return the tokens with names for the rows of the embeddings that have no token."""
    if len(tokens) > rows:
        raise UserError(
            f"{folder} has {len(tokens):,} tokens, but {rows:,} embeddings according to {CONFIG}. "
            "Download the model again, or choose another one"
        )
    return [*tokens, *(f"<no token {number}>" for number in range(len(tokens), rows))]


def _number(settings: Mapping[str, Any], name: str, *, folder: Path) -> int:
    value = settings[name]
    most = _MOST[name.partition("coder_")[2] or name]  # both sides have the same limits
    if type(value) is not int or not 1 <= value <= most:
        raise _unsupported(folder, name, value)
    return value


def _unsupported(folder: Path, name: str, value: Any) -> UserError:
    return UserError(
        f"{folder} has {name}={reprlib.repr(value)} in {CONFIG}, which tt does not support. Choose "
        "another model"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        # Tokenizers without a limit of length have 10^30 as `model_max_length`.
        return read_json(path, dict, has_large_numbers=path.name == TOKENIZER)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({first_line(error)}). Download the model again"
        ) from error


def files_of(names: Iterable[str]) -> list[str]:
    """Return the names of the small files of a model that `read_checkpoint` reads."""
    known = set(names)
    return [name for name in SMALL_FILES if name in known]


def choose_weights(names: Iterable[str], *, model: str) -> str:
    """Return the name of the file with a model's weights, or of the index of several files.

    Args:
      names: The names of the files of the model.
      model: The model, for the message.

    Raises:
      UserError: There are no weights that this module reads.
    """
    known = set(names)
    if found := next((name for name in PREFERRED if name in known), None):
        return found
    others = [program for name, program in _OTHERS.items() if name in known]
    has = f"only has weights for {' and '.join(others)}" if others else "has no weights"
    raise UserError(
        f"{model} {has}, but tt needs {SAFETENSORS} or {PYTORCH}. Choose another model or revision"
    )


def shards_in(index: Path) -> list[str]:
    """Return the names of the files that an index lists.

    Raises:
      UserError: The index is damaged, or lists files outside its folder.
    """
    try:
        names = sorted(set(read_json(index, dict)["weight_map"].values()))
        if not names or not all(name == Path(name).name for name in names):
            raise ValueError("it lists files in another folder, or none")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(
            f"{index} cannot be read ({first_line(error)}). Download the model again"
        ) from error
    return names


def weight_files(folder: Path) -> list[Path]:
    """Return the files with the weights of a model.

    Raises:
      UserError: There are no weights that this module reads, or a shard is missing.
    """
    chosen = choose_weights((path.name for path in folder.iterdir()), model=str(folder))
    if not chosen.endswith(".json"):
        return [folder / chosen]
    paths = [folder / name for name in shards_in(folder / chosen)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise UserError(
            f"{folder} lacks {len(missing)} of {len(paths)} files with weights, such as "
            f"{missing[0]}. Download the model again"
        )
    return paths
