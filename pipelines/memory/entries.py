"""Files of entries: Parquet files in the folder `entries/` of a memory, which never change.

The name of a file contains a digest of its entries, so a repeated attempt writes the same file
again. Each unit of a job writes a file. The last step of the job merges the files of its units, and
then deletes them. A memory may contain an entry several times.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import itertools
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tt.model.engines.translator import Languages
from tt.model.errors import BadFileError
from tt.model.storage import listing
from tt.model.storage.files import delete, make_folder, open_for_parts, write_whole
from tt.model.storage.listing import ListedFile
from tt.pipelines.memory.keys import KEY_BYTES, Keys
from tt.pipelines.tables.damage import explain_damage, explain_each
from tt.pipelines.texts.known import Learned

MODEL, HUMAN = "model", "human"
HYPOTHESIS = pa.struct(
    [
        ("text", pa.string()),
        ("score", pa.float64()),
        ("is_complete", pa.bool_()),
        ("tokens", pa.int32()),
    ]
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary(KEY_BYTES)),
        ("kind", pa.string()),  # MODEL or HUMAN
        ("source", pa.string()),  # with placeholders, if the translation is the model's
        ("target", pa.string()),
        ("score", pa.float64()),  # the fields of the best hypothesis; null for a human translation
        ("is_complete", pa.bool_()),
        ("tokens", pa.int32()),
        ("flags", pa.list_(pa.string())),
        ("others", pa.list_(HYPOTHESIS)),  # the other hypotheses, best first
        ("source_language", pa.string()),
        ("target_language", pa.string()),
        ("context", pa.string()),  # from `model_context`; "" for a human translation
        ("created", pa.timestamp("us", tz="UTC")),
    ]
)
KNOWN_COLUMNS = pa.schema(
    [
        SCHEMA.field(name)
        for name in ("key", "target", "source_language", "target_language", "created")
    ]
)
_FOLDER = "entries"
_TIME = "%Y%m%dT%H%M%S%f"  # in the names of files with human translations
_ENDING = ".parquet"
_UNIT = "unit"  # in the names of files that have not been merged
_REPLACES = b"tt.replaces"  # the names of the merged files, as JSON
_MOST_ROWS = 1_000_000  # in a merged file, because the merge happens in memory
_BATCH_ROWS = 16_384
_STALE_SECONDS = 24 * 3600  # the maximum time to write a temporary file


def now() -> datetime.datetime:
    """Return the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


def learned_table(
    learned: Sequence[Learned],
    *,
    context: str,
    languages: Languages,
    created: datetime.datetime,
) -> pa.Table:
    """Return entries of the model's translations, sorted by key.

    Args:
      learned: The translations.
      context: The result of `model_context`.
      languages: The codes of the languages of translations that name none, or "".
      created: The time of the translations.
    """
    keys: dict[Languages, Keys] = {}
    rows: list[dict[str, Any]] = []
    for each in learned:
        own = complete(each.languages, languages)
        if own not in keys:
            keys[own] = Keys.of_model(context, own)
        best, *others = each.translation.hypotheses
        rows.append(
            {
                **vars(best),
                "key": keys[own].make(each.text),
                "kind": MODEL,
                "source": each.text,
                "target": best.text,
                "flags": each.flags,
                "others": [vars(other) for other in others],
                "source_language": own[0],
                "target_language": own[1],
                "context": context,
                "created": created,
            }
        )
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["key"]), SCHEMA)


def complete(languages: Languages, defaults: Languages) -> Languages:
    """Return the codes of languages, with the defaults instead of missing codes."""
    return languages[0] or defaults[0], languages[1] or defaults[1]


