"""A user's own `model.py` or `pipelines/` does not hide the modules of `tt`."""

import os
import subprocess
import sys


def test_user_modules_with_the_same_names_are_not_imported(tmp_path):
    (tmp_path / "model.py").write_text("raise RuntimeError('a module of the user')")
    for name in ("pipelines", "cli"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('a package of the user')")
    shown = subprocess.run(
        [sys.executable, "-m", "tt.cli.main", "show", "missing"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": "."}, capture_output=True, text=True,
    )  # fmt: skip
    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert "missing" in shown.stderr
