"""Jobs on object stores: their input, and `tt` in a process that a test can kill."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from models import model_texts
from toy import toy_sentences

from tt.model.storage.files import write_whole


def run_tt(arguments):
    """Run `tt` in this process, a child of `commands.Child`; return its exit code."""
    from tt.cli.main import main

    try:
        main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return ended.code or 0


def upload(path, content):
    with write_whole(path, temporary_folder="") as file:
        file.write(content)


def preprocess_arguments(bucket, *, pairs=400):
    """Write a corpus; return the arguments of its job, except the output."""
    sources, targets = zip(*toy_sentences(pairs, seed=1), strict=True)
    for name, texts in (("a.en", sources), ("a.xx", targets)):
        upload(f"{bucket}/corpus/{name}", "".join(f"{text}\n" for text in texts).encode())
    corpus = f"{bucket}/corpus/a.en+{bucket}/corpus/a.xx"
    return ("preprocess", corpus, "--vocabulary-size", "36", "--shards", "3")


def translate_arguments(bucket, model_folder: Path, *, files=3, rows=100):
    """Write tables and a model; return the arguments of their job, except the output."""
    for number in range(files):
        content = BytesIO()
        table = {"id": range(rows), "text": model_texts(rows, seed=number)}
        pq.write_table(pa.table(table), content)
        upload(f"{bucket}/in/{number}.parquet", content.getvalue())
    for path in model_folder.iterdir():
        upload(f"{bucket}/model/{path.name}", path.read_bytes())
    options = ("--unit-rows", "50", "--max-decoding-length", "12")
    return ("translate-batch", f"{bucket}/in/", "--model", f"{bucket}/model", *options)


def comparable(objects, folder):
    """Return the files of a job's output by name, without facts about the last run.

    Excluded are times, names of runs, and all files in _tt except the manifest.
    """
    found = {}
    for path, content in objects.items():
        name = path.removeprefix(f"{folder}/")
        if name == "_tt/manifest.json":
            manifest = json.loads(content)
            left_out = ("last_run", "unit_seconds", "run_id")
            found[name] = {key: manifest[key] for key in manifest if key not in left_out}
        elif not name.startswith("_tt/"):
            found[name] = content
    return found