def corrections_table(
    pairs: Iterable[tuple[str, str]],
    *,
    source_language: str,
    target_language: str,
    created: datetime.datetime,
) -> pa.Table:
    """Return entries of human translations, in the order of the pairs.

    Args:
      pairs: Texts and their translations.
      source_language: The code of the source language.
      target_language: The code of the target language.
      created: The time of the import.
    """
    keys = Keys.of_people((source_language, target_language))
    rows: list[dict[str, Any]] = [
        {
            "key": keys.make(source),
            "kind": HUMAN,
            "source": source,
            "target": target,
            "source_language": source_language,
            "target_language": target_language,
            "context": "",
            "created": created,
        }
        for source, target in pairs
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def write_unit(table: pa.Table, *, folder: str, job: str) -> None:
    """Write the entries of a unit; without entries, write nothing.

    Args:
      table: The entries.
      folder: The folder of the memory.
      job: The digest of the job's plan, which becomes part of the name.
    """
    if table.num_rows:
        _write(table, folder=folder, name=f"{job}-{_UNIT}")


def write_corrections(
    batches: Iterable[pa.RecordBatch], *, folder: str, created: datetime.datetime
) -> int:
    """Write entries of human translations, and return their number; without entries, write nothing.

    The time becomes part of the name of the file.
    """
    rest = iter(batches)
    if (first := next(rest, None)) is None:
        return 0
    path, written = f"{folder}/{_FOLDER}", 0
    make_folder(path)
    name = f"{HUMAN}-{created:{_TIME}}-{uuid.uuid4().hex}{_ENDING}"
    with (
        write_whole(f"{path}/{name}", temporary_folder=path) as file,
        pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer,
    ):
        for batch in itertools.chain([first], rest):
            writer.write_batch(batch)
            written += batch.num_rows
    return written


def read_human(folder: str, *, after: float = 0.0) -> Iterator[pa.RecordBatch]:
    """Yield the KNOWN_COLUMNS of human translations; damaged files are skipped.

    Args:
      folder: The folder of the memory.
      after: Skip translations that were added before this time, in seconds since 1970.
    """
    for name, file in list_entries(folder).items():
        kind, _, rest = name.partition("-")
        if kind != HUMAN:
            continue
        created = datetime.datetime.strptime(rest.partition("-")[0], _TIME)
        if created.replace(tzinfo=datetime.UTC).timestamp() > after:
            with (
                contextlib.suppress(BadFileError, FileNotFoundError),
                EntryFile(file.path) as opened,
            ):
                yield from opened.batches(KNOWN_COLUMNS.names)


def _write(table: pa.Table, *, folder: str, name: str, replaces: Sequence[str] = ()) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for key, target in zip(*(table[c].to_pylist() for c in ("key", "target")), strict=True):
        digest.update(key + target.encode() + b"\0")
    if replaces:
        table = table.replace_schema_metadata({_REPLACES: json.dumps(list(replaces))})
    path = f"{folder}/{_FOLDER}"
    make_folder(path)
    name = f"{name}-{digest.hexdigest()}{_ENDING}"
    with write_whole(f"{path}/{name}", temporary_folder=path) as file:
        pq.write_table(table, file, compression="zstd", row_group_size=8 * _BATCH_ROWS)
    return name


def list_entries(folder: str) -> dict[str, ListedFile]:
    """Return the files of entries by name.

    Raises:
      UserError: The file system does not answer.
    """
    files = listing.list_files(f"{folder}/{_FOLDER}")
    named = {file.path.rpartition("/")[2]: file for file in files}
    return {name: file for name, file in named.items() if name.endswith(_ENDING)}


class EntryFile:
    """An open file of entries.

    Args:
      path: The path of the file.

    Attributes:
      replaces: The names of the files whose entries this file contains.

    Raises:
      BadFileError: The file is damaged, or is not a file of entries.
      FileNotFoundError: Another job has just merged the file into another file.
    """

    def __init__(self, path: str) -> None:
        self._problem = f"{path} is damaged"
        self._handle = _open(path)
        with explain_damage(self._problem):
            self._file = pq.ParquetFile(self._handle)
            schema = self._file.schema_arrow
            metadata = schema.metadata or {}
            self.replaces: list[str] = json.loads(metadata.get(_REPLACES, b"[]"))
        if not schema.equals(SCHEMA):
            raise BadFileError(f"{path} is not a file of entries")

    def __enter__(self) -> EntryFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._handle.close()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the entries, with only some of their columns if `columns` is given.

        Raises:
          BadFileError: The file is damaged.
        """
        batches = self._file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)
        return explain_each(batches, self._problem)


def _open(path: str) -> IO[bytes]:
    try:
        return open_for_parts(path)
    except Exception:  # each file system has its own errors for missing files
        if not listing.exists(path):
            raise FileNotFoundError(path) from None
        raise


def read_table(path: str) -> pa.Table:
    """Read a file of entries; see `EntryFile`."""
    with EntryFile(path) as file:
        return pa.Table.from_batches(file.batches(), SCHEMA)


def merge_units(folder: str, *, job: str) -> None:
    """Merge the files of a job's units, and then delete them.

    Damaged files stay where they are. If the step is interrupted, the memory contains some entries
    twice, and a repeated step ends with the same files.

    Args:
      folder: The folder of the memory.
      job: The digest of the job's plan.
    """
    listed = list_entries(folder)
    names = [name for name in listed if name.startswith(f"{job}-{_UNIT}-")]
    tables: dict[str, pa.Table] = {}
    for name in names:
        try:
            tables[name] = read_table(listed[name].path)
        except (BadFileError, FileNotFoundError):  # damaged, or merged by another run
            continue
        if sum(table.num_rows for table in tables.values()) >= _MOST_ROWS:
            _merge(tables, folder=folder, job=job)
            tables = {}
    _merge(tables, folder=folder, job=job)
    _delete_leftovers(folder)


def _merge(tables: Mapping[str, pa.Table], *, folder: str, job: str) -> None:
    if len(tables) < 2:
        return
    table = _distinct(pa.concat_tables(tables.values()).sort_by("key"))
    _write(table, folder=folder, name=job, replaces=list(tables))
    delete([f"{folder}/{_FOLDER}/{name}" for name in tables])


def _distinct(table: pa.Table) -> pa.Table:
    """Return a sorted table with only the first entry of each key."""
    keys = table["key"].combine_chunks()
    is_new = pc.not_equal(keys[1:], keys[:-1])
    return table.filter(pa.concat_arrays([pa.array([True]), is_new]))


def _delete_leftovers(folder: str) -> None:
    """Delete the temporary files of killed jobs."""
    files = listing.list_files(f"{folder}/{_FOLDER}")
    oldest = time.time() - _STALE_SECONDS
    delete([f.path for f in files if f.path.endswith(".tmp") and 0 < f.changed < oldest])
