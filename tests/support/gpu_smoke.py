"""Compare the GPUs of a machine with its CPU, and print one table to send to the project.

    python tests/support/gpu_smoke.py GPU FOLDER

With CPU instead of GPU, two logical CPU devices replace GPUs, and the numbers are tiny. FOLDER is
empty; FOLDER/table.md contains the same table. The exit code is 1 if a limit is missed.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import ctranslate2
import tensorflow as tf

from tt.cli.main import app
from tt.model.engines.loading import load_translator
from tt.model.engines.machine import describe_machine, explain_missing_gpu, let_memory_grow
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.engines.translator import ENGINES, Engine
from tt.model.formats.exports import export_ctranslate2
from tt.model.training.options import COMPUTE_TYPES
from tt.model.training.reports import Progress
from tt.model.training.request import TrainRequest
from tt.model.transformer.search_options import Decoding
from tt.pipelines.preprocess.ready_made import held_out_pairs, train_pairs

SIZES = {
    "GPU": {"preset": "base", "updates": 200, "batch_tokens": 4096, "sentences": 2000},
    "CPU": {"preset": "tiny", "updates": 20, "batch_tokens": 1024, "sentences": 20},
}
# Largest difference of a text's mean log-probability per token from the CPU's in float32. GPUs may
# multiply float32 with the digits of float16 (TensorFloat-32). After 200 updates of `tiny`, the
# differences on a CPU were 0.002 (float16), 0.008 (bfloat16) and 0.02 (int8).
SCORE_LIMITS = {"float32": 0.01, "float16": 0.01, "bfloat16": 0.05, "int8": 0.1}
LOSS_LIMIT = 0.02  # largest relative difference from the CPU's loss in float32
REPORTS = 10  # per training; the time of the first one includes tracing
DRIVER = Path("/proc/driver/nvidia/version")


class Table:
    """A Markdown table on standard output and in a file, whose rows appear one by one."""

    def __init__(self, path):
        self._path, self.is_passed = path, True
        self._write("| Measurement | Value | Limit | Result |\n|---|---|---|---|")

    def add(self, name, value, *, limit="", is_met=True):
        self.is_passed &= is_met
        self._write(f"| {name} | {value} | {limit} | {'ok' if is_met else 'FAIL'} |")

    def _write(self, text):
        print(text, flush=True)
        with self._path.open("a") as file:
            file.write(f"{text}\n")


def add_versions(table, devices):
    for package in ("tt-translate", "tensorflow", "ctranslate2"):
        table.add(package, importlib.metadata.version(package))
    build, machine = tf.sysconfig.get_build_info(), describe_machine(devices)
    table.add("CUDA and cuDNN of tensorflow", f"{build['cuda_version']}, {build['cudnn_version']}")
    table.add("driver", DRIVER.read_text().splitlines()[0] if DRIVER.exists() else "none")
    table.add("devices", ", ".join(machine["devices"]))
    table.add("processor", f"{machine['processor']}, {machine['cores']} cores")


def train(options, run, *, devices, updates, compute_type="float32"):
    """Train on the demo's dataset, and return the reports on its progress."""
    training = {
        "steps": updates, "batch_tokens": options.batch_tokens, "compute_type": compute_type,
        "peak_learning_rate": 0.0005, "warmup_steps": 40, "save_every": updates,
        "validate_every": updates, "score_every": 0, "log_every": options.updates // REPORTS,
    }  # fmt: skip
    request = TrainRequest(
        dataset=options.folder / "dataset", run=run, preset=options.preset, training=training,
        devices=tuple(devices),
    )  # fmt: skip
    reports = []
    request.plan().run(reports.append)
    return [report for report in reports if isinstance(report, Progress)]


def add_training(table, options, *, expected, devices, compute_type):
    """Measure a training, and compare the loss of its first updates with the CPU's."""
    run = options.folder / f"{compute_type}-{len(devices)}"
    chosen = {"devices": devices, "compute_type": compute_type}
    first, *later = train(options, run, updates=options.updates, **chosen)
    place, last = ", ".join([*devices, compute_type]), later[-1]
    if len(devices) == 1:  # several devices train on larger batches
        limit, is_met = LOSS_LIMIT * expected, abs(first.nll - expected) <= LOSS_LIMIT * expected
        name = f"loss of the first {first.step} updates, {place}"
        table.add(name, f"{first.nll:.4f}", limit=f"{expected:.4f} ± {limit:.4f}", is_met=is_met)
    name, limit = f"loss at update {last.step}, {place}", f"below {first.nll:.4f}"
    table.add(name, f"{last.nll:.4f}", limit=limit, is_met=last.nll < first.nll)
    speeds = [each.source_tokens_per_second + each.target_tokens_per_second for each in later]
    table.add(f"training, {place}", f"{statistics.median(speeds):,.0f} tokens/s")
    return run


