"""All commands that translate use all GPUs of a machine with CTranslate2, one call per GPU."""

from __future__ import annotations

import io
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run
from fake_gpus import FakeGpus
from foreign_models import ENGLISH, opus

from tt.model.engines import ctranslate2_engine
from tt.pipelines.inference.model_loading import ModelLoader
from tt.pipelines.streams import connectors
from tt.pipelines.streams.messages import Message

TEXTS = ENGLISH[:96]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return opus(tmp_path_factory.mktemp("opus")).folder


def translate(model, folder, monkeypatch, capsys):
    lines = "".join(f"{text}\n" for text in TEXTS).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert run("translate", "--model", model) == 0
    return capsys.readouterr().out.splitlines()


def translate_batch(model, folder, monkeypatch, capsys):
    pq.write_table(pa.table({"text": TEXTS}), folder / "in.parquet", row_group_size=8)
    options = ["--model", model, "--output", folder / "out", "--unit-rows", 8]
    assert run("translate-batch", folder / "in.parquet", "--text-column", "text", *options) == 0
    capsys.readouterr()
    return pq.read_table(folder / "out")["translation"].to_pylist()


def translate_stream(model, folder, monkeypatch, capsys):
    load = ModelLoader(str(model), threads=1)
    step = connectors._TranslateBatch(
        connectors.TranslateMessages(load_translator=load, max_batch=len(TEXTS))
    )
    step.setup()
    messages = [Message(value=text.encode(), source="t/0/0") for text in TEXTS]
    found = [answer.value.decode() for answer in step.process(messages)]
    step.teardown()
    return found


@pytest.mark.parametrize("command", [translate, translate_batch, translate_stream])
def test_four_calls_run_at_once_on_four_gpus(command, model, tmp_path, monkeypatch, capsys):
    found = []
    for count in (1, 4):
        gpus = FakeGpus(count, seconds=0.05)
        monkeypatch.setattr(ctranslate2_engine, "ctranslate2", gpus)
        folder = tmp_path / str(count)
        own = shutil.copytree(model, folder / "model")  # a process keeps a model of the same folder
        found.append(command(own, folder, monkeypatch, capsys))
        assert (gpus.loaded, gpus.most_busy) == (["cuda"], count)
    assert found[0] == found[1]
    assert len(found[0]) == len(TEXTS)
    assert len({*found[0]}) > 10
