"""What is suspicious about a translation: the names of its flags."""

from __future__ import annotations

INCOMPLETE = "incomplete"  # a sentence was cut off at the length limit
SPAN_REPAIRED = "span_repaired"  # the model lost or doubled a protected span
FLAGS = (INCOMPLETE, SPAN_REPAIRED)
