"""The commands in docs/how-to/kafka.md work as typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from documents import ROOT, blocks_of
from kafka_broker import PATIENCE

BLOCKS = blocks_of(ROOT / "docs/how-to/kafka.md")


def test_three_processes_share_a_topic(kafka, trained_toy, tmp_path):
    [share] = [each for each in BLOCKS if "for process in" in each.text]
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
    [fields] = [each for each in BLOCKS if "--field title" in each.text]
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
