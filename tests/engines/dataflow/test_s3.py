"""Both jobs on S3 write the bytes of a local run, even if they are killed."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from command_line import last_error, run
from commands import Child
from engine_jobs import comparable, preprocess_arguments, run_tt, translate_arguments

from tt.pipelines.storage import files, listing, object_stores

KILLS = 3


@pytest.fixture(params=["preprocess", "translate-batch"])
def arguments(request, s3_bucket, model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "preprocess":
        return preprocess_arguments(s3_bucket.bucket)
    return translate_arguments(s3_bucket.bucket, model_folder)


def run_job(store, arguments, output, *, cache, kill_at=None):
    """Run a job in its own process, which is killed when the store gets a certain request.

    Return the exit code and the number of requests.
    """
    child = None
    before = store.requests

    def count_or_kill(number):
        if number - before == kill_at:
            child.kill_group()

    store.on_request = count_or_kill
    given = (*arguments, "--output", output, "--", *store.arguments)
    child = Child(run_tt, given, environment=store.environment | {"XDG_CACHE_HOME": str(cache)})
    ended = child.wait()
    store.on_request = lambda number: None
    assert ended.result in (None, 0), ended.lines
    return ended.code, store.requests - before


def test_jobs_write_the_bytes_of_a_local_run_even_if_killed(arguments, s3_bucket, tmp_path):
    job = {"cache": tmp_path / "cache"}
    # The local run needs its own process, too. In the process of other tests, TensorFlow may have
    # other threads, and sums then have other last bits.
    assert run_job(s3_bucket, arguments, str(tmp_path / "here"), **job)[0] == 0
    here = {
        f"here/{path.relative_to(tmp_path / 'here').as_posix()}": path.read_bytes()
        for path in (tmp_path / "here").rglob("*")
        if path.is_file()
    }
    code, requests = run_job(s3_bucket, arguments, "s3://bucket/whole", **job)
    assert code == 0
    whole = comparable(s3_bucket.objects("s3://bucket/whole/"), "s3://bucket/whole")
    ours = comparable(here, "here")
    assert len(whole) >= 6
    assert whole.keys() == ours.keys()
    for name in ours.keys() - {"_tt/manifest.json"}:
        assert whole[name] == ours[name], name
    chooser = random.Random(7)
    for number, moment in enumerate(sorted(chooser.sample(range(9, requests * 2 // 3), KILLS))):
        output = f"s3://bucket/killed-{number}"
        assert run_job(s3_bucket, arguments, output, kill_at=moment, **job)[0] == -9, moment
        assert run_job(s3_bucket, arguments, output, **job)[0] == 0
        objects = s3_bucket.objects(f"{output}/")
        assert comparable(objects, output) == whole, moment
        assert not [path for path in objects if "/_work/" in path], moment
        assert b"secret" not in b"".join(objects.values())


def test_a_process_has_one_client(s3_bucket, monkeypatch):
    """A client for each look-up would take a tenth of a second."""
    import boto3

    made = []
    make = boto3.session.Session.client

    def counted(self, *arguments, **options):
        made.append(arguments)
        return make(self, *arguments, **options)

    monkeypatch.setattr(boto3.session.Session, "client", counted)
    monkeypatch.setattr(object_stores, "_clients", {})
    paths = [f"{s3_bucket.bucket}/many/{number:02d}" for number in range(40)]
    contents = {path: f"content of {path}".encode() * 1000 for path in paths}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda path: write(path, contents[path]), paths))
        assert list(pool.map(files.read_bytes, paths)) == list(contents.values())
        ranges = [(path, 5, 3000) for path in paths]
        assert list(files.read_ranges(ranges)) == [each[5:3000] for each in contents.values()]
    assert all(map(listing.exists, paths))
    assert len(made) == 2, "Beam's client, and ours with a connection per concurrent request"


def write(path, content):
    with files.write_whole(path, temporary_folder="s3://bucket/_work") as file:
        file.write(content)


def test_empty_objects_are_written_and_read(s3_bucket):
    path = f"{s3_bucket.bucket}/empty.jsonl"
    write(path, b"")
    assert s3_bucket.objects() == {path: b""}
    assert listing.exists(path)
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
    beam = ("--", *s3_bucket.arguments)
    assert (
        run("translate-batch", "s3://bucket/in/", "--output", "s3://bucket/out", *asked, *beam) == 0
    )
    found = {name: content for name, content in s3_bucket.objects("s3://bucket/out/").items()
             if "/_tt/" not in name}  # fmt: skip
    assert found == {"s3://bucket/out/a-00000-of-00001.jsonl": b""}


def refused(capsys, *arguments):
    object_stores._check_bucket.cache_clear()
    start = time.monotonic()
    assert run("preprocess", *arguments) == 2
    assert time.monotonic() - start < 15
    return last_error(capsys)


def test_an_unusable_bucket_gives_a_one_line_error(s3_bucket, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    beam = ("--", *s3_bucket.arguments)
    assert refused(capsys, "s3://absent/a.tsv", "--output", "o", *beam) == (
        "tt: error: the bucket s3://absent does not exist. Create it, or choose another bucket"
    )
    closed = ("--", "--s3_endpoint_url=http://127.0.0.1:1", *s3_bucket.arguments[1:])
    line = refused(capsys, "s3://bucket/a.tsv", "--output", "o", *closed)
    assert line.startswith("tt: error: s3://bucket does not answer (Could not connect to the ")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    nobody = ("--", *s3_bucket.arguments[:1])
    assert refused(capsys, "s3://bucket/a.tsv", "--output", "o", *nobody) == (
        "tt: error: s3://bucket requires a login (Unable to locate credentials). Run `aws "
        "configure`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("denied", [("GET",), ("PUT", "POST")])
@pytest.mark.parametrize("command", ["preprocess", "translate-batch"])
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
    assert run(*given, "--output", "s3://bucket/out", "--", *s3_bucket.arguments) == 2
    s3_bucket.denied = ()
    told = capsys.readouterr().err
    assert told.count("tt: error: ") == 1
    assert "Traceback" not in told
    line = told.splitlines()[-1]
    assert "An error occurred (AccessDenied) when calling the " in line
    assert "your permissions" in line
    assert "('An error" not in line
    assert s3_bucket.objects() == before
