"""What a translation job asks an object store for, to the request and the byte."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from translation_jobs import numbered, request

from pipelines.storage.paths import file_systems
from pipelines.translate.inputs import inspect_input
from pipelines.translate.options import TranslateOptions

FILES = 40


def put(path: str, table: pa.Table, **options) -> int:
    """Writes a table to the store as Parquet; returns its bytes."""
    content = io.BytesIO()
    pq.write_table(table, content, **options)
    with file_systems().create(path, compression_type="uncompressed") as file:
        file.write(content.getvalue())
    return len(content.getvalue())


@pytest.fixture
def many_files(object_store):
    """A folder of files; of one the footer is longer than what is read at first."""
    folder = f"{object_store.bucket}/in"
    for number in range(FILES - 1):
        put(f"{folder}/year={number % 3}/part-{number}.parquet", numbered(3))
    put(f"{folder}/wide.parquet", numbered(2000), row_group_size=2)
    object_store.forget()
    return folder


def test_footers_take_at_most_three_requests_a_file_and_16_are_read_at_once(
    object_store, many_files
):
    object_store.delay = 0.05
    output = f"{object_store.bucket}/out"
    options = TranslateOptions(input=(many_files,), output=output, text_columns=("text",))
    found = inspect_input(options)
    assert sum(file.rows for file in found.files) == 3 * (FILES - 1) + 2000
    assert object_store.counts() == {"list": 2, "object": FILES, "media": FILES + 1}
    assert object_store.count(under=f"{many_files}/wide.parquet") == 3
    assert 12 <= object_store.most_at_once <= 16


def test_planning_asks_for_each_file_no_more_than_that(object_store, many_files):
    request(many_files, f"{object_store.bucket}/out", text_columns=("text",)).plan()
    asked = object_store.counts()
    # The first texts are looked at, and the output folder is listed.
    assert asked["object"] + asked["media"] <= 2 * FILES + 8
    assert asked["list"] <= 6


def test_files_that_are_named_take_three_requests_each(object_store, many_files):
    names = [f"{many_files}/year={number % 3}/part-{number}.parquet" for number in range(5)]
    found = inspect_input(
        TranslateOptions(input=tuple(names), output="out", text_columns=("text",))
    )
    assert [file.rows for file in found.files] == [3] * 5
    assert object_store.counts() == {"object": 2 * 5, "media": 5}
