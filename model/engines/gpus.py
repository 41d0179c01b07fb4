"""The GPUs of a machine: which there are, why TensorFlow finds none, and one model on several."""

from __future__ import annotations

import functools
import logging
import os
import queue
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from model.decoding.options import Decoding
from model.engines.translator import Translation, Translator, Work
from model.extras import install_extra
from model.text.unknown import UnknownParts

_LOGGER = logging.getLogger(__name__)
_NVIDIA = "0x10de"  # the vendor's number on PCI
_DISPLAY, _CONTROLLER_3D = "0x0300", "0x0302"  # what classes of devices begin with
_DRIVER = "libcuda."
_HIDDEN = "CUDA_VISIBLE_DEVICES"
_PATIENCE = 120  # seconds; TensorFlow alone takes ten to be imported
_PROBE = "import tensorflow as tf; tf.config.list_physical_devices('GPU')"


def find_nvidia(root: Path = Path("/")) -> list[str]:
    """Returns the NVIDIA GPUs that are built in, whether or not a program can use them.

    A name is such as "NVIDIA A100-SXM4-40GB (0000:00:04.0)". The file system begins at `root`.
    """
    places = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    if places:  # the driver is loaded, and knows the names
        return [f"{_model(_text(place))} ({place.parent.name})" for place in places]
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind = _text(device / "class")
        if _text(device / "vendor") == _NVIDIA and kind.startswith((_DISPLAY, _CONTROLLER_3D)):
            found.append(f"an NVIDIA GPU ({device.name})")
    if found:
        return found
    files = sorted((root / "dev").glob("nvidia[0-9]*"))
    return [f"an NVIDIA GPU (/dev/{file.name})" for file in files]


def find_nvidia_by_tool() -> list[str]:
    """Returns the GPUs that `nvidia-smi -L` lists; none where it is not installed or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        listed = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        _LOGGER.warning("%s does not list the GPUs: %s", tool, error)
        return []
    # GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-...)
    return re.findall(r"^GPU \d+: (.*?)(?: \(UUID.*)?$", listed.stdout, re.MULTILINE)


@functools.cache
def explain_missing_gpu() -> str | None:
    """Says why TensorFlow finds no GPU on a machine that has one; takes some seconds there.

    Returns:
      What is there, what is missing, and how to get it. None where TensorFlow finds a GPU, where
      there is none, and where the user has hidden them.
    """
    import tensorflow as tf

    if os.environ.get(_HIDDEN, "all").startswith(("-1", ",")) or os.environ.get(_HIDDEN) == "":
        return None
    if tf.config.list_physical_devices("GPU"):
        return None
    found = find_nvidia() or find_nvidia_by_tool()
    return describe_missing(found, words=_ask_tensorflow()) if found else None


def describe_missing(found: list[str], *, words: str) -> str:
    """Returns a line on GPUs that TensorFlow does not find, from what it prints meanwhile."""
    there = f"this machine has {', '.join(found)}, but TensorFlow finds no GPU"
    missing = list(dict.fromkeys(re.findall(r"Could not load dynamic library '([^']+)'", words)))
    if any(name.startswith(_DRIVER) for name in missing):
        return (
            f"{there}: it cannot open {_DRIVER}so.1, which comes with NVIDIA's driver; install "
            "that, or start the container with the machine's GPUs"
        )
    if missing:
        install = install_extra("gpu")
        return f"{there}: it cannot open {', '.join(missing)}; install them with {install}"
    return f"{there}: {_last_complaint(words)}"


def let_memory_grow() -> None:
    """Makes TensorFlow take a GPU's memory as it needs it, so that other processes find some.

    By default it takes all of it. A process in which it has begun to compute keeps to that; this
    is logged. The environment variable TF_FORCE_GPU_ALLOW_GROWTH overrides it.
    """
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        try:
            tf.config.experimental.set_memory_growth(gpu, True)
        except RuntimeError as error:
            if not tf.config.experimental.get_memory_growth(gpu):
                _LOGGER.warning("TensorFlow takes all memory of %s: %s", gpu.name, error)


def count_gpus() -> int:
    """Returns how many GPUs TensorFlow finds, without making it begin to compute."""
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


def gpu_devices() -> list[str]:
    """Returns the names of the GPUs to compute on, such as "/device:GPU:0"."""
    import tensorflow as tf

    if not count_gpus():
        return []
    return [device.name for device in tf.config.list_logical_devices("GPU")]


class TranslatorPool:
    """Translators of one model, each on a device of its own. Threads may share it.

    Two translations at once on one GPU would share its memory and be no faster: whoever comes
    while all are busy waits.
    """

    def __init__(self, translators: Sequence[Translator]) -> None:
        self._any = translators[0]
        self._free: queue.SimpleQueue[Translator] = queue.SimpleQueue()
        for translator in translators:
            self._free.put(translator)

    @property
    def is_on_gpus(self) -> bool:
        """It is."""
        return True

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalises texts and turns them into ids, BOS and EOS included."""
        return self._any.encode(texts)

    @property
    def decoding(self) -> Decoding:
        """How they search unless a call says otherwise."""
        return self._any.decoding

    def translate_ids(
        self, source_ids: list[list[int]], *, growth: int = 1, decoding: Decoding | None = None
    ) -> tuple[list[Translation], Work]:
        """Translates ids on a device that is free; the translations are in their order."""
        translator = self._free.get()
        try:
            return translator.translate_ids(source_ids, growth=growth, decoding=decoding)
        finally:
            self._free.put(translator)

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown."""
        return self._any.count_unknown(text)

    def is_input_error(self, error: Exception) -> bool:
        """Tells whether a source can have caused an error; else it was the machine."""
        return self._any.is_input_error(error)


def _ask_tensorflow() -> str:
    """Returns what a new process of TensorFlow prints while it looks for GPUs.

    Its log is set up once a process, and here it is silent; the names of libraries that cannot be
    opened are only in the log of what opens them, which is on for nobody.
    """
    told = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=1"}
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**os.environ, **told},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"E it has not looked for them in {_PATIENCE} seconds"
    return ended.stderr


def _last_complaint(words: str) -> str:
    """Returns the last warning or error of TensorFlow's log, without time and place in code."""
    lines = [line for line in words.splitlines() if re.match(r"[EWF]\d* ", line)]
    if not lines:
        hidden = os.environ.get(_HIDDEN)
        return f"{_HIDDEN} is {hidden!r}" if hidden else "it does not say why"
    return f"it says {re.sub(r'^[EWF][^]]*[]] |^[EWF] ', '', lines[-1])!r}"


def _model(information: str) -> str:
    """Returns the name in a file of the driver's, which has a line such as "Model: NVIDIA A100"."""
    name = re.search(r"^Model:\s*(.+?)\s*$", information, re.MULTILINE)
    return name.group(1) if name else "an NVIDIA GPU"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""  # not every device has every file, nor may everybody read it