def scores_of(translator):
    """Return the mean log-probability per token of each held-out translation."""
    pairs = held_out_pairs()
    inputs = translator.prepare([pair.source for pair in pairs])
    scored = translator.score([*zip(inputs, (pair.target for pair in pairs), strict=True)])
    return [statistics.fmean(each.scores) for each in scored]


def add_engine(table, name, *, compute_types, sentences, load):
    """Compare the scores of given texts with the CPU's in float32, and measure translation.

    `load` returns a translator for a compute type and for whether it must use the CPU.
    """
    expected = scores_of(load("float32", is_cpu=True))
    for compute_type in compute_types:
        translator = load(compute_type, is_cpu=False)
        pairs = zip(scores_of(translator), expected, strict=True)
        worst, limit = max(abs(a - b) for a, b in pairs), SCORE_LIMITS[compute_type]
        place = f"{name}, {compute_type}, 1 device"
        value, row = f"{worst:.5f}", f"difference of given texts' scores, {place}"
        table.add(row, value, limit=f"at most {limit}", is_met=worst <= limit)
        inputs = translator.prepare([source for source, _ in train_pairs()[:sentences]])
        translator.translate(inputs[:64])  # a warm-up
        start = time.monotonic()
        translator.translate(inputs)
        speed = len(inputs) / (time.monotonic() - start)
        table.add(f"translation, {place}", f"{speed:,.1f} sentences/s")


def add_engines(table, options, run, *, device, without):
    """Measure both engines with the model of a run."""
    kind = "cpu" if device.startswith("CPU") else "cuda"

    def load_tensorflow(compute_type, *, is_cpu):
        place = "CPU:0" if is_cpu else device
        return TensorFlowTranslator.load(run, compute_type=compute_type, device=place)

    def load_ctranslate2(compute_type, *, is_cpu):
        place = "cpu" if is_cpu else kind
        engine = Engine(name="ctranslate2", compute_type=compute_type, device=place)
        return load_translator(str(exported), decoding=Decoding(), engine=engine)

    exported = options.folder / "ctranslate2"
    export_ctranslate2(run / "model", exported)
    supported = ctranslate2.get_supported_compute_types(kind)
    for name, compute_types, load in (
        ("TensorFlow", ENGINES["tensorflow"], load_tensorflow),
        ("CTranslate2", [each for each in SCORE_LIMITS if each in supported], load_ctranslate2),
    ):
        chosen = [each for each in compute_types if each not in without]
        add_engine(table, name, compute_types=chosen, sentences=options.sentences, load=load)


def measure(table, options, devices):
    """Add all measurements to the table."""
    add_versions(table, devices)
    with contextlib.chdir(options.folder):
        if app(args=["preprocess"], obj=[], standalone_mode=False):
            sys.exit("the dataset of the demo could not be made")
    updates = options.updates // REPORTS
    [report] = train(options, options.folder / "cpu", devices=["CPU:0"], updates=updates)
    gpus = tf.config.list_physical_devices("GPU")
    details = map(tf.config.experimental.get_device_details, gpus)
    # Older GPUs have no units for bfloat16.
    is_old = any(each.get("compute_capability", (8, 0)) < (8, 0) for each in details)
    without = {"bfloat16", "mixed_bfloat16"} if is_old else set()
    for compute_type in [kind for kind in COMPUTE_TYPES if kind not in without]:
        shared = {"expected": report.nll, "compute_type": compute_type}
        run = add_training(table, options, devices=devices[-1:], **shared)
        if compute_type == "float32":
            add_engines(table, options, run, device=devices[-1], without=without)
        if len(devices) > 1:
            add_training(table, options, devices=devices, **shared)


def main(kind, folder):
    options = SimpleNamespace(folder=Path(folder).resolve(), **SIZES[kind])
    if kind == "CPU":
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
    let_memory_grow()
    devices = [f"{kind}:{i}" for i in range(len(tf.config.list_logical_devices(kind)))]
    if not devices:
        sys.exit(f"no GPU has been tested: {explain_missing_gpu() or 'TensorFlow finds no GPU'}")
    table = Table(options.folder / "table.md")
    measure(table, options, devices)
    sys.exit(not table.is_passed)


if __name__ == "__main__":
    main(*sys.argv[1:])
