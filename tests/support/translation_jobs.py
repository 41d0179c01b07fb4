"""Parquet jobs with a translator that needs no TensorFlow: it turns texts round."""

import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.engines.translator import Hypothesis, Translation, Work
from model.errors import UserError
from model.text.unknown import UnknownParts
from model.transformer.config import Decoding
from pipelines.texts.translating import STATUSES, CellOptions
from pipelines.translate.transforms import TranslateOptions, translate_parquet

UNK, BOS, EOS = 1, 2, 3
NO_ROWS = dict.fromkeys(STATUSES, 0)
TWO_WORKERS = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
ADDED = ["translation", "translation_score", "translation_status", "translation_error"]

loads: list[int] = []  # thread of each load
crash_at: set[str] = set()  # texts that kill the job, put in and taken out by a test
fail_at: set[str] = set()  # texts that the model fails at, likewise


class Reverser:
    """Ids are ordinals between BOS and EOS; the score is minus the number of them."""

    def __init__(self, *, n_best: int = 1) -> None:
        self.translated: list[str] = []
        self._n_best = n_best

    def encode(self, texts):
        return [[BOS, *map(ord, text.replace("\u200b", "").strip()), EOS] for text in texts]

    def translate_ids(self, source_ids):
        texts = ["".join(map(chr, ids[1:-1])) for ids in source_ids]
        assert crash_at.isdisjoint(texts), "the worker dies here"
        for text in texts:
            if text in fail_at:
                raise ValueError(f"cannot take {text}")
        self.translated += texts
        found = [
            Translation(
                tuple(Hypothesis(text[::-1] + "'" * n, -n - len(text)) for n in range(self._n_best))
            )
            for text in texts
        ]
        tokens = sum(map(len, source_ids))
        padded = max(map(len, source_ids), default=0) * len(source_ids)
        work = Work(
            sources=len(texts), source_tokens=tokens, padded_tokens=padded, target_tokens=tokens
        )
        return found, work

    def count_unknown(self, text):
        """Each character is a letter, and a token."""
        unknown = text.count(chr(UNK))
        return UnknownParts(unknown, len(text), unknown, len(text))

    def is_input_error(self, error):
        return isinstance(error, ValueError)


def load_reverser() -> Reverser:
    loads.append(threading.get_ident())
    return Reverser()


def translate(source, output, *, arguments=(), fingerprint="f0", load=load_reverser, **options):
    names = (source,) if isinstance(source, str | Path) else source
    decoding = options.pop("decoding", Decoding())
    if most := options.pop("max_source_tokens", None):
        options["cells"] = CellOptions(max_source_tokens=most, on_too_long="skip")
    values = {"input": tuple(map(str, names)), "output": str(output), "max_failed": 1.0, **options}
    return translate_parquet(
        options=TranslateOptions(**values),
        load_translator=load,
        model_fingerprint=fingerprint,
        decoding=decoding,
        engine={"name": "reverser"},
        beam_arguments=arguments,
    )


def write(path: Path, table, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
    return path


def files_below(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def outputs(folder: Path) -> list[str]:
    return [name for name in files_below(folder) if name.endswith(".parquet")]


def output_bytes(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in outputs(folder)}


def read(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read()


def read_all(folder: Path) -> pa.Table:
    return pa.concat_tables([read(folder / name) for name in outputs(folder)])


def manifest(folder: Path) -> dict:
    return json.loads((folder / "_tt/manifest.json").read_text())


def unit_statistics(folder: Path) -> list[dict]:
    """Returns what the units say of themselves, in the order of their output files."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("_tt/units/**/*.json"))]


def without_run(manifest: dict) -> dict:
    """Returns the part of a manifest that does not depend on how often the job was stopped."""
    return {key: manifest[key] for key in manifest if key not in ("last_run", "unit_seconds")}


def numbered(count: int) -> pa.Table:
    return pa.table({"id": range(count), "text": [f"row {i}" for i in range(count)]})


def turned(count: int) -> list[str]:
    return [f"row {i}"[::-1] for i in range(count)]


def refused(source, output, **arguments) -> str:
    with pytest.raises(UserError) as caught:
        translate(source, output, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def load_nothing() -> Reverser:
    raise UserError("no model folder at nowhere: train one with `tt train`")
