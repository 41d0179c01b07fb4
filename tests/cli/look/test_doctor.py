"""`tt doctor`: its lines, its JSON and its exit code."""

from __future__ import annotations

import json

import pytest
from command_line import run

from pipelines.summaries import doctor
from pipelines.summaries.doctor import Check, Diagnosis


@pytest.fixture(params=[True, False], ids=["works", "fails"])
def works(request, monkeypatch):
    state = doctor.OK if request.param else doctor.FAILURE
    check = Check(group="Packages", name="TensorFlow", state=state, value="2.21.0 [here]",
                  rule="it computes", remedy="" if request.param else "install it")  # fmt: skip
    monkeypatch.setattr(doctor, "diagnose", lambda: Diagnosis(checks=[check]))
    return request.param


def test_each_line_has_value_rule_and_remedy(works, capsys):
    assert run("doctor") == (0 if works else 1)
    printed = capsys.readouterr().out
    assert ("ok" if works else "FAIL") in printed
    assert "2.21.0 [here]" in printed
    assert "needs: it computes" in printed
    assert ("to do: install it" in printed) == (not works)


def test_json_is_all_of_it(works, capsys):
    assert run("doctor", "--json") == (0 if works else 1)
    found = json.loads(capsys.readouterr().out)
    assert found["works"] == works
    assert found["checks"][0]["name"] == "TensorFlow"
    assert set(found["checks"][0]) == {"group", "name", "state", "value", "rule", "remedy"}
