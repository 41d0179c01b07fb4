"""Where what the benchmark generates is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Returns the folder that corpora and the vocabulary are kept in by default."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tt-bench"
