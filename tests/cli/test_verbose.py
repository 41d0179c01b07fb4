"""`--verbose` shows the log messages of TensorFlow and Beam, which are hidden by default."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from command_line import TEXTS, run, write_corpus

from tt.cli.errors import SHOWS_NOTICES
from tt.cli.main import load_command
from tt.cli.shared_options import COMMANDS


def test_each_command_has_the_flag():
    for name in COMMANDS:
        [flag] = [each for each in load_command(name).params if each.name == "verbose"]
        assert flag.opts == ["-v", "--verbose"]


def test_verbose_shows_messages_of_beam(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    handlers = list(logging.getLogger().handlers)
    assert run("preprocess", *TEXTS, "--output", "quiet") == 0
    assert "apache_beam" not in capsys.readouterr().err
    assert run("preprocess", *TEXTS, "--output", "loud", "--verbose") == 0
    assert "apache_beam.runners." in capsys.readouterr().err
    assert logging.getLogger().handlers == handlers
    assert not SHOWS_NOTICES.get()


@pytest.mark.slow
def test_verbose_shows_messages_of_tensorflow(tmp_path):
    """The test starts a process, because TensorFlow configures its log once per process."""
    done = subprocess.run(
        [sys.executable, "-m", "tt.cli.main", "show", "tfds:", "--data-dir", str(tmp_path), "-v"],
        env={name: value for name, value in os.environ.items() if name[:3] != "TF_"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "This TensorFlow binary is optimized" in done.stderr
