"""Run folders on stand-ins for S3 and Google Cloud Storage."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import last_error, run
from trainers import changed, ignore, log_of, make_trainer, weights_in

from tt.model.storage import listing

BUCKETS = {"s3_bucket": "s3://bucket", "object_store": "gs://bucket"}


@pytest.mark.parametrize("store", BUCKETS)
def test_run_on_a_store_equals_a_local_run(store, toy_dataset, finish_run, tmp_path, request):
    request.getfixturevalue(store)
    remote = f"{BUCKETS[store]}/runs/a"
    make_trainer(toy_dataset, remote, training=changed(steps=8)).train(ignore)
    resumed = make_trainer(toy_dataset, remote)
    assert (resumed.state.step, resumed.notes) == (8, [])
    resumed.train(ignore)
    local = finish_run(tmp_path / "local")
    assert listing.list_names(f"{remote}/checkpoints") == listing.list_names(f"{local}/checkpoints")
    assert [line["step"] for line in log_of(remote)][-1] == 12
    means = {remote: tmp_path / "mean", str(local): tmp_path / "expected"}
    for path, mean in means.items():
        assert run("average", "--run", path, "--count", "1", "--output", str(mean)) == 0
    for path in (remote, f"{remote}/model"):
        assert run("show", path) == 0
    found, expected = map(weights_in, means.values())
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_unusable_bucket_for_a_run_gives_a_one_line_error(s3_bucket, toy_dataset, capsys, tmp_path):
    for command in (
        ("train", "--dataset", str(toy_dataset), "--run", "s3://missing/run"),
        ("average", "--run", "s3://missing/run", "--output", str(tmp_path / "out")),
    ):
        assert run(*command) == 2
        assert last_error(capsys) == (
            "tt: error: the bucket s3://missing does not exist. Create it, or choose another bucket"
        )
