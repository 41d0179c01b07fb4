"""Random models in Marian's file format, and Marian's forward pass in NumPy.

Both follow only Marian's description, with Marian's names of arrays and ids of tokens. They share
no code with the product.
"""

from __future__ import annotations

import json
import statistics

import numpy as np
import sentencepiece

from tt.pipelines.preprocess.ready_made import held_out_pairs

PAIRS = held_out_pairs()
TEXTS = {side: [getattr(pair, side) for pair in PAIRS] for side in ("source", "target")}
WIDTH, HEADS, INNER, PIECES = 16, 2, 24, 200
END, UNKNOWN = 0, 1

# The settings that Marian writes for a transformer, as far as they matter here.
SETTINGS = {
    "type": "transformer", "dim-emb": WIDTH, "enc-depth": 2, "dec-depth": 1,
    "dim-vocabs": [PIECES, PIECES], "transformer-heads": HEADS, "transformer-dim-ffn": INNER,
    "transformer-decoder-dim-ffn": 0, "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0, "transformer-ffn-activation": "swish",
    "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": False,
    "transformer-preprocess": "", "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d", "transformer-postprocess-top": "",
    "transformer-train-position-embeddings": False, "transformer-tied-layers": [],
    "tied-embeddings": False, "tied-embeddings-src": False, "tied-embeddings-all": True,
    "output-omit-bias": False, "right-left": False, "input-types": [], "version": "v1.12.42",
}  # fmt: skip
PRE_NORM = {
    "transformer-preprocess": "n", "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}  # fmt: skip


def train_pieces(path, texts, *, size=PIECES, **options):
    """Train a SentencePiece model with Marian's ids, as Marian does."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, vocab_size=size, num_threads=1,
            minloglevel=2, bos_id=-1, eos_id=END, unk_id=UNKNOWN, **options,
        )  # fmt: skip
    return path


def random_arrays(settings, *, seed=0):
    """Return random arrays by Marian's names."""
    generator = np.random.default_rng(seed)
    width, inner = settings["dim-emb"], settings["transformer-dim-ffn"]
    shapes = {}

    def norm(name, *, pre):
        suffix = "_pre" if pre else ""
        shapes[f"{name}_ln_scale{suffix}"] = shapes[f"{name}_ln_bias{suffix}"] = (1, width)

    is_pre = settings["transformer-preprocess"] == "n"
    for side, depth in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        for i in range(1, settings[depth] + 1):
            for kind in ("self", "context") if side == "decoder" else ("self",):
                name = f"{side}_l{i}_{kind}"
                for part in "qkvo":
                    shapes[f"{name}_W{part}"] = (width, width)
                    shapes[f"{name}_b{part}"] = (1, width)
                norm(f"{name}_Wo", pre=is_pre)
            name = f"{side}_l{i}_ffn"
            shapes |= {
                f"{name}_W1": (width, inner), f"{name}_b1": (1, inner),
                f"{name}_W2": (inner, width), f"{name}_b2": (1, width),
            }  # fmt: skip
            norm(f"{name}_ffn", pre=is_pre)
        if "n" in settings["transformer-postprocess-top"]:
            norm(f"{side}_top", pre=False)
        if "n" in settings["transformer-postprocess-emb"]:
            norm(f"{side}_emb", pre=True)
    sizes = settings["dim-vocabs"]
    if settings["tied-embeddings-all"] or settings["tied-embeddings-src"]:
        shapes["Wemb"] = (sizes[0], width)
    else:
        shapes["encoder_Wemb"], shapes["decoder_Wemb"] = (sizes[0], width), (sizes[1], width)
    if not settings["tied-embeddings-all"] and not settings["tied-embeddings"]:
        shapes["decoder_ff_logit_out_Wt"] = (sizes[1], width)
    if not settings["output-omit-bias"]:
        shapes["decoder_ff_logit_out_b"] = (1, sizes[1])
    return {
        name: (float("ln_scale" in name) + 0.4 * generator.normal(size=shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_npz(path, settings, arrays, *, padding=1):
    """Write Marian's file; the configuration is spelled like Marian's and ends with NULs."""

    def spell(value):
        if isinstance(value, bool):
            return str(value).lower()
        return "\n  - " + "\n  - ".join(map(str, value)) if value and isinstance(value, list) else (
            '""' if value == "" else str(value)
        )  # fmt: skip

    text = "\n".join(f"{name}: {spell(value)}" for name, value in settings.items())
    config = np.frombuffer(text.encode() + b"\0" * padding, np.int8)
    np.savez(path, **arrays, **{"special:model.yml": config})
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
    settings = {**SETTINGS, "dim-vocabs": [len(names)] * 2}
    return write_npz(folder / "model.npz", settings, random_arrays(settings))


class NumpyMarian:
    """Marian's forward pass for one sentence at a time, in float64."""

    def __init__(self, settings, arrays):
        self.settings = settings
        self.arrays = {name: value.astype(np.float64) for name, value in arrays.items()}

    def norm(self, x, name):
        scale, shift = self.arrays[f"{name}"], self.arrays[name.replace("_scale", "_bias")]
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * scale + shift

    def attention(self, x, keys, name, *, is_causal):
        arrays, heads = self.arrays, self.settings["transformer-heads"]
        q, k, v = (
            each @ arrays[f"{name}_W{part}"] + arrays[f"{name}_b{part}"]
            for each, part in ((x, "q"), (keys, "k"), (keys, "v"))
        )
        parts = []
        for own in np.split(np.arange(q.shape[1]), heads):
            logits = q[:, own] @ k[:, own].T / np.sqrt(len(own))
            if is_causal:
                logits = np.where(np.tri(len(q), dtype=bool), logits, -np.inf)
            weights = np.exp(logits - logits.max(-1, keepdims=True))
            parts.append(weights / weights.sum(-1, keepdims=True) @ v[:, own])
        return np.concatenate(parts, -1) @ arrays[f"{name}_Wo"] + arrays[f"{name}_bo"]

    def feed_forward(self, x, name):
        hidden = x @ self.arrays[f"{name}_W1"] + self.arrays[f"{name}_b1"]
        hidden = {
            "relu": lambda h: np.maximum(h, 0),
            "swish": lambda h: h / (1 + np.exp(-h)),
            "gelu": lambda h: h * np.vectorize(statistics.NormalDist().cdf)(h),
        }[self.settings["transformer-ffn-activation"]](hidden)
        return hidden @ self.arrays[f"{name}_W2"] + self.arrays[f"{name}_b2"]

    def residual(self, x, sub_layer, name):
        if self.settings["transformer-preprocess"] == "n":
            return x + sub_layer(self.norm(x, f"{name}_ln_scale_pre"))
        return self.norm(x + sub_layer(x), f"{name}_ln_scale")

    def embed(self, ids, side, *, starts_with_zeros):
        table = self.arrays.get("Wemb", self.arrays.get(f"{side}_Wemb"))
        width = table.shape[1]
        rows = table[ids] * np.sqrt(width)
        if starts_with_zeros:
            rows = np.concatenate([np.zeros([1, width]), rows])
        count = width // 2
        for position in range(len(rows)):
            for i in range(count):
                angle = position * np.exp(-i * np.log(10000) / (count - 1))
                rows[position, i] += np.sin(angle)
                rows[position, count + i] += np.cos(angle)
        if "n" in self.settings["transformer-postprocess-emb"]:
            rows = self.norm(rows, f"{side}_emb_ln_scale_pre")
        return rows

    def end(self, x, side):
        name = f"{side}_top_ln_scale"
        return self.norm(x, name) if name in self.arrays else x

    def log_probabilities(self, source, target):
        """Return the log-probabilities [T + 1, V] after each prefix of the target, without END."""
        x = self.embed([*source, END], "encoder", starts_with_zeros=False)
        for i in range(1, self.settings["enc-depth"] + 1):
            name = f"encoder_l{i}_self"
            x = self.residual(
                x, lambda h, n=name: self.attention(h, h, n, is_causal=False), f"{name}_Wo"
            )
            name = f"encoder_l{i}_ffn"
            x = self.residual(x, lambda h, n=name: self.feed_forward(h, n), f"{name}_ffn")
        memory = self.end(x, "encoder")
        y = self.embed(list(target), "decoder", starts_with_zeros=True)
        for i in range(1, self.settings["dec-depth"] + 1):
            name = f"decoder_l{i}_self"
            y = self.residual(
                y, lambda h, n=name: self.attention(h, h, n, is_causal=True), f"{name}_Wo"
            )
            name = f"decoder_l{i}_context"
            y = self.residual(
                y, lambda h, n=name: self.attention(h, memory, n, is_causal=False), f"{name}_Wo"
            )
            name = f"decoder_l{i}_ffn"
            y = self.residual(y, lambda h, n=name: self.feed_forward(h, n), f"{name}_ffn")
        tied = self.arrays.get("Wemb", self.arrays.get("decoder_Wemb"))
        table = self.arrays.get("decoder_ff_logit_out_Wt", tied)
        logits = self.end(y, "decoder") @ table.T + self.arrays.get("decoder_ff_logit_out_b", 0.0)
        greatest = logits.max(-1, keepdims=True)
        return logits - greatest - np.log(np.exp(logits - greatest).sum(-1, keepdims=True))
