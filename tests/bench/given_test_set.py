"""The model and the test set that benchmarks of translated texts read."""

from __future__ import annotations

import argparse
from pathlib import Path

from tt.pipelines.preprocess.ready_made import held_out_pairs


def model_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of a model, the files of a test set, and translation options."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument("files", nargs="*", type=Path, help="Read source and reference here.")
    parser.add_argument("--source-language", default="en")
    parser.add_argument("--beam-size", type=int, default=4)
    return parser


def read_test_set(files: list[Path]) -> tuple[list[str], list[str]]:
    """Return sources and references, of the embedded corpus if no files are given."""
    if files:
        sources, references = (path.read_text("utf-8").splitlines() for path in files)
        return sources, references
    pairs = held_out_pairs()
    return [pair.source for pair in pairs], [pair.target for pair in pairs]
