"""The GPUs of a machine: which there are, why TensorFlow finds none, and one model on several."""

from __future__ import annotations

import functools
import logging
import os
import queue
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from model.engines.translator import Translation, Translator, Work
from model.extras import install_extra
from model.text.vocabulary import UnknownParts
from model.transformer.search_options import Decoding

_LOGGER = logging.getLogger(__name__)
_HIDDEN = "CUDA_VISIBLE_DEVICES"
_PATIENCE = 120  # seconds


def find_nvidia(root: Path = Path("/")) -> list[str]:
    """Return the names of the NVIDIA GPUs of this machine, by their driver or by `nvidia-smi -L`.

    Args:
      root: Where the file system begins.
    """
    places = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    if places:
        return [f"{_model(place.read_text('utf-8'))} ({place.parent.name})" for place in places]
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
    """Return a line on GPUs that TensorFlow does not find; None if there are none, or it does."""
    import tensorflow as tf

    if os.environ.get(_HIDDEN, "all").startswith(("-1", ",")) or os.environ.get(_HIDDEN) == "":
        return None
    if tf.config.list_physical_devices("GPU"):
        return None
    if not (found := find_nvidia()):
        return None
    return (
        f"this machine has {', '.join(found)}, but TensorFlow finds no GPU. Install its libraries "
        f"with {install_extra('gpu')}, or see `tt doctor -v`"
    )


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
        """How they search."""
        return self._any.decoding

    def translate_ids(
        self, source_ids: list[list[int]], *, growth: int = 1
    ) -> tuple[list[Translation], Work]:
        """Translates ids on a device that is free; the translations are in their order."""
        translator = self._free.get()
        try:
            return translator.translate_ids(source_ids, growth=growth)
        finally:
            self._free.put(translator)

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown."""
        return self._any.count_unknown(text)

    def is_input_error(self, error: Exception) -> bool:
        """Tells whether a source can have caused an error; else it was the machine."""
        return self._any.is_input_error(error)


def _model(information: str) -> str:
    """Return the name in a file of the driver, which has a line such as "Model: NVIDIA A100"."""
    name = re.search(r"^Model:\s*(.+?)\s*$", information, re.MULTILINE)
    return name.group(1) if name else "an NVIDIA GPU"
