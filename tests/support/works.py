"""Work that takes long, remembered for a test."""

from __future__ import annotations

from tt.model import long_work


def remember_works(monkeypatch):
    """Returns a list that gets all work that begins."""
    begun = []

    class Remembering(list):
        def append(self, work):
            begun.append(work)
            super().append(work)

    monkeypatch.setattr(long_work, "_works", Remembering())
    return begun
