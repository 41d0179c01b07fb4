"""The masks of a training batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tt.model.dataset.batches import WINDOW
from tt.model.dataset.manifest import DatasetManifest
from tt.model.inspection.batches import narrow_rows, read_batches
from tt.model.inspection.blocks import Lines, Note, Section
from tt.model.text.vocabulary import VocabularyPair
from tt.model.transformer.attention import look_ahead_bias, padding_bias

_ROWS = 4  # number of rows to show


def masks_section(
    folder: Path, manifest: DatasetManifest, vocabularies: VocabularyPair, *, batch_tokens: int
) -> Section:
    """Return a section with the masks that the model computes for a narrow training batch.

    Raises:
      UserError: A shard is missing, truncated or damaged.
    """
    batches = read_batches(folder, manifest, batch_tokens=batch_tokens, pairs=WINDOW)
    rows, source, target = narrow_rows(batches, _ROWS)
    padding = padding_bias(tf.constant(source, tf.int32)).numpy()  # [B, 1, 1, S]
    tokens = vocabularies.target.names(target[0, :-1].tolist())
    look_ahead = look_ahead_bias(tf.constant(len(tokens))).numpy()[0, 0]  # [T, T]
    sources = [" ".join(vocabularies.source.names(row)) for row in source.tolist()]
    return Section(
        "masks",
        f"Masks of a batch with {rows:,} rows: # is visible, . is hidden",
        [
            Note(
                f"Padding mask, {len(source)} rows: source positions that the encoder, and the "
                "decoder in cross-attention, can see"
            ),
            Lines(list(_mask_lines(padding[:, 0, 0], sources))),
            Note(
                "Look-ahead mask, the same for all rows: target positions that each position of "
                "the decoder can see. It also hides padding, because padding is at the end"
            ),
            Lines(list(_mask_lines(look_ahead, tokens))),
        ],
    )


def _mask_lines(biases: npt.NDArray[np.float32], texts: Sequence[str]) -> Iterator[str]:
    for bias, text in zip(biases, texts, strict=True):
        yield f"  {''.join('#' if each == 0 else '.' for each in bias)}  {text}"
