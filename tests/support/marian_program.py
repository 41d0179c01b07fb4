"""Marian itself (PyPI's `pymarian` in its own environment), and comparisons with our model."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import numpy as np
import sentencepiece
import tensorflow as tf

from tt.model.engines.batching import pad
from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("TT_MARIAN_PYTHON", ROOT / ".venv/marian/bin/python"))
MOST_TOKENS = 2  # per translation, for each token of the longest source in a batch
# Limits of length for our model: LONGER exceeds Marian's limit, so that ids can be compared up to
# Marian's end. SAME_LIMIT is close to Marian's limit, so that complete texts can be compared.
LONGER = {"max_length_ratio": MOST_TOKENS + 1.0, "max_extra_tokens": 50}
SAME_LIMIT = {"max_length_ratio": float(MOST_TOKENS), "max_extra_tokens": 0}
_MAIN = "import sys, _pymarian; sys.exit(_pymarian.main(sys.argv[1:]))"
_BATCH = 32


def run(*arguments, cwd):
    """Run one of Marian's commands, such as "train"; its output is in the error if it fails."""
    command = [PYTHON, "-c", _MAIN, *map(str, arguments), "--cpu-threads", "1"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def train(folder, *, source, target, updates, size, options=()):
    """Train a small model and its vocabulary; return the path of the .npz."""
    run(
        "train", "--type", "transformer", "--model", "model.npz", "--train-sets", source, target,
        "--vocabs", "vocabulary.spm", "vocabulary.spm", "--dim-vocabs", size, size,
        "--dim-emb", 128, "--transformer-dim-ffn", 512, "--transformer-heads", 4,
        "--enc-depth", 2, "--dec-depth", 2, "--tied-embeddings-all",
        "--transformer-dropout", 0.1, "--label-smoothing", 0.1, "--learn-rate", 0.001,
        "--lr-warmup", 800, "--lr-decay-inv-sqrt", 800, "--optimizer-params", 0.9, 0.98, 1e-9,
        "--clip-norm", 1, "--exponential-smoothing", 1e-3, "--mini-batch", 96,
        "--maxi-batch", 50, "--max-length", 60, "--workspace", 1000, "--seed", 7,
        "--overwrite", "--after-batches", updates, *options, cwd=folder,
    )  # fmt: skip
    return folder / "model.npz"


@dataclasses.dataclass(frozen=True)
class Found:
    """A translation by Marian."""

    pieces: list[str]
    score: float  # its log-probability, including the end
    has_ended: bool  # otherwise it was cut at the limit


def decode(texts, *, folder, model, vocabularies, beam_size=1, normalize=0.0):
    """Translate with Marian."""
    (folder / "texts").write_text("".join(f"{text}\n" for text in texts), "utf-8")
    written = run(
        "decode", "--models", model, "--vocabs", *vocabularies, "--input", "texts",
        "--beam-size", beam_size, "--normalize", normalize, "--max-length-factor", MOST_TOKENS,
        "--n-best", "--word-scores", "--no-spm-decode", "--mini-batch", _BATCH,
        "--maxi-batch", 30, "--workspace", 500, "--quiet", "--quiet-translation", cwd=folder,
    )  # fmt: skip
    best = {}
    for line in written.splitlines():
        number, text, words, *_ = line.split(" ||| ")
        if int(number) not in best:  # the first of the list is the best
            scores = [float(score) for score in words.split()[1:]]
            pieces = text.split()
            best[int(number)] = Found(pieces, sum(scores), len(scores) > len(pieces))
    return [best[i] for i in range(len(texts))]


def score(source, target, *, folder, model, vocabularies):
    """Return the log-probabilities of the tokens of given translations."""
    for name, texts in (("source", source), ("target", target)):
        (folder / name).write_text("".join(f"{text}\n" for text in texts), "utf-8")
    written = run(
        "score", "--model", model, "--vocabs", *vocabularies, "--train-sets", "source", "target",
        "--word-scores", "--workspace", 500, "--quiet", cwd=folder,
    )  # fmt: skip
    lines = [line.partition("WordScores=")[2].split() for line in written.splitlines()]
    return [[float(each) for each in line] for line in lines]


def text_of(pieces, *, vocabulary):
    """Return the texts of translations."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    return [processor.decode(each) for each in pieces]


def log_probabilities(model, source, target):
    """Return our log-probabilities [T, V] of the ids after BOS."""
    rows = tf.constant([[BOS_ID, *target[:-1]]], tf.int32)
    logits = model.logits(model(tf.constant([source], tf.int32), target=rows))[0]
    return tf.nn.log_softmax(logits).numpy()


def token_ids(vocabulary, found):
    """Return our ids for a translation by Marian, with EOS if it has ended."""
    ids = {vocabulary.piece(i): i for i in range(vocabulary.piece_count)}
    return [ids[piece] for piece in found.pieces] + [EOS_ID] * found.has_ended


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The number of greedy translations that equal Marian's, and the differences of the others."""

    rows: int
    identical: int
    gaps: list[float]  # log p(our id) - log p(Marian's id) in our model, at the first difference
    worst_score: float  # the largest difference between the scores of identical translations

    def __str__(self):
        gaps = ", ".join(f"{gap:.1e}" for gap in self.gaps)
        return (
            f"{self.identical} of {self.rows} identical; log p differs by [{gaps}] at the first "
            f"difference; scores differ by at most {self.worst_score:.1e}"
        )


def compare_greedy(translator, texts, theirs):
    """Compare the greedy translations of a `TensorFlowTranslator` with Marian's.

    The translator must have the limit `LONGER`.
    """
    sources = translator.encode(texts)
    ours = []
    for first in range(0, len(sources), _BATCH):
        batch = tf.constant(pad(sources[first : first + _BATCH]))
        found = translator._search(batch)
        for ids, value in zip(found.ids[:, 0].numpy(), found.scores[:, 0].numpy(), strict=True):
            ours.append(([i for i in ids.tolist() if i != PAD_ID], float(value)))
    identical, gaps, worst = 0, [], 0.0
    for source, (own, value), their in zip(sources, ours, theirs, strict=True):
        wanted = token_ids(translator.vocabularies.target, their)
        # If Marian cut a translation at its limit, our translation must be equal up to the cut.
        same = own == wanted if their.has_ended else own[: len(wanted)] == wanted
        if same:
            identical += 1
            if their.has_ended:
                worst = max(worst, abs(value - their.score))
            continue
        place = next(i for i, (a, b) in enumerate(zip(own, wanted, strict=False)) if a != b)
        log_p = log_probabilities(translator.model, source, wanted)[place]
        gaps.append(float(log_p[own[place]] - log_p[wanted[place]]))
    return Agreement(len(texts), identical, gaps, worst)


def with_one_nul(model, output):
    """Write a model whose configuration ends with one NUL, as CTranslate2's converter needs it."""
    with np.load(model) as archive:
        arrays = {name: archive[name] for name in archive.files}
    config = arrays["special:model.yml"].tobytes().rstrip(b"\0 \n") + b"\n\0"
    np.savez(output, **{**arrays, "special:model.yml": np.frombuffer(config, np.int8)})
    return output


def write_list(vocabulary, output):
    """Write the tokens of a SentencePiece model in the form of CTranslate2's converter."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    names = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    escaped = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
    lines = "".join(f'"{name}": {i}\n' for i, name in enumerate(escaped))
    output.write_text(lines, "utf-8")
    return output
