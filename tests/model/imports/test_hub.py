"""Models are downloaded from a stand-in for the hub, converted once, and kept in the cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hub_service import COMMIT, running_hub
from huggingface_folders import write_marian

from tt.model.errors import UserError
from tt.model.imports.hub import Address, describe_license, parse_address, read_license

NAME = "Helsinki-NLP/opus-mt-en-es"
PROGRAM = """
import json, sys
from tt.model.errors import UserError
from tt.model.imports.fetching import fetch_model
found = []
for model in sys.argv[1:]:
    lines = []
    try:
        folder = fetch_model(model, report=lines.append)
        found.append({"folder": str(folder), "lines": lines})
    except UserError as error:
        found.append({"error": str(error), "kind": type(error).__name__, "lines": lines})
print(json.dumps(found))
"""


@pytest.fixture
def hub(tmp_path):
    with running_hub() as running:
        running.models[NAME] = write_marian(tmp_path / "source/opus-mt-en-es", weights="zip")
        yield running


@pytest.fixture
def fetch(tmp_path, hub):
    """Return a function that fetches models in a new process, and returns its reports."""

    def run(*models, **variables):
        environment = {
            **os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_XET": "1", **variables,
        }  # fmt: skip
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            if name not in variables:
                environment.pop(name, None)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *models], env=environment, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_model_is_downloaded_and_converted_once(fetch, hub):
    [first] = fetch(f"hf:{NAME}")
    assert first["lines"] == [
        f"Downloading hf:{NAME}@{COMMIT}",
        f"hf:{NAME}@{COMMIT} is ready; license: apache-2.0",
    ]
    assert first["folder"].endswith("-opus-mt-en-es")
    about = json.loads(Path(first["folder"], "about.json").read_text())["about"]
    assert about["imported_from"] == {"model": f"hf:{NAME}@{COMMIT}", "license": "apache-2.0"}
    assert about["data"]["source_language"] == "en"
    assert not [line for line in hub.requests if "README" not in line and ".onnx" in line]
    hub.requests.clear()
    [second] = fetch(f"hf:{NAME}")
    assert (second["folder"], second["lines"]) == (first["folder"], [])
    assert not [line for line in hub.requests if line.startswith("GET") and "/resolve/" in line]
    hub.requests.clear()
    hub.is_down = True
    pinned, newest = fetch(f"hf:{NAME}@{COMMIT}", f"hf:{NAME}")
    assert pinned["folder"] == newest["folder"] == first["folder"]
    assert not any(COMMIT in line for line in hub.requests), "a commit needs no request"
    [offline] = fetch(f"hf:{NAME}", HF_HUB_OFFLINE="1")
    assert offline["folder"] == first["folder"]


def test_a_broken_download_resumes(fetch, hub):
    size = (hub.models[NAME] / "pytorch_model.bin").stat().st_size
    hub.cut["pytorch_model.bin"] = size // 2
    found, again = fetch(f"hf:{NAME}", f"hf:{NAME}")
    if "error" in found:  # the library may leave the second attempt to the user
        assert found["kind"] == "ServiceError"
    assert again["folder"]
    downloads = [line for line in hub.requests if line.endswith("pytorch_model.bin")]
    assert len([line for line in downloads if line.startswith("GET")]) == 2


def variant(hub, name, *, weights=("pytorch_model.bin",), **fields):
    """Add a copy of the model with other files of weights and other fields of its config.json."""
    folder = shutil.copytree(hub.models[NAME], hub.models[NAME].parent / name)
    (folder / "pytorch_model.bin").rename(folder / "kept")
    for weight in weights:
        shutil.copy(folder / "kept", folder / weight)
    (folder / "kept").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    hub.models[f"me/{name}"] = folder
    return f"hf:me/{name}"


def test_models_that_the_hub_or_tt_lacks_are_refused_before_the_download(fetch, hub):
    expected = {
        "hf:Helsinki-NLP/opus-mt-en-ess": "the hub has no model Helsinki-NLP/opus-mt-en-ess, or it "
        f"is private. Choose an existing model, such as hf:{NAME}",
        "hf:nobody/nothing": "the hub has no model nobody/nothing, or it is private. Check its",
        f"hf:{NAME}@v9": f"{NAME} has no revision 'v9'. Choose a branch, a tag or a commit of this",
        variant(hub, "a", weights=["tf_model.h5"]): "only has weights for TensorFlow, but tt needs "
        "model.safetensors",
        variant(hub, "b", weights=["tf_model.h5", "flax_model.msgpack"]): "TensorFlow and Flax",
        variant(hub, "c", weights=[]): "has no weights, but tt needs",
        variant(hub, "d", architectures=["T5ForConditionalGeneration"]): "T5ForConditionalGene",
        variant(hub, "e", auto_map={"AutoModel": "code.Model"}): "which tt never executes",
    }
    for found, message in zip(fetch(*expected), expected.values(), strict=True):
        assert message in found["error"]
    assert not [line for line in hub.requests if "pytorch_model.bin" in line]


def test_a_gated_model_needs_a_token(fetch, hub):
    hub.gated.add(NAME)
    problem = f"hf:{NAME} is a gated model. Accept its conditions on its page"
    assert fetch(f"hf:{NAME}")[0]["error"].startswith(problem)
    assert fetch(f"hf:{NAME}", HF_TOKEN="secret")[0]["folder"]


def test_no_network_and_no_copy(fetch, hub):
    hub.is_down = True
    [found] = fetch(f"hf:{NAME}")
    assert found["kind"] == "ServiceError"
    assert found["error"].startswith(f"hf:{NAME} cannot be downloaded, and is not in the cache: ")
    [offline] = fetch(f"hf:{NAME}", HF_HUB_OFFLINE="1")
    assert offline["error"].startswith(f"hf:{NAME} is not in the cache, and HF_HUB_OFFLINE forbids")


def test_a_failed_conversion_leaves_nothing_in_the_cache(fetch, hub, tmp_path):
    (hub.models[NAME] / "README.md").unlink()
    failed, without_license = fetch(variant(hub, "wide", d_model=24), f"hf:{NAME}")
    assert "must have the shape" in failed["error"]
    assert without_license["lines"][-1].endswith("; license: the model names none")
    cache = tmp_path / "cache/tt/huggingface"
    assert [str(path) for path in cache.iterdir()] == [without_license["folder"]]


@pytest.mark.parametrize("model", ["hf:", "hf:opus", "hf:a/b/c", "hf:a/b@", "hf:a b/c"])
def test_incomplete_addresses(model):
    with pytest.raises(UserError, match="must have the form hf:ORG/NAME"):
        parse_address(model)


def test_addresses():
    assert parse_address("run") is None
    assert parse_address("hf:a/b@refs/pr/1") == Address("a/b", "refs/pr/1")
    assert Address("a/b", COMMIT).is_pinned
    assert not Address("a/b", "main").is_pinned


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: cc-by-nc-4.0\n---\n", "cc-by-nc-4.0"),
        ("---\nlicense: other\nlicense_name: gemma\n---\n", "gemma"),
        ("---\nlanguage: de\n---\n", ""),
        ("---\nlicense: [\n---\n", ""),
        ("no front matter", ""),
        ("---\nlicense:\n- a\n- b\n---\n", ""),
    ],
)
def test_licenses(tmp_path, card, expected):
    (tmp_path / "README.md").write_text(card)
    assert read_license(tmp_path) == expected
    is_limited = "not allow commercial" in describe_license(expected)
    assert is_limited == (expected == "cc-by-nc-4.0")
