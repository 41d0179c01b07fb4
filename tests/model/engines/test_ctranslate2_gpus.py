"""CTranslate2 takes a GPU only if the GPU can compute. The tests need no GPU."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import google_crc32c
import pytest
from command_line import run
from fake_gpus import FakeGpus
from foreign_models import ENGLISH, LAYOUTS, opus

from tt.model.engines import batching, ctranslate2_engine
from tt.model.engines import machine as machine_module
from tt.model.engines.ctranslate2_engine import CTranslate2Translator
from tt.model.engines.loading import load_translator
from tt.model.engines.machine import explain_missing_cublas
from tt.model.engines.translator import Engine, count_used_gpus
from tt.model.errors import UserError
from tt.model.transformer.search_options import Decoding

TEXTS = ENGLISH[:40]
# CTranslate2's message at the first batch, if a machine has only a driver.
NO_CUBLAS = "Library libcublas.so.12 is not found or cannot be loaded"
INSTALL = f"Install the GPU libraries with {sys.executable} -m pip install 'tensorflow[and-cuda]"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return opus(tmp_path_factory.mktemp("opus")).folder


@pytest.fixture
def use_gpus(monkeypatch):
    """Return a function that replaces the GPUs of this machine."""

    def use(gpus):
        monkeypatch.setattr(ctranslate2_engine, "ctranslate2", gpus)
        return gpus

    return use


def load(folder, **engine):
    return load_translator(
        str(folder), decoding=Decoding(), engine=Engine(name="ctranslate2", **engine), threads=1
    )


def translate(translator, texts=TEXTS, **options):
    found, _ = translator.translate(translator.prepare(texts, **options))
    return [each.text for each in found]


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_gpus_that_compute_are_used(model, use_gpus, device, caplog):
    on_cpu = translate(load(model, device="cpu"))
    gpus = use_gpus(FakeGpus(2))
    translator = load(model, device=device)
    assert gpus.batches == 0
    assert translate(translator) == on_cpu
    assert gpus.batches > 0
    assert (gpus.loaded, count_used_gpus(translator), caplog.text) == (["cuda"], 2, "")


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_kind_of_model_can_translate_the_first_token(name, tmp_path, use_gpus, caplog):
    layout = LAYOUTS[name](tmp_path)
    gpus = use_gpus(FakeGpus(1))
    translator = load(layout.folder)
    assert len(translate(translator, languages=layout.languages)) == len(TEXTS)
    assert (gpus.loaded, caplog.text) == (["cuda"], "")


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (RuntimeError(NO_CUBLAS), INSTALL),
        (
            RuntimeError("CUDA failed with error no kernel image is available"),
            "Check the driver and the free memory with `nvidia-smi`",
        ),
    ],
)
def test_cpu_translates_if_the_gpu_cannot_compute(model, use_gpus, fault, advice, caplog):
    gpus = use_gpus(FakeGpus(2, fault=fault))
    translator = load(model)
    assert (gpus.loaded, count_used_gpus(translator)) == (["cuda"] * 3 + ["cpu"], 0)
    assert translate(translator) == translate(load(model, device="cpu"))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"CTranslate2 cannot compute on 2 GPUs ({fault}), and uses the CPU. ")
    assert advice in line
    assert line.endswith(", or set `device=cpu`")

    with pytest.raises(UserError) as caught:
        load(model, device="cuda")
    assert str(caught.value).startswith(f"CTranslate2 cannot compute on 2 GPUs ({fault}). {advice}")
    assert str(caught.value).endswith(", or remove `device=cuda`")


def test_gpus_that_compute_are_used_without_the_others(model, use_gpus, caplog):
    fault = RuntimeError("CUDA failed with error out of memory")
    gpus = use_gpus(FakeGpus(4, fault=fault, faulty={1, 3}))
    translator = load(model)
    assert (count_used_gpus(translator), gpus.most_models) == (2, 1)
    assert translate(translator) == translate(load(model, device="cpu"))
    assert gpus.batches > 0
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        f"CTranslate2 cannot compute on GPU 1, 3 ({fault}), and uses the other 2 GPUs. Check "
    )
    with pytest.raises(UserError, match=r"^CTranslate2 cannot compute on GPU 1, 3 "):
        load(model, device="cuda")


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize("compute_type", ["float32", "float16"])
@pytest.mark.parametrize(("old", "new"), [(b"decoder/layer_0", b"decoder/layer_9"), (b"", b"\xff")])
def test_faulty_model_is_no_fault_of_the_gpus(
    model, use_gpus, tmp_path, old, new, device, compute_type, caplog
):
    folder = shutil.copytree(model, tmp_path / "opus")
    content = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(content.replace(old, new) if old else new + content[1:])
    engine = Engine(name="ctranslate2", compute_type=compute_type, device=device)
    use_gpus(FakeGpus(2))
    with pytest.raises(UserError, match=r"^CTranslate2 cannot load .*/opus as float32 \(.+\)\. "):
        CTranslate2Translator(folder, decoding=Decoding(), engine=engine, threads=1)
    assert caplog.text == ""


def test_compute_type_of_a_gpu_is_refused_on_the_cpu(model, use_gpus):
    use_gpus(FakeGpus(1, fault=RuntimeError(NO_CUBLAS)))
    with pytest.raises(UserError, match=r"on this cpu must be one of .* Received: float16"):
        load(model, compute_type="float16")


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """A machine with a driver that lists a GPU."""
    (tmp_path / "gpus/0000:01:00.0").mkdir(parents=True)
    monkeypatch.setattr(machine_module, "_NVIDIA", tmp_path / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("driver")
def test_too_old_driver_is_reported(model, use_gpus, caplog):
    use_gpus(FakeGpus(0))
    load(model, device="cpu")
    assert caplog.text == ""
    load(model)
    [line] = [record.getMessage() for record in caplog.records]
    assert line == (
        "this machine has an NVIDIA GPU, but CTranslate2 finds none, and uses the CPU. "
        "Update NVIDIA's driver to version 525 or later, or set `device=cpu`"
    )


def test_command_prints_one_line_and_translates(model, use_gpus, monkeypatch, capsys):
    use_gpus(FakeGpus(1, fault=RuntimeError(NO_CUBLAS)))
    lines = "".join(f"{text}\n" for text in TEXTS[:3]).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert run("translate", "--model", model) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    [line] = [line for line in printed.err.splitlines() if "CTranslate2" in line]
    assert line.startswith(
        f"tt: warning: CTranslate2 cannot compute on 1 GPU ({NO_CUBLAS}), and uses the CPU. "
    )
    assert line.endswith(", or set --device cpu")


def test_command_names_a_batch_that_fits_into_the_memory(model, use_gpus, monkeypatch, capsys):
    lines = "".join(f"{text}\n" for text in TEXTS).encode()

    def translate_on_gpus(memory, *options):
        monkeypatch.setattr(batching, "_may_warn", threading.Semaphore(1))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        use_gpus(FakeGpus(1, memory=memory))
        code = run("translate", "--model", model, *options)
        printed = capsys.readouterr()
        return code, printed.out, [line for line in printed.err.splitlines() if "memory" in line]

    _, expected, none = translate_on_gpus(10**9)
    code, found, [line] = translate_on_gpus(75)
    assert (none, code, found) == ([], 0, expected)
    fitting = re.fullmatch(
        "tt: warning: the memory ran out, so tt translates smaller batches. "
        r"Next time, set --batch-tokens (\d+), which fits",
        line,
    )
    assert translate_on_gpus(75, "--batch-tokens", fitting[1]) == (0, expected, [])

    code, _, [line] = translate_on_gpus(3)
    assert code == 2
    assert line.startswith("tt: error: out of memory for a single source of ")
    assert line.endswith("or lower --beam-size, --max-decoding-length or --max-source-tokens")


# The library that a program opens by name, before and after `preload_cublas`.
OPEN_BY_NAME = """
import ctypes, sys
from tt.model.engines.machine import explain_missing_cublas, preload_cublas
assert "libcublas.so.12: cannot open" in explain_missing_cublas()
sys.path.append(sys.argv[1])
preload_cublas()
assert explain_missing_cublas() is None
for name in ("libcublasLt.so.12", "libcublas.so.12"):
    print(ctypes.CDLL(name).crc32c_value)
