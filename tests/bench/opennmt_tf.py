"""Measure `tt train` against OpenNMT-tf: the same Transformer on the same pairs.

    python3.11 -m venv opennmt
    opennmt/bin/pip install 'OpenNMT-tf[tensorflow]==2.32.0' 'numpy<1.25'
    python tests/bench/opennmt_tf.py dataset train.en.gz train.de.gz --python opennmt/bin/python

DATASET is the output of `tt preprocess` for the two texts, with one vocabulary for both sides. Its
SentencePiece model also splits the texts for OpenNMT-tf. Both programs train from scratch in turn,
in another order each round, on the same cores and with the same limit of tokens per batch. Both
report the target tokens per second, without padding. The benchmark ignores the first reports,
because they include the start. OpenNMT-tf filters by its own length limit, but no sentence of
these corpora reaches it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece
from processes import CommandError, available_cores, run

_TT = Path(sys.executable).with_name("tt")
_EVERY = 50  # updates from one report to the next
_LEFT_OUT = 3  # reports at the start
_REPORT = re.compile(r"Step = (\d+) ;.*\((\d+) source, (\d+) target\)")
_SHAPES = {"tiny": (4, 128, 4, 256), "small": (3, 256, 8, 512), "base": (6, 512, 8, 2048)}

_MODEL = """
import opennmt

def model():
    layers, width, heads, inner = {shape}
    return opennmt.models.Transformer(
        source_inputter=opennmt.inputters.WordEmbedder(embedding_size=width),
        target_inputter=opennmt.inputters.WordEmbedder(embedding_size=width),
        num_layers=layers, num_units=width, num_heads=heads, ffn_inner_dim=inner,
        dropout=0.1, attention_dropout=0.0, ffn_dropout=0.0,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )
"""
_CONFIG = """
model_dir: {folder}/run
data:
  train_features_file: {folder}/source
  train_labels_file: {folder}/target
  source_vocabulary: {folder}/vocabulary
  target_vocabulary: {folder}/vocabulary
params:
  optimizer: Adam
  optimizer_params: {{beta_1: 0.9, beta_2: 0.98, epsilon: 1.0e-9}}
  learning_rate: 0.001
  label_smoothing: 0.1
train:
  batch_size: {tokens}
  batch_type: tokens
  length_bucket_width: 1
  max_step: {steps}
  save_checkpoints_steps: {steps}
  save_summary_steps: {every}
  sample_buffer_size: -1
"""


def opennmt(options: argparse.Namespace, folder: Path) -> float:
    """Train with OpenNMT-tf and return its target tokens per second."""
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(options.dataset / "vocabulary.spm")
    )
    for side, path in (("source", options.source), ("target", options.target)):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as texts, (folder / side).open("w") as pieces:
            for text in texts:
                pieces.write(" ".join(processor.encode(text.strip(), out_type=str)) + "\n")
    special = ["<blank>", "<s>", "</s>"]
    own = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    learnt = [piece for piece in own if not processor.is_control(processor.piece_to_id(piece))]
    tokens = [*special, *(piece for piece in learnt if piece not in (*special, "<unk>"))]
    (folder / "vocabulary").write_text("".join(f"{token}\n" for token in tokens))
    (folder / "model.py").write_text(_MODEL.format(shape=_SHAPES[options.shape]))
    config = _CONFIG.format(
        folder=folder, tokens=options.batch_tokens, steps=options.steps, every=_EVERY
    )
    (folder / "config.yml").write_text(config)
    command = [
        *(options.python.absolute(), "-m", "opennmt.bin.main", "--model", folder / "model.py"),
        *("--config", folder / "config.yml", "--intra_op_parallelism_threads", options.cores),
        *("--inter_op_parallelism_threads", options.cores, "train"),
    ]
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, available_cores()[: options.cores]))]
        + [str(word) for word in command],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    found = [int(match[3]) for match in _REPORT.finditer(done.stderr)]
    if done.returncode or len(found) <= _LEFT_OUT:
        raise CommandError(f"OpenNMT-tf failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return statistics.mean(found[_LEFT_OUT:])


def ours(options: argparse.Namespace, folder: Path) -> float:
    """Train with `tt train` and return its target tokens per second."""
    layers, width, heads, inner = _SHAPES[options.shape]
    run(
        [
            *(_TT, "train", "--dataset", options.dataset.absolute(), "--run", folder / "run"),
            *("--encoder-layers", str(layers), "--decoder-layers", str(layers)),
            *("--d-model", str(width), "--heads", str(heads)),
            *("--d-ff", str(inner), "--dropout", "0.1", "--batch-tokens"),
            *(str(options.batch_tokens), "--steps", str(options.steps)),
            *("--warmup-steps", str(options.steps // 4), "--peak-learning-rate", "0.001"),
            *("--log-every", str(_EVERY), "--validate-every", str(options.steps)),
            *("--save-every", str(options.steps)),
        ],
        cores=options.cores,
        folder=folder,
    )
    lines = (folder / "run/train.jsonl").read_text("utf-8").splitlines()
    reports = [line for line in map(json.loads, lines) if line["kind"] == "train"]
    return statistics.mean(float(each["target_tokens_per_second"]) for each in reports[_LEFT_OUT:])


def main() -> None:
    """Measure as the command line requests, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--python", type=Path, required=True, help="Use this Python of OpenNMT-tf.")
    parser.add_argument("--shape", choices=_SHAPES, default="tiny")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.steps < (_LEFT_OUT + 2) * _EVERY:
        parser.error(f"--steps must be at least {(_LEFT_OUT + 2) * _EVERY}")
    ratios = []
    for number in range(options.rounds):
        rates = {}
        for tool in (opennmt, ours) if number % 2 else (ours, opennmt):
            with tempfile.TemporaryDirectory() as folder:
                rates[tool.__name__] = tool(options, Path(folder))
        ratios.append(rates["ours"] / rates["opennmt"])
        print(
            f"round {number + 1}: tt {rates['ours']:,.0f}, OpenNMT-tf {rates['opennmt']:,.0f} "
            f"target tokens/s: {ratios[-1]:.2f} times",
            flush=True,
        )
    print(f"tt is {statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to "
          f"{max(ratios):.2f})")  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
