"""`tt doctor`: its table, its JSON and its exit code."""

import importlib.metadata
import json
import re

import ctranslate2
import pytest
from command_line import run

from tt.model.engines import machine


@pytest.fixture
def requires(monkeypatch):
    """Replace the requirements of `tt`."""
    real = importlib.metadata.requires

    def replace(*requirements):
        monkeypatch.setattr(
            importlib.metadata,
            "requires",
            lambda name: list(requirements) if name == "tt-translate" else real(name),
        )

    return replace


def checks_of(capsys, code=0):
    assert run("doctor", "--json") == code
    found = json.loads(capsys.readouterr().out)
    assert found["works"] == (code == 0)
    return {(check["group"], check["name"]): check for check in found["checks"]}


def test_installation_of_this_machine_works(capsys):
    found = checks_of(capsys)
    for name in ("python", "tensorflow", "apache-beam", "sentencepiece", "pyarrow"):
        assert found["Packages", name]["state"] == "ok"
    assert found["Packages", "pyarrow"]["value"] == importlib.metadata.version("pyarrow")
    assert int(found["Devices", "cores"]["value"]) >= 1
    assert ("Devices", "GPU") in found


def test_gpus_of_ctranslate2_need_cublas(monkeypatch, capsys):
    def check():
        found = checks_of(capsys)["Devices", "CTranslate2"]
        return found["state"], found["value"], found["remedy"]

    assert check() == ("-", "finds no GPU", "")
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)
    state, value, remedy = check()
    assert (state, value) == (
        "-",
        "finds 2 GPUs, but cannot use cuBLAS: libcublas.so.12: cannot open shared object file: No "
        "such file or directory",
    )
    assert "tensorflow[and-cuda]" in remedy
    monkeypatch.setattr(machine, "explain_missing_cublas", lambda: None)
    assert check() == ("ok", "finds 2 GPUs and cuBLAS", "")


def test_wrong_version_fails_and_shows_the_install_command(requires, capsys):
    requires("pyarrow>=999", "no-such-package")
    found = checks_of(capsys, code=1)
    version = importlib.metadata.version("pyarrow")
    assert found["Packages", "pyarrow"]["value"] == f"{version}, >=999 required"
    assert found["Packages", "pyarrow"]["remedy"].endswith(" -m pip install 'pyarrow>=999'")
    assert found["Packages", "no-such-package"]["value"] == "not installed, any version required"
    assert run("doctor") == 1
    printed = capsys.readouterr().out
    assert re.search(r"FAIL +pyarrow +\S+, >=999 required +\S", printed)


def test_missing_extra_is_not_a_failure(requires, capsys):
    requires(
        "pyarrow", 'no-such-package>=1; extra == "kafka"', 'typer[no-such-extra]; extra == "delta"'
    )
    found = checks_of(capsys)
    assert found["Extras", "kafka"]["state"] == "-"
    assert found["Extras", "kafka"]["value"] == "no-such-package not installed, >=1 required"
    assert "no-such-package>=1" in found["Extras", "kafka"]["remedy"]
    assert found["Extras", "delta"]["state"] == "ok"
