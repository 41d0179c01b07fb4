"""The exact requests of a translation job to an object store, and the bytes that it reads."""

from __future__ import annotations

import collections
import gzip
import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_jobs import upload
from translation_jobs import numbered, request

from tt.model.storage.files import delete
from tt.pipelines.translate.inputs import inspect_input
from tt.pipelines.translate.options import TranslateOptions

FILES = 40


def put(path: str, table: pa.Table, **options) -> int:
    """Write a table to the store as Parquet; return its size in bytes."""
    content = io.BytesIO()
    pq.write_table(table, content, **options)
    upload(path, content.getvalue())
    return len(content.getvalue())


@pytest.fixture
def many_files(object_store):
    """A folder of files, one of which has a footer that is longer than the first read."""
    folder = f"{object_store.bucket}/in"
    for number in range(FILES - 1):
        put(f"{folder}/year={number % 3}/part-{number}.parquet", numbered(3))
    put(f"{folder}/wide.parquet", numbered(2000), row_group_size=2)
    object_store.forget()
    return folder


def test_footers_take_three_requests_per_file_and_16_are_read_at_once(object_store, many_files):
    object_store.delay, object_store.min_at_once = 0.05, 12
    output = f"{object_store.bucket}/out"
    options = TranslateOptions(input=(many_files,), output=output, text_columns=("text",))
    found = inspect_input(options)
    assert sum(file.rows for file in found.files) == 3 * (FILES - 1) + 2000
    assert object_store.counts() == {"list": 2, "object": FILES, "media": FILES + 1}
    assert object_store.count(under=f"{many_files}/wide.parquet") == 3
    assert 12 <= object_store.most_at_once <= 16


def test_planning_makes_no_more_requests_per_file(object_store, many_files):
    request(many_files, f"{object_store.bucket}/out", text_columns=("text",)).plan()
    asked = object_store.counts()
    # Planning also examines the first texts, and lists the output folder.
    assert asked["object"] + asked["media"] <= 2 * FILES + 8
    assert asked["list"] <= 6


def make_large_table(rows: int, *, megabytes: int) -> pa.Table:
    """Return a table of this size with random bytes, and with a text in every hundredth row."""
    size = megabytes * 1_000_000 // rows // 2
    chooser = random.Random(1)
    columns = {
        "text": [f"text {i}" if i % 100 == 0 else None for i in range(rows)],
        "left": [chooser.randbytes(size) for _ in range(rows)],
        "right": [chooser.randbytes(size) for _ in range(rows)],
    }
    return pa.table(columns)


