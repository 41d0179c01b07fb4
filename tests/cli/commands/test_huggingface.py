"""The commands with a model from the stand-in for the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_service import COMMIT, running_hub
from huggingface_folders import write_marian
from marian_models import PAIRS

NAME = "Helsinki-NLP/opus-mt-en-es"
TT = Path(sys.executable).with_name("tt")


@pytest.fixture(scope="module")
def tt(tmp_path_factory):
    """Return a function that runs a command in an empty folder."""
    folder = tmp_path_factory.mktemp("work")
    with running_hub() as hub:
        hub.models[NAME] = write_marian(folder / "source/opus-mt-en-es", weights="older")
        environment = {
            **os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"),
            "XDG_CACHE_HOME": str(folder / "cache"), "HF_HUB_DISABLE_XET": "1",
        }  # fmt: skip

        def run(*arguments, text=None):
            return subprocess.run(
                [TT, *map(str, arguments)], env=environment, cwd=folder, input=text,
                capture_output=True, text=True, check=True,
            )  # fmt: skip

        run.folder = folder
        yield run


def test_a_table_is_translated_with_a_model_from_the_hub(tt):
    table = pa.table({"body": [pair.source for pair in PAIRS[:20]]})
    pq.write_table(table, tt.folder / "articles.parquet")
    done = tt("translate-batch", "articles.parquet", "--text-column", "body", "--model",
              f"hf:{NAME}", "--beam-size", 1, "--output", "articles_es")  # fmt: skip
    assert f"hf:{NAME}@{COMMIT} is ready; license: apache-2.0" in done.stderr
    manifest = json.loads((tt.folder / "articles_es/_tt/manifest.json").read_text())
    assert manifest["imported_from"] == {"license": "apache-2.0", "model": f"hf:{NAME}@{COMMIT}"}
    assert manifest["languages"] == {"source": "en", "target": "es"}
    assert manifest["rows"] == 20
    again = tt("translate-batch", "articles.parquet", "--text-column", "body", "--model",
               f"hf:{NAME}@{COMMIT}", "--beam-size", 1, "--output", "articles_es")  # fmt: skip
    assert "Already finished" in again.stdout + again.stderr


def test_the_model_is_shown_with_its_license(tt):
    shown = json.loads(tt("show", f"hf:{NAME}", "--json").stdout)
    text = json.dumps(shown)
    assert "apache-2.0" in text
    assert f"hf:{NAME}@{COMMIT}" in text


def test_lines_are_translated(tt):
    done = tt("translate", "--model", f"hf:{NAME}", "--beam-size", 1, text="A dog.\nA cat.\n")
    assert len(done.stdout.splitlines()) == 2


def test_the_model_is_trained_further(tt):
    lines = [f"{pair.source}\t{pair.target}" for pair in PAIRS[:200]]
    (tt.folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    tt("preprocess", "pairs.tsv", "--vocab-of", f"hf:{NAME}", "--output", "data")
    train = ("train", "--init-from", f"hf:{NAME}", "--dataset", "data", "--run", "tuned")
    tt(*train, "--steps", 2)
    config = json.loads((tt.folder / "tuned/config.json").read_text())
    assert config["init_from"]["model"] == f"hf:{NAME}@{COMMIT}"
    tt(*train, "--steps", 3)
    done = tt("translate", "--model", "tuned", "--beam-size", 1, text="A dog.\n")
    assert len(done.stdout.splitlines()) == 1
