"""Position encodings, section 3.5 of the paper, and how alike they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from model.transformer.layers import sinusoidal_positions


def position_encodings(
    length: int, *, width: int, base: float = 10000.0, scale: str = "paper"
) -> npt.NDArray[np.float32]:
    """Returns the encodings of the first positions, float32 [length, width].

    >>> position_encodings(3, width=4).round(2)[:2]
    array([[0.  , 0.  , 1.  , 1.  ],
           [0.84, 0.01, 0.54, 1.  ]], dtype=float32)
    """
    return np.asarray(sinusoidal_positions(length, width, base, scale=scale), np.float32)


def position_likeness(encodings: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Returns the dot products of all encodings [length, width], divided by that with itself.

    >>> position_likeness(position_encodings(2, width=4)).round(2)
    array([[1.  , 0.77],
           [0.77, 1.  ]], dtype=float32)
    """
    products = encodings @ encodings.T  # [length, length]
    return np.asarray(products / products[0, 0], np.float32)
