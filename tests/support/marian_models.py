"""A random model in Marian's file format, for CTranslate2's converter, and texts for vocabularies.

The model follows only Marian's description, with Marian's names of arrays and ids of tokens.
"""

from __future__ import annotations

import json

import numpy as np
import sentencepiece

from tt.pipelines.preprocess.ready_made import held_out_pairs

PAIRS = held_out_pairs()
TEXTS = {side: [getattr(pair, side) for pair in PAIRS] for side in ("source", "target")}
WIDTH, INNER, PIECES = 16, 24, 200
END, UNKNOWN = 0, 1

# The settings that Marian writes for a transformer, as far as CTranslate2's converter needs them.
_SETTINGS = {
    "type": "transformer", "enc-depth": 2, "dec-depth": 1, "transformer-heads": 2,
    "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": False,
    "transformer-ffn-activation": "swish", "transformer-guided-alignment-layer": "last",
    "transformer-preprocess": "", "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d", "transformer-postprocess-top": "",
}  # fmt: skip


def train_pieces(path, texts, *, size=PIECES, **options):
    """Train a SentencePiece model with Marian's ids, as Marian does."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, vocab_size=size, num_threads=1,
            minloglevel=2, bos_id=-1, eos_id=END, unk_id=UNKNOWN, **options,
        )  # fmt: skip
    return path


def write_opus_npz(folder):
    """Write a model as OPUS-MT publishes it: SentencePiece models next to a list of tokens."""
    lists = []
    for side, name in (("source", "source.spm"), ("target", "target.spm")):
        path = train_pieces(folder / name, TEXTS[side])
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        lists += [processor.id_to_piece(i) for i in range(2, PIECES)]
    names = ["</s>", "<unk>", *dict.fromkeys(lists)]
    ids = "".join(f"{json.dumps(name, ensure_ascii=False)}: {i}\n" for i, name in enumerate(names))
    (folder / "vocab.yml").write_text(ids, "utf-8")
    config = np.frombuffer(json.dumps(_SETTINGS).encode() + b"\0", np.int8)  # JSON is YAML
    arrays = _random_arrays(len(names))
    np.savez(folder / "model.npz", **arrays, **{"special:model.yml": config})


def _random_arrays(tokens):
    """Return random arrays by Marian's names."""
    shapes = {"Wemb": (tokens, WIDTH), "decoder_ff_logit_out_b": (1, tokens)}
    for layer in ("encoder_l1", "encoder_l2", "decoder_l1"):
        for name in ("self", "context") if layer == "decoder_l1" else ("self",):
            for part in "qkvo":
                shapes[f"{layer}_{name}_W{part}"] = (WIDTH, WIDTH)
                shapes[f"{layer}_{name}_b{part}"] = (1, WIDTH)
            shapes |= dict.fromkeys(_norm(f"{layer}_{name}_Wo"), (1, WIDTH))
        shapes |= {
            f"{layer}_ffn_W1": (WIDTH, INNER), f"{layer}_ffn_b1": (1, INNER),
            f"{layer}_ffn_W2": (INNER, WIDTH), f"{layer}_ffn_b2": (1, WIDTH),
            **dict.fromkeys(_norm(f"{layer}_ffn_ffn"), (1, WIDTH)),
        }  # fmt: skip
    generator = np.random.default_rng(0)
    return {
        name: (float("ln_scale" in name) + 0.4 * generator.normal(size=shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def _norm(name):
    return f"{name}_ln_scale", f"{name}_ln_bias"
