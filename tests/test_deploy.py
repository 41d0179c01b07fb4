"""The worker image gets all of tt, as far as that can be told without building it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import apache_beam

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text("utf-8")


def test_the_image_has_the_beam_of_the_lock():
    [version] = re.findall(r"^FROM apache/beam_python\$\{PYTHON\}_sdk:(\S+)$", DOCKERFILE, re.M)
    assert version == apache_beam.__version__


def test_what_is_copied_is_sent_to_the_build():
    copied = [name.strip("./") for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.M)
              for name in line.split()]  # fmt: skip
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert sorted(copied) == sorted(sent)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {"cli", "model", "pipelines"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_what_jobs_import_can_be_imported(tmp_path):
    [imports] = re.findall(r'^RUN cd / && python -c "(import .*)"$', DOCKERFILE, re.M)
    subprocess.run([sys.executable, "-c", imports], cwd=tmp_path, check=True)
    modules = imports.removeprefix("import ").split(", ")
    steps = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for room in ("preprocess", "translate")
        for path in (ROOT / "pipelines" / room).glob("*.py")
        if "(beam.DoFn)" in path.read_text("utf-8")
    }
    missing = (
        f"import sys, {', '.join(modules)}; "
        f"print([name for name in {sorted(steps)} if name not in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", missing], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert found.stdout.splitlines()[-1] == "[]"
    assert len(steps) >= 4
