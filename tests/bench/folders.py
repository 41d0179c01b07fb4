"""The folder for files that the benchmarks generate."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the default folder for corpora and the vocabulary."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tt-bench"
