"""The command line, called in this process."""

from __future__ import annotations

import re

import pytest
from toy import toy_sentences

from tt.cli.main import main


def run(*arguments):
    """Run `tt` in this process, and return its exit code."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code or 0


def last_error(capsys):
    """Return the one-line error of a user's mistake."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    line = printed.err.splitlines()[-1]
    assert line.startswith("tt: error: ")
    return line


def write_corpus(folder, count=60):
    sources, targets = zip(*toy_sentences(count, seed=1), strict=True)
    (folder / "a.en").write_text("\n".join(sources) + "\n")
    (folder / "a.xx").write_text("\n".join(targets) + "\n")


TEXTS = ("--source", "a.en", "--target", "a.xx", "--vocabulary-size", "36")


DEFAULT = re.compile(r"\[default: ([^];]+)")