@pytest.mark.parametrize(("rows", "row_group_size"), [(200_000, 200_000), (100_000, 5_000)])
def test_a_file_is_read_at_most_once_and_a_third(object_store, rows, row_group_size):
    source, output = f"{object_store.bucket}/in/large.parquet", f"{object_store.bucket}/out"
    size = put(source, make_large_table(rows, megabytes=43), row_group_size=row_group_size)
    job = request(source, output, text_columns=("text",)).plan()
    object_store.forget()
    job.run()
    units = -(-rows // 8192)
    assert (
        len([path for path in object_store.objects(output) if path.endswith(".parquet")]) == units
    )
    served = object_store.served(under=source) / size
    print(f"{rows:,} rows in row groups of {row_group_size:,}: {served:.3f} of {size:,} bytes")
    assert 1 <= served <= 1.3
    print(
        f"{object_store.count(under=source)} requests for the file, "
        f"{object_store.count(under=output) / units:.1f} per unit for the output"
    )
    assert not object_store.objects(f"{output}/_tt/rows")


@pytest.mark.parametrize(("ending", "most"), [("csv", 2.2), ("jsonl", 3.1)])
def test_units_of_a_text_file_read_only_their_ranges(object_store, ending, most):
    """CSV is read to count its rows, and once more by the units; JSONL has a pass for its types."""
    source, output = f"{object_store.bucket}/in/a.{ending}", f"{object_store.bucket}/out"
    chooser = random.Random(1)
    rows = [[str(number), chooser.randbytes(60).hex()] for number in range(80_000)]
    lines = ["id,text", *map(",".join, rows)]
    if ending == "jsonl":
        lines = [json.dumps({"id": number, "text": text}) for number, text in rows]
    content = "\n".join(lines).encode()
    upload(source, content)
    job = request(source, output, text_columns=("text",), unit_rows=20_000, where="id = '1'").plan()
    object_store.forget()
    assert job.run().rows == len(rows)
    served = object_store.served(under=source) / len(content)
    print(f"{ending}: {served:.2f} times, {object_store.count(under=source)} requests")
    assert 2 <= served <= most
    assert object_store.count(under=source) <= 4 * 5 + 10
    assert not [each for each in object_store.requests if "/_tt/rows/" in each.path]


def test_a_progress_update_makes_one_request(object_store):
    source, output = f"{object_store.bucket}/in/a.parquet", f"{object_store.bucket}/out"
    put(source, numbered(95))
    begin = request(source, output, unit_rows=10).plan()
    begin.run()
    [manifest] = [path for path in object_store.objects(output) if path.endswith("manifest.json")]
    delete([manifest, f"{output}/a-00003-of-00010.parquet"])
    watch = request(source, output, unit_rows=10).plan().watch()
    object_store.forget()
    assert watch.measure().phase == "writing the manifest", "the record of the lost file exists"
    assert object_store.counts() == {"list": 1}
    records = [path for path in object_store.objects(output) if "/_tt/units/" in path]
    delete(records[:1])
    assert watch.measure().done == 85


@pytest.mark.parametrize("ending", ["csv", "jsonl", "csv.gz", "arrow"])
def test_a_job_is_submitted_without_reading_its_tables(object_store, ending):
    """Submitting makes at most three requests per file and reads at most 1 MB of it."""
    chooser = random.Random(1)
    texts = [chooser.randbytes(40).hex() for _ in range(100_000)]
    if ending == "arrow":
        table, sink = pa.table({"id": range(len(texts)), "text": texts}), io.BytesIO()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
        content = sink.getvalue()
    else:
        lines = ["id,text", *(f"{number},{text}" for number, text in enumerate(texts))]
        if ending == "jsonl":
            lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)]
        content = "".join(f"{line}\n" for line in lines).encode()
        content = gzip.compress(content, 1) if ending.endswith(".gz") else content
    assert len(content) > 4_000_000
    folder = f"{object_store.bucket}/in"
    for number in range(3):
        upload(f"{folder}/{number}.{ending}", content)
    object_store.forget()
    job = request(folder, f"{object_store.bucket}/out", text_columns=("text",)).plan()
    assert [file.rows for file in job.found.files] == [None] * 3
    for number in range(3):
        assert object_store.count(under=f"{folder}/{number}.{ending}") <= 3
        assert object_store.served(under=f"{folder}/{number}.{ending}") <= 1_000_000


@pytest.mark.parametrize(
    "options", [{}, {"format": "csv"}, {"format": "jsonl", "compression": "zstd"}], ids=str
)
def test_no_output_file_is_read_back(object_store, options):
    """A run that resumes a job reads the records of its units, and the sizes of the outputs."""
    source, output = f"{object_store.bucket}/in/a.parquet", f"{object_store.bucket}/out"
    put(source, numbered(95), row_group_size=10)

    def run(*, lost=()):
        delete(lost)
        job = request(source, output, text_columns=("text",), unit_rows=10, **options).plan()
        object_store.forget()
        assert job.run().rows == 95
        return (
            counts_of(object_store, lambda path: "/_tt/" not in path),
            counts_of(object_store, lambda path: "/_tt/units/" in path),
        )

    outputs, records = run()
    # A unit looks for its record when it begins and when it ends, and then writes the record.
    assert (len(outputs), len(records)) == (10, 10)
    assert outputs == {path: {"upload": 1} for path in outputs}
    assert records == {path: {"media": 2, "upload": 1} for path in records}
    manifest = f"{output}/_tt/manifest.json"
    size_known = {path: {"object": 1} for path in outputs}
    record_read = {path: {"media": 1} for path in records}
    assert run(lost=[manifest]) == (size_known, record_read)
    # If a record already exists, another attempt may have written it and the output file. This is
    # the only reason to read an output file.
    lost, record = next(iter(outputs)), next(iter(records))
    assert run(lost=[manifest, lost]) == (
        {**size_known, lost: {"object": 3, "upload": 1, "media": 1}},
        {**record_read, record: {"media": 3, "upload": 2}},
    )


def counts_of(object_store, is_counted):
    """Return the numbers of requests for the objects of a job's output folder, by object."""
    folder = f"{object_store.bucket}/out"
    return {
        path: dict(collections.Counter(r.kind for r in object_store.requests if r.path == path))
        for path in filter(is_counted, object_store.objects(folder))
    }
