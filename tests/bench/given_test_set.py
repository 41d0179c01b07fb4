"""What benches of translated texts are given: a model, and a test set or the embedded one."""

from __future__ import annotations

import argparse
from pathlib import Path

from tt.pipelines.preprocess.ready_made import held_out_pairs


def model_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser of a model, the files of a test set, and how to translate it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", help="run folder or model folder")
    parser.add_argument("files", nargs="*", type=Path, help="source and reference")
    parser.add_argument("--source-language", default="en")
    parser.add_argument("--beam-size", type=int, default=4)
    return parser


def read_test_set(files: list[Path]) -> tuple[list[str], list[str]]:
    """Returns sources and references; without files, held-out sentences of the embedded corpus."""
    if files:
        sources, references = (path.read_text("utf-8").splitlines() for path in files)
        return sources, references
    pairs = held_out_pairs()
    return [pair.source for pair in pairs], [pair.target for pair in pairs]