"""


def test_libraries_of_the_extra_are_found(tmp_path):
    # A small library stands for cuBLAS: it gets the name that NVIDIA's file contains.
    libraries = Path(google_crc32c.__file__).parent.parent / "google_crc32c.libs"
    [library] = libraries.glob("libcrc32c*")
    own_name = library.name.encode()
    folder = tmp_path / "nvidia/cublas/lib"
    folder.mkdir(parents=True)
    for name in ("libcublasLt.so.12", "libcublas.so.12"):
        content = library.read_bytes().replace(own_name, name.encode().ljust(len(own_name), b"\0"))
        (folder / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", OPEN_BY_NAME, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("_FuncPtr") == 2


def test_damaged_library_is_a_reason_for_the_cpu(model, use_gpus, tmp_path, monkeypatch, caplog):
    (tmp_path / "nvidia/cublas/lib").mkdir(parents=True)
    (tmp_path / "nvidia/cublas/lib/libcublas.so.12").write_bytes(b"\x7fELF")
    monkeypatch.syspath_prepend(tmp_path)
    gpus = use_gpus(FakeGpus(1))
    assert translate(load(model))
    assert gpus.loaded == ["cpu"]
    assert "libcublas.so.12: file too short), and uses the CPU. Install" in caplog.text
    assert "libcublas.so.12: file too short" in explain_missing_cublas()
