"""Files on S3, and one-line errors for its buckets. `test_kills.py` runs both jobs on S3."""

from __future__ import annotations

import time

import pytest
from command_line import last_error, run
from engine_jobs import preprocess_arguments, translate_arguments

from tt.model.storage import files, listing, stores


def write(path, content):
    with files.write_whole(path, temporary_folder="s3://bucket/_work") as file:
        file.write(content)


def test_empty_objects_are_written_and_read(s3_bucket):
    path = f"{s3_bucket.bucket}/empty.jsonl"
    write(path, b"")
    assert s3_bucket.objects() == {path: b""}
    assert listing.exists(path)
    assert not listing.exists(s3_bucket.bucket)
    assert listing.list_files(s3_bucket.bucket)[0].size == 0
    assert files.read_bytes(path) == b""
    assert files.read_range(path, 0, 0) == b""


def test_a_table_without_rows_is_translated_to_an_empty_object(
    s3_bucket, model_folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(f"{s3_bucket.bucket}/in/a.csv", b"id,text\n")
    asked = ("--model", model_folder, "--text-column", "text", "--format", "jsonl")
    assert run("translate-batch", "s3://bucket/in/", "--output", "s3://bucket/out", *asked) == 0
    found = {name: content for name, content in s3_bucket.objects("s3://bucket/out/").items()
             if "/_tt/" not in name}  # fmt: skip
    assert found == {"s3://bucket/out/a-00000-of-00001.jsonl": b""}


def refused(capsys, *arguments):
    stores._check_bucket.cache_clear()
    start = time.monotonic()
    assert run("preprocess", *arguments) == 2
    assert time.monotonic() - start < 15
    return last_error(capsys)


def test_an_unusable_bucket_gives_a_one_line_error(s3_bucket, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, "s3://absent/a.tsv", "--output", "o") == (
        "tt: error: the bucket s3://absent does not exist. Create it, or choose another bucket"
    )
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        line = refused(capsys, "s3://bucket/a.tsv", "--output", "o")
    assert line.startswith("tt: error: s3://bucket does not answer (Generic S3 error: ")
    assert line.endswith(
        "error sending request). Check the network, and run the same command again"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")  # of a machine on Amazon
    stores._make.cache_clear()
    assert refused(capsys, "s3://bucket/a.tsv", "--output", "o") == (
        "tt: error: s3://bucket requires a login (tt found no keys). Run `aws configure`, or set "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
    stores._make.cache_clear()
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("command", "denied"), [("preprocess", ("GET",)), ("translate-batch", ("PUT", "POST"))]
)
def test_missing_rights_to_a_bucket_give_a_one_line_error(
    s3_bucket, model_folder, capsys, tmp_path, monkeypatch, command, denied
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = preprocess_arguments(s3_bucket.bucket)
    if command == "translate-batch":
        given = translate_arguments(s3_bucket.bucket, model_folder)
    before = s3_bucket.objects()
    s3_bucket.denied = denied
    assert run(*given, "--output", "s3://bucket/out") == 2
    s3_bucket.denied = ()
    told = capsys.readouterr().err
    assert told.count("tt: error: ") == 1
    assert "Traceback" not in told
    line = told.splitlines()[-1]
    assert "your account has no permission (AccessDenied: Access Denied)" in line
    assert s3_bucket.objects() == before
