"""Records of long work, for tests."""

from __future__ import annotations

from tt.model import long_work


def remember_works(monkeypatch):
    """Return a list to which all new long work is added."""
    begun = []

    class Remembering(list):
        def append(self, work):
            begun.append(work)
            super().append(work)

    monkeypatch.setattr(long_work, "_works", Remembering())
    return begun
