"""The Dataflow jobs in docs/tutorials/dataflow.md work as typed, on stand-ins."""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run
from documents import ROOT, blocks_of, tt_commands_of
from engine_jobs import upload
from models import model_texts
from toy import toy_sentences

COMMANDS = [
    command
    for block in blocks_of(ROOT / "docs/tutorials/dataflow.md")
    if block.is_shell
    for command in tt_commands_of(block.text)
    if "dataflow" in command
]
QUICK = {  # options that reduce minutes to seconds
    "translate-batch": ("--max-decoding-length", "12"),
    "preprocess": ("--vocabulary-size", "36"),
}


def table(path, **columns):
    content = BytesIO()
    pq.write_table(pa.table(columns), content)
    upload(path, content.getvalue())


@pytest.fixture
def bucket(object_store, model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources, targets = zip(*toy_sentences(60, seed=1), strict=True)
    table("gs://bucket/data/pairs.parquet", en=sources, de=targets)
    table("gs://bucket/data/articles.parquet", id=range(20), body=model_texts(20, seed=1))
    for path in model_folder.iterdir():
        upload(f"gs://bucket/run/{path.name}", path.read_bytes())
    return object_store


def test_the_tutorial_has_a_dry_run_and_two_jobs():
    assert [("--dry-run" in each, each[0]) for each in COMMANDS] == [
        (True, "translate-batch"), (False, "translate-batch"), (False, "preprocess"),
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_the_commands_of_the_tutorial_run(bucket, dataflow_service, capsys, arguments):
    before = set(bucket.objects())
    code = run(*arguments, *QUICK[arguments[0]], "--", *dataflow_service.arguments)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    if "--dry-run" in arguments:
        assert set(bucket.objects()) == before
        assert dataflow_service.body is None
        assert "Beam options " in printed.out
        return
    output = arguments[arguments.index("--output") + 1]
    manifest = {"preprocess": "dataset.json", "translate-batch": "_tt/manifest.json"}
    assert f"{output}/{manifest[arguments[0]]}" in bucket.objects()
