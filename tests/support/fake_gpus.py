"""CTranslate2 on a machine with GPUs, each of which is replaced by the CPU."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref

import ctranslate2


class FakeGpus:
    """The module `ctranslate2` with fake GPUs; each computes one batch at a time.

    Args:
      count: Number of GPUs.
      fault: The error that each batch on a GPU raises; None computes the batch. A model that
        CTranslate2 cannot load raises its own error before.
      faulty: The numbers of the GPUs that raise `fault`; None means all.
      seconds: The least time of a batch.
      memory: The source positions for which a GPU has memory, including BOS and padding.
    """

    def __init__(self, count, *, fault=None, faulty=None, seconds=0.0, memory=10**9):
        self.count, self.fault, self.seconds, self.memory = count, fault, seconds, memory
        self.faulty = {*range(count)} if faulty is None else faulty
        self.loaded: list[str] = []  # the device of each loaded model
        self.models: weakref.WeakSet[_OnGpus] = weakref.WeakSet()  # models in memory
        self.most_models = 0
        self.batches = 0  # batches on GPUs, without those of one token
        self.busy = self.most_busy = 0  # GPUs
        self.lock = threading.Lock()

    def get_cuda_device_count(self):
        return self.count

    def get_supported_compute_types(self, device):
        return ctranslate2.get_supported_compute_types("cpu") | (
            {"float16"} if device == "cuda" else set()
        )

    def Translator(self, path, *, device, device_index=0, **settings):  # noqa: N802 -- its name
        self.loaded.append(device)
        if device == "cpu":
            return ctranslate2.Translator(path, device=device, **settings)
        assert {*device_index} <= {*range(self.count)}
        model = _OnGpus(path, self, device_index)
        self.models.add(model)
        self.most_models = max(self.most_models, len(self.models))
        return model


class _OnGpus:
    def __init__(self, path, gpus, used):
        self._gpus, self._is_faulty = gpus, not gpus.faulty.isdisjoint(used)
        self._model = ctranslate2.Translator(path, inter_threads=len(used), intra_threads=1)
        self._free = threading.Semaphore(len(used))
        self.device, self.num_translators = "cuda", len(used)

    def translate_batch(self, sources, **settings):
        if len(sources) * (1 + max(map(len, sources))) > self._gpus.memory:
            raise RuntimeError("CUDA failed with error out of memory")
        with self._compute(is_counted=settings.get("max_decoding_length") != 1):
            return self._model.translate_batch(sources, **settings)

    def score_batch(self, sources, targets, **settings):
        with self._compute():
            return self._model.score_batch(sources, targets, **settings)

    @contextlib.contextmanager
    def _compute(self, *, is_counted=True):
        """Wait for a free GPU, as the queue of CTranslate2 does, and compute on this GPU."""
        gpus = self._gpus
        if gpus.fault is not None and self._is_faulty:
            raise type(gpus.fault)(*gpus.fault.args)  # a new error, whose frames nobody keeps
        with self._free:
            with gpus.lock:
                gpus.batches += is_counted
                gpus.busy += 1
                gpus.most_busy = max(gpus.most_busy, gpus.busy)
            time.sleep(gpus.seconds)
            yield
            with gpus.lock:
                gpus.busy -= 1
