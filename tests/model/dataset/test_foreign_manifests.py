"""A damaged or foreign `dataset.json` is refused with one line."""

import json
import shutil

import pytest
from command_line import last_error, run


@pytest.fixture
def folder(tmp_path, toy_dataset):
    """Return a dataset next to the shards of another dataset."""
    shutil.copytree(toy_dataset, tmp_path / "other")
    return shutil.copytree(toy_dataset, tmp_path / "dataset")


def edit(folder, change):
    path = folder / "dataset.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def set_shard(name):
    return lambda values: values["splits"]["train"]["shards"].__setitem__(0, name)


CHANGES = {
    "/etc/passwd": set_shard("/etc/passwd"),
    "../other/train-00000-of-00001.tfrecord": set_shard("../other/train-00000-of-00001.tfrecord"),
    "x/../../y": set_shard("x/../../y"),
    "..": set_shard(".."),
    "../other/test.parquet": lambda values: values["splits"]["validation"].update(
        tables=["../other/test.parquet"]
    ),
    "/x.spm": lambda values: values.update(vocabulary_digests={"/x.spm": "0"}),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("command", ["show", "train"])
def test_files_outside_the_folder_are_refused(folder, tmp_path, capsys, name, command):
    edit(folder, CHANGES[name])
    options = ("--dataset", folder, "--run", tmp_path / "run") if command == "train" else (folder,)
    assert run(command, *options) == 2
    said = last_error(capsys)
    assert f"must name files inside its folder. Received: '{name}'. " in said
    assert "`tt preprocess`" in said or "tt preprocess" in said
    assert not (tmp_path / "run").exists()
