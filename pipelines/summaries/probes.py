"""What programs and libraries answer when they are asked to work, each in a process of its own.

A library that is broken may end the process that imports it: what is asked here survives that.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

PATIENCE = 120  # seconds, on a machine that has much else to do

# Each works a little, and prints what it is as JSON on its last line.
_PYTHON = {
    "tensorflow": """
import json, tensorflow as tf
assert float(tf.matmul([[2.0]], [[3.0]])[0, 0]) == 6
gpus = [tf.config.experimental.get_device_details(each).get("device_name", each.name)
        for each in tf.config.list_physical_devices("GPU")]
print(json.dumps({"version": tf.__version__, "gpus": gpus}))
""",
    "apache_beam": """
import json, apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
print(json.dumps({"version": beam.__version__}))
""",
    "sentencepiece": """
import json, sentencepiece
sentencepiece.SentencePieceProcessor()
print(json.dumps({"version": sentencepiece.__version__}))
""",
    "pyarrow": """
import json, pyarrow, pyarrow.parquet
print(json.dumps({"version": pyarrow.__version__}))
""",
    "ctranslate2": """
import json, ctranslate2
kinds = sorted(ctranslate2.get_supported_compute_types("cpu"))
print(json.dumps({"version": ctranslate2.__version__, "types": kinds,
                  "gpus": ctranslate2.get_cuda_device_count()}))
""",
}

# TensorFlow's log says why it finds no GPU; see `model.engines.gpus`.
_TALKATIVE = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a program answered."""

    found: dict[str, Any]  # empty where it does not work
    error: str = ""  # why it does not work, in one line
    log: str = ""  # what it printed on stderr


def probe_libraries(names: Sequence[str]) -> dict[str, Answer]:
    """Asks libraries of Python, all at once, whether they work; by name."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(names, pool.map(_probe_library, names), strict=True))


def _probe_library(name: str) -> Answer:
    return run([sys.executable, "-c", _PYTHON[name]], environment=_TALKATIVE)


def run(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Answer:
    """Runs a program that prints JSON on its last line."""
    try:
        ended = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(found={}, error=f"no answer within {PATIENCE} seconds")
    except OSError as error:
        return Answer(found={}, error=str(error.strerror or error))
    if ended.returncode:
        return Answer(found={}, error=_reason(ended), log=ended.stderr)
    try:
        return Answer(found=json.loads(ended.stdout.strip().splitlines()[-1]), log=ended.stderr)
    except (ValueError, IndexError):
        return Answer(found={}, error="an answer that cannot be read", log=ended.stderr)


def _reason(ended: subprocess.CompletedProcess[str]) -> str:
    """Returns the last line that a program printed, or the signal that ended it."""
    if ended.returncode < 0:
        return f"ended by signal {-ended.returncode}"
    lines = ended.stderr.strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {ended.returncode}"


def find_program(name: str) -> str:
    """Returns the path of a program; "" where it is not on the PATH."""
    return shutil.which(name) or ""


def java_version() -> str:
    """Returns what `java -version` says of itself, such as "17.0.12"; "" without a Java.

    Some systems have a `java` that only says that there is none.
    """
    tool = shutil.which("java")
    if tool is None:
        return ""
    try:
        said = subprocess.run(
            [tool, "-version"], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    version = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return version[1] if version else ""


def gpu_memory() -> list[tuple[str, int, int]]:
    """Returns each NVIDIA GPU's name, memory and free memory in MiB, as `nvidia-smi` has them."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = "--query-gpu=name,memory.total,memory.free"
    try:
        listed = subprocess.run(
            [tool, query, "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=PATIENCE, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    found = re.findall(r"^(.+), (\d+), (\d+)\s*$", listed.stdout, re.MULTILINE)
    return [(name, int(total), int(free)) for name, total, free in found]
