"""A model with different numbers of encoder and decoder layers: training and all its uses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import last_error, run
from models import translated
from toy import write_dataset
from trainers import eagerly

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.formats.model_folder import load_config
from tt.model.transformer.search_options import Decoding

TRAIN = ("train", "--dataset", "dataset", "--encoder-layers", "3", "--decoder-layers", "2",
         "--d-model", "16", "--heads", "2", "--d-ff", "16", "--batch-tokens", "100",
         "--save-every", "2")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a dataset and a run of four updates."""
    folder = tmp_path_factory.mktemp("made")
    write_dataset(folder / "dataset", train=50, validation=5)
    with pytest.MonkeyPatch.context() as patch, eagerly():
        patch.chdir(folder)
        assert run(*TRAIN, "--steps", "4", "--average", "last") == 0
    return folder


@pytest.fixture
def folder(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def layers_of(text):
    return {side: set(re.findall(rf"\b{side}_(\d)/", text)) for side in ("encoder", "decoder")}


def test_run_is_described_shown_and_resumed(folder, capsys):
    config = json.loads((folder / "run/config.json").read_text())["model"]
    assert (config["encoder_layers"], config["decoder_layers"]) == (3, 2)
    wanted = {"encoder": {"0", "1", "2"}, "decoder": {"0", "1"}}
    assert run(*TRAIN, "--describe") == 0
    assert layers_of(capsys.readouterr().out) == wanted
    assert run("show", "run/model") == 0
    shown = capsys.readouterr().out
    assert layers_of(shown) == wanted
    assert "encoder layers" in shown
    assert run(*TRAIN, "--steps", "5") == 0
    assert "Resuming at step 4" in capsys.readouterr().err


def test_model_is_averaged_and_exported(folder):
    assert run("average", "--run", "run", "--output", "mean") == 0
    assert load_config(folder / "mean").depths == (3, 2)
    assert run("export", "mean", "--format", "ctranslate2", "--output", "ct2") == 0
    assert run("export", "mean", "--format", "saved-model", "--output", "saved") == 0
    translator = TensorFlowTranslator.load("mean", decoding=Decoding(beam_size=1))
    assert len(translated(translator, ["one two three"])) == 1


def test_attention_has_the_layers_of_each_side(folder, capsys):
    ask = ("attention", "one two", "--model", "run")
    assert run(*ask, "--output", "all.html") == 0
    assert layers_in("all.html") == {"cross": [0, 1], "encoder": [0, 1, 2], "decoder": [0, 1]}
    assert run(*ask, "--kind", "encoder", "--layer", "2", "--output", "third.html") == 0
    assert layers_in("third.html") == {"encoder": [2]}
    assert run(*ask, "--kind", "encoder", "--output", "all.svg") == 0
    capsys.readouterr()
    assert run(*ask, "--layer", "2", "--output", "new.html") == 2
    assert last_error(capsys) == (
        "tt: error: --layer must be 0 to 1 for the cross attention of run. Received: 2"
    )
    assert run("report", "run", "--sentence", "one two", "--output", "report.html") == 0
    assert layers_in("report.html") == layers_in("all.html")


def layers_in(path):
    """Return the layers that a page shows for each kind of attention."""
    text = Path(path).read_text("utf-8")
    found = re.search(r'<script[^>]*application/json[^>]*>(\{"kind".*?)</script>', text, re.S)
    return {kind: each["layers"] for kind, each in json.loads(found[1])["maps"].items()}
