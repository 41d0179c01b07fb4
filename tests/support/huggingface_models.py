"""Transformers itself, in its own environments, and models in Hugging Face's layout for it."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from tt.pipelines.preprocess.ready_made import held_out_pairs, train_pairs

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("huggingface_program.py")
PYTHON = Path(os.environ.get("TT_HUGGINGFACE_PYTHON", ROOT / ".venv/huggingface/bin/python"))
OLD_PYTHON = Path(
    os.environ.get("TT_HUGGINGFACE_OLD_PYTHON", ROOT / ".venv/huggingface-old/bin/python")
)
CACHE = ROOT / ".cache/huggingface"

# The last training pairs contain variables and tags, which `tt` protects.
PLAIN_PAIRS = train_pairs()[:24_000]
HELD_OUT = [pair.source for pair in held_out_pairs()]
REFERENCES = [pair.target for pair in held_out_pairs()]
_OTHERS = list(dict.fromkeys(source for source, _ in PLAIN_PAIRS[::20]))
TEXTS = [*dict.fromkeys(HELD_OUT), *_OTHERS][:1000]
ENGLISH, SPANISH = [[pair[side] for pair in PLAIN_PAIRS[:6000]] for side in (0, 1)]

EOS, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"


class Transformers:
    """A process that runs `huggingface_program.py`."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            ["nice", python, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        """Return a function of the program."""

        def call(folder: Path | None = None, **arguments: Any) -> Any:
            given = {} if folder is None else {"folder": folder}
            request = {"call": name, "arguments": {**given, **arguments}}
            print(json.dumps(request, default=str), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
            assert answer, "the program has ended"
            found = json.loads(answer)
            assert "error" not in found, found["error"]
            return found["result"]

        return call

    def stop(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """A model that is trained for seconds, so that its translations are varied, but wrong.

    Attributes:
      kind: The architecture and tokenizer, see `huggingface_program.create`.
      config: Fields of the configuration that differ from the kind's.
      languages: The language codes of source and target, if the model needs them.
      prefix: Text before each source for Transformers.
      options: Options of `tt translate`.
      has_two_vocabularies: Whether the source and the target have separate vocabularies.
      half: Store the weights as float16.
    """

    kind: str = "marian"
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    languages: tuple[str, str] = ("", "")
    prefix: str = ""
    options: tuple[str, ...] = ()
    has_two_vocabularies: bool = False
    half: bool = False


_SHAPE = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    "init_std": 0.1,
}  # fmt: skip
MULTILINGUAL = ("deu", "spa", "por")
VARIANTS = {
    "marian": Variant(),
    "marian, output not tied": Variant(config={"tie_word_embeddings": False}),
    "marian, two vocabularies": Variant(
        config={"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
        has_two_vocabularies=True,
    ),
    "marian, multilingual": Variant(
        prefix=">>spa<< ", options=("--target-language", "spa")
    ),
    "marian, relu": Variant(
        config={
            "activation_function": "relu", "scale_embedding": False, "encoder_layers": 3,
            "decoder_layers": 1,
        }
    ),
    "marian, float16": Variant(half=True),
    "m2m100": Variant(
        kind="m2m100", languages=("en", "es"),
        options=("--source-language", "en", "--target-language", "es"),
    ),
    "nllb": Variant(
        kind="nllb", languages=("eng_Latn", "spa_Latn"),
        options=("--source-language", "en", "--target-language", "es"),
    ),
}  # fmt: skip


def create(
    program: Transformers,
    folder: Path,
    variant: Variant,
    *,
    old: Transformers | None = None,
    size: int = 400,
    **options: Any,
) -> Path:
    """Write a model with trained vocabularies; return its folder.

    Args:
      program: Trains the model and writes it.
      folder: The output folder.
      variant: The model.
      old: Transformers 4, which writes the tokenizers of NLLB; other variants do not need it.
      size: The number of pieces per language.
      **options: See `huggingface_program.create`.
    """
    pieces = folder.with_name(f"{folder.name}-pieces")
    made = arguments(variant, pieces=pieces, size=size)
    if variant.kind == "nllb":
        tokenizer = pieces / "tokenizer"
        assert old is not None
        old.write_nllb_tokenizer(tokenizer, model=pieces / "sentencepiece.bpe.model")
        made["tokenizer"] = {"folder": tokenizer}
    # Both directions of M2M-100 take longer to learn.
    steps = 250 if variant.kind == "marian" else 500
    given = {"steps": steps, "batch": 48, "examples": examples_of(variant), **made, **options}
    done = program.create(folder, kind=variant.kind, half=variant.half, **given)
    print(f"{folder.name}: trained in {done['seconds']:.0f} s to a loss of {done['loss']:.2f}")
    return folder


def examples_of(variant: Variant) -> list[tuple[str, str, str, str]]:
    """Return the examples to train a variant with; language codes decide on the target."""
    one, other = variant.languages
    there = [(source, target, one, other) for source, target in PLAIN_PAIRS]
    if variant.prefix:
        copied = [(f">>deu<< {source}", source, "", "") for source, _ in PLAIN_PAIRS]
        return [(variant.prefix + source, *rest) for source, *rest in there] + copied
    if not other:
        return there
    return there + [(target, source, other, one) for source, target in PLAIN_PAIRS]


def arguments(variant: Variant, *, pieces: Path, size: int) -> dict[str, Any]:
    """Write vocabularies, and return the arguments of the tokenizer and the configurations."""
    pieces.mkdir(parents=True, exist_ok=True)
    if variant.kind == "marian":
        return _marian_arguments(variant, pieces, size)
    model = pieces / "sentencepiece.bpe.model"
    # NLLB has 202 languages, and `tt` refuses models in which a fifth of the tokens are no pieces.
    both = [*ENGLISH, *SPANISH]
    names = train_pieces(model, both, size=2 * size + 200, model_type="bpe")
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    tokenizer = {"vocab_file": str(model)}
    count = 4 + len(names) + 202 + 1  # languages and <mask>
    if variant.kind == "m2m100":
        tokens = ["<s>", PAD, EOS, UNKNOWN, *names]
        vocabulary = write_tokens(pieces / "vocab.json", tokens)
        tokenizer = {"vocab_file": str(vocabulary), "spm_file": str(model)}
        count = len(tokens) + 100 + 8  # languages and made-up words
    config = {
        **_SHAPE, "vocab_size": count, "max_position_embeddings": 1024, "scale_embedding": True,
        # Transformers 4 drops layers by chance, without the seed of PyTorch.
        "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
        **ids, **variant.config,
    }  # fmt: skip
    return {
        "tokenizer": tokenizer,
        "config": config,
        "generation": {**ids, "max_length": 128, "num_beams": 5},
    }


def _marian_arguments(variant: Variant, pieces: Path, size: int) -> dict[str, Any]:
    source = train_pieces(pieces / "source.spm", ENGLISH, size=size)
    target = train_pieces(pieces / "target.spm", SPANISH, size=size)
    codes = MULTILINGUAL if variant.prefix else ()
    sides = (source, target) if variant.has_two_vocabularies else ([*source, *target],)
    files = []
    for i, names in enumerate(sides):
        tokens = sorted(set(names))
        np.random.default_rng(3 + i).shuffle(tokens)
        tokens = [EOS, UNKNOWN, *tokens, *(f">>{code}<<" for code in codes), PAD]
        files.append((write_tokens(pieces / f"vocab-{i}.json", tokens), len(tokens)))
    tokenizer = {
        "source_spm": str(pieces / "source.spm"), "target_spm": str(pieces / "target.spm"),
        "vocab": str(files[0][0]),
    }  # fmt: skip
    # A model has one id of <pad>, so both vocabularies have the same size.
    pad = files[0][1] - 1
    config = {
        **_SHAPE, "vocab_size": pad + 1, "decoder_vocab_size": files[-1][1],
        "activation_function": "swish", "scale_embedding": True, "max_position_embeddings": 512,
        "decoder_start_token_id": pad, "pad_token_id": pad, "eos_token_id": 0,
        "forced_eos_token_id": 0, **variant.config,
    }  # fmt: skip
    if variant.has_two_vocabularies:
        assert files[0][1] == files[1][1]
        tokenizer |= {"target_vocab_file": str(files[1][0]), "separate_vocabs": True}
    generation = {
        "decoder_start_token_id": pad, "pad_token_id": pad, "eos_token_id": 0,
        "forced_eos_token_id": 0, "bad_words_ids": [[pad]], "max_length": 128, "num_beams": 4,
    }  # fmt: skip
    return {"tokenizer": tokenizer, "config": config, "generation": generation}


def train_pieces(path: Path, texts: list[str], *, size: int, **options: Any) -> list[str]:
    """Train a SentencePiece model, and return its pieces except <unk>, <s> and </s>.

    The pieces cover all characters. Otherwise models would learn to generate <unk>, which `tt`
    never generates with TensorFlow.
    """
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, vocab_size=size, num_threads=1,
            minloglevel=2, character_coverage=1.0, **options,
        )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]


def write_tokens(path: Path, tokens: list[str]) -> Path:
    """Write a vocab.json."""
    path.write_text(json.dumps({token: i for i, token in enumerate(tokens)}), "utf-8")
    return path


# Large enough to translate the held-out pairs well, and small enough to be trained in minutes.
_TRAINED = Variant(
    config={"d_model": 128, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "init_std": 0.08}
)
_TRAINING = {"size": 450, "steps": 1200, "batch": 64, "peak": 0.002, "warmup": 300}


def trained_model(program: Transformers) -> Path:
    """Return the folder of a MarianMT model that translates the embedded corpus.

    The training takes minutes, so `.cache` keeps the model until the training changes.
    """
    key = json.dumps([_TRAINED.config, _TRAINING, _SHAPE, len(PLAIN_PAIRS)])
    folder = CACHE / f"trained-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            temporary = folder.with_suffix(".unfinished")
            shutil.rmtree(temporary, ignore_errors=True)
            create(program, temporary, _TRAINED, **_TRAINING)
            temporary.rename(folder)
    return folder
