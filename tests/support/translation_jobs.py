"""Parquet jobs with the Reverser as their model."""

import functools
import json
import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import Loader, Reverser, reverse

from tt.model.errors import UserError
from tt.model.transformer.search_options import Decoding
from tt.pipelines.texts.flags import FLAGS
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import STATUSES
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.options import TranslateOptions

NO_ROWS = dict.fromkeys(STATUSES, 0)
NO_FLAGS = dict.fromkeys(FLAGS, 0)
TWO_WORKERS = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
KINDS = ("", "_score", "_status", "_error", "_flags")
ADDED = [f"translation{kind}" for kind in KINDS]

loads: list[int] = []  # the thread of each load


def load_reverser(name: str = "") -> Reverser:
    """Return a translator. Loaders with different names share no model."""
    loads.append(threading.get_ident())
    return Reverser()


def new_loader() -> functools.partial[Reverser]:
    """Return a loader whose model is not loaded yet, even if an earlier test's model is alive."""
    return functools.partial(load_reverser, uuid.uuid4().hex)


def request(source, output, *, arguments=(), fingerprint="f0", load=load_reverser, **options):
    names = (source,) if isinstance(source, str | Path) else source
    decoding = options.pop("decoding", Decoding())
    if most := options.pop("max_source_tokens", None):
        options["texts"] = TextOptions(max_source_tokens=most, on_too_long="skip")
    values = {"input": tuple(map(str, names)), "output": str(output), "max_failed": 1.0, **options}
    return TranslateRequest(
        options=TranslateOptions(**values),
        model=Loader(load, fingerprint),
        decoding=decoding,
        copies=None if arguments else 1,
        beam=tuple(arguments),
    )


def translate(source, output, **options):
    return request(source, output, **options).plan().run()


def write(path: Path, table, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
    return path


def write_like_spark(path: Path, table: pa.Table, **options) -> Path:
    """Write timestamps as INT96, and metadata, but no Arrow schema."""
    with pq.ParquetWriter(
        path, table.schema, use_deprecated_int96_timestamps=True, store_schema=False, **options
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(table.schema.metadata or {})
    return path


def files_below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def outputs(folder: Path) -> list[str]:
    """Return the output files, without those that the job keeps in its own folder."""
    names = (name for name in files_below(folder) if not name.startswith("_tt/"))
    return [name for name in names if name.endswith(".parquet")]


def output_bytes(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in outputs(folder)}


def read(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read()


def read_all(folder: Path) -> pa.Table:
    return pa.concat_tables([read(folder / name) for name in outputs(folder)])


def manifest(folder: Path) -> dict:
    return json.loads((folder / "_tt/manifest.json").read_text())


def unit_statistics(folder: Path) -> list[dict]:
    """Return the statistics of the units, in the order of their output files."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("_tt/units/**/*.json"))]


def without_run(manifest: dict) -> dict:
    """Return the part of a manifest that does not depend on how often the job was stopped."""
    return {key: manifest[key] for key in manifest if key not in ("last_run", "unit_seconds")}


def numbered(count: int) -> pa.Table:
    return pa.table({"id": range(count), "text": [f"row {i}" for i in range(count)]})


def turned(count: int) -> list[str]:
    return [reverse(f"row {i}") for i in range(count)]


def refused(source, output, **arguments) -> str:
    with pytest.raises(UserError) as caught:
        translate(source, output, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def load_nothing() -> Reverser:
    raise UserError("no model folder at nowhere. Train a model with `tt train`")
