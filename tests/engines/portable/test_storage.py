"""Workers that know no address reach the object store of the user who started the job."""

from __future__ import annotations

import pytest
from command_line import run
from engine_jobs import comparable, preprocess_arguments, translate_arguments


@pytest.mark.parametrize("command", ["preprocess", "translate-batch"])
def test_a_job_takes_the_address_of_its_store_to_its_workers(
    command, s3_bucket, remote_workers, model_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if command == "preprocess":
        arguments = preprocess_arguments(s3_bucket.bucket)
    else:
        arguments = translate_arguments(s3_bucket.bucket, model_folder)
    there = f"{s3_bucket.bucket}/there"
    assert run(*arguments, "--output", there, "--", *remote_workers) == 0, capsys.readouterr().err
    assert run(*arguments, "--output", f"{s3_bucket.bucket}/here") == 0
    outputs = [
        comparable(s3_bucket.objects(folder), folder)
        for folder in (there, f"{s3_bucket.bucket}/here")
    ]
    assert outputs[0].keys() == outputs[1].keys()
    assert [name for name in outputs[0] if name.endswith((".tfrecord", ".parquet"))]
