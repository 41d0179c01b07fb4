"""What is suspicious about a translation: the names of its flags."""

from __future__ import annotations

INCOMPLETE = "incomplete"  # a sentence was cut off at the length limit
FLAGS = (INCOMPLETE,)
