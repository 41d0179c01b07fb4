"""The exact requests of `tt preprocess` to an object store."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_jobs import upload

from tt.pipelines.preprocess.corpora import open_corpora
from tt.pipelines.preprocess.job import PreprocessJob
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.parquet_columns import ParquetColumns
from tt.pipelines.preprocess.plan import plan_preprocess

ONE_WORKER = ["--direct_num_workers=1"]
PAIRS = 40_000  # in each of three files, which have two units each
SHARDS = 64


def make_sentence(chooser, words):
    return " ".join(chooser.choices(words, k=24))


def write_corpus(object_store, *, files, pairs):
    """Write Parquet files of pairs with 24 words per side, in row groups of 10,000."""
    chooser = random.Random(1)
    letters = "abcdefghijklmnoprstuvwz"
    words = ["".join(chooser.choices(letters, k=chooser.randint(2, 9))) for _ in range(3000)]
    for number in range(files):
        sources = [make_sentence(chooser, words) for _ in range(pairs)]
        table = pa.table({"source": sources, "target": [text[::-1] for text in sources]})
        content = io.BytesIO()
        pq.write_table(table, content, row_group_size=10_000)
        upload(f"{object_store.bucket}/corpus/part-{number:05d}.parquet", content.getvalue())


def test_merging_makes_one_request_per_unit_and_shard(object_store):
    write_corpus(object_store, files=3, pairs=PAIRS)
    output = f"{object_store.bucket}/data"
    plan = plan_preprocess(
        sources=open_corpora([f"{object_store.bucket}/corpus/*.parquet"]),
        options=PreprocessOptions(output=output, shards=SHARDS, vocabulary_size=300),
    )
    object_store.forget()
    manifest = PreprocessJob(plan=plan, beam_arguments=ONE_WORKER).run()
    assert manifest.lines_read == 3 * PAIRS
    assert not object_store.objects(f"{output}/_work")
    spill = f"{plan.work.path}/spill-"
    written = [each for each in object_store.requests
               if each.kind == "upload" and each.path.startswith(spill)]  # fmt: skip
    units = len({request.path for request in written})
    size = sum(request.received for request in written)
    served = object_store.served(under=spill)
    requests = object_store.count("media", under=spill)
    print(
        f"{units} units, {SHARDS} shards: {size:,} bytes written, {served:,} served with "
        f"{requests} requests; all requests: {object_store.counts()}"
    )
    assert units >= 6
    assert served <= 1.1 * size
    assert requests <= units * (SHARDS + 1), "the other split has one shard"


def plan_of(object_store, pattern, *, min_at_once=0):
    object_store.forget()
    object_store.delay, object_store.min_at_once = 0.02, min_at_once
    sources = open_corpora([f"{object_store.bucket}/{pattern}"])
    output = f"{object_store.bucket}/data"
    return plan_preprocess(sources=sources, options=PreprocessOptions(output=output))


def test_planning_parquet_makes_a_listing_and_one_request_per_file(object_store):
    write_corpus(object_store, files=80, pairs=100)
    plan = plan_of(object_store, "corpus/*.parquet", min_at_once=8)
    assert len(plan.sources) == 80
    print(f"80 Parquet files: {object_store.counts()}, {object_store.most_at_once} at a time")
    assert object_store.counts() == {"object": 1, "list": 1, "media": 80}, (
        "look up the pattern as a name, list its matches, and read their footers"
    )
    assert 8 <= object_store.most_at_once <= 16
    assert object_store.served() <= 80 * (64 << 10)


@pytest.mark.parametrize(
    ("row_group_size", "requests", "share"), [(60_000, 8, 1.5), (1_000, 16, 4.5)]
)
def test_a_parquet_corpus_is_read_in_large_requests(object_store, row_group_size, requests, share):
    """Two of three columns are read. In a large row group, each column has more than 20 MB."""
    chooser, content = random.Random(1), io.BytesIO()
    texts = [chooser.randbytes(180).hex() for _ in range(60_000)]
    table = pa.table({"source": texts, "target": texts[::-1], "id": range(len(texts))})
    pq.write_table(
        table, content, row_group_size=row_group_size, use_dictionary=False, compression="none"
    )
    path = f"{object_store.bucket}/corpus/a.parquet"
    upload(path, content.getvalue())
    object_store.forget()
    read = ParquetColumns(path, "source", "target").read_rows(first_row=0, rows=len(texts))
    found = pa.concat_tables(read)
    assert (found["source"].to_pylist(), found["target"].to_pylist()) == (texts, texts[::-1])
    served = object_store.served() / len(content.getvalue())
    print(f"row groups of {row_group_size:,}: {object_store.counts()}, {served:.3f} of the bytes")
    assert object_store.count("media") <= requests
    assert served <= share


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_planning_text_makes_one_listing(object_store, ending):
    line = {"tsv": b"one\ttwo\n", "jsonl": b'{"source": "one", "target": "two"}\n'}[ending]
    for number in range(40):
        upload(f"{object_store.bucket}/corpus/part-{number:05d}.{ending}", line * 10)
    min_at_once = {"tsv": 0, "jsonl": 8}[ending]
    plan_of(object_store, f"corpus/*.{ending}", min_at_once=min_at_once)
    counts = object_store.counts()
    print(f"40 files of {ending}: {counts}, {object_store.most_at_once} at a time")
    looked_into = {"tsv": 0, "jsonl": 40}[ending]  # Each file may have different keys.
    assert counts["list"] == 1
    assert counts.get("media", 0) <= 3 * looked_into, "its lines, and two reads that find its end"
    assert min_at_once <= object_store.most_at_once <= 16
    assert counts["object"] <= 1 + looked_into
