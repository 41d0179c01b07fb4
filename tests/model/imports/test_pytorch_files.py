"""Files of PyTorch give their arrays, and never execute anything."""

from __future__ import annotations

import os
import pickle
import zipfile

import numpy as np
import pytest
from huggingface_folders import older_file, zip_file, zipped
from hypothesis import given, settings
from hypothesis import strategies as st

from tt.model.errors import UserError
from tt.model.imports.pytorch_files import PyTorchFile

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.weight": np.array([1.5, -2], np.float16),
    "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "scalar": np.array(7, np.int64),
    "empty": np.zeros([0, 3], np.float32),
}
WRITERS = {"zip": zip_file, "older": older_file}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_arrays_are_read_with_their_shapes_and_types(tmp_path, write):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(write(ARRAYS))
    file = PyTorchFile(path)
    assert sorted(file.names) == sorted(ARRAYS)
    for name, expected in ARRAYS.items():
        found = file.read(name)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


class Dangerous:
    """Deletes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.remove, (self.path,)


def older(pickled):
    return b"".join(pickle.dumps(p, 2) for p in (0x1950A86A20F9469CFC6C, 1001, {})) + pickled


@pytest.mark.parametrize("place", [zipped, older, bytes], ids=["zip", "older", "plain"])
def test_code_in_a_pickle_is_refused_and_not_executed(tmp_path, place):
    victim = tmp_path / "victim"
    victim.write_text("still here")
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(place(pickle.dumps({"a": Dangerous(str(victim))}, 2)))
    with pytest.raises(UserError, match=r"contains (posix|os)\.remove, which may execute code"):
        PyTorchFile(path)
    assert victim.read_text() == "still here"


GLOBALS = [
    b"cbuiltins\neval\n", b"cbuiltins\ngetattr\n", b"cos\nsystem\n", b"cnumpy\nload\n",
    b"ctorch\nload\n", b"ctorch.jit\nload\n", b"ctorch._utils\n_rebuild_wrapper_subclass\n",
    b"ccollections\nOrderedDict.__init__\n", b"ctorch\nFloatStorage.x\n",
]  # fmt: skip


@pytest.mark.parametrize("name", GLOBALS)
def test_any_other_name_is_refused(tmp_path, name):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(zipped(b"\x80\x02" + name + b"."))
    with pytest.raises(UserError, match="may execute code"):
        PyTorchFile(path)


def test_names_are_also_refused_in_newer_pickle_protocols(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    for protocol in range(6):
        path.write_bytes(zipped(pickle.dumps(Dangerous("x"), protocol)))
        with pytest.raises(UserError, match="may execute code"):
            PyTorchFile(path)


def test_a_tensor_cannot_read_outside_its_storage(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    content = zip_file({"a": np.arange(4, dtype=np.float32)})
    # The shape (4,) becomes (9,): K\x04\x85 is the number 4 in a tuple.
    path.write_bytes(content.replace(b"K\x04\x85q", b"K\x09\x85q", 1))
    with zipfile.ZipFile(path) as archive:
        pickled = archive.read("archive/data.pkl") if archive.testzip() is None else None
    assert pickled is None, "the checksum of the archive reveals the change"
    pickled = pickled_of(content).replace(b"K\x04\x85q", b"K\x09\x85q", 1)
    storages = {name.rpartition("/")[2]: data for name, data in stored(content).items()}
    path.write_bytes(zipped(pickled, storages))
    with pytest.raises(UserError, match="larger than its storage"):
        PyTorchFile(path).read("a")


@pytest.mark.parametrize("compressed", ["data/", "data.pkl", "byteorder"])
def test_compressed_members_are_refused(tmp_path, compressed):
    path = tmp_path / "pytorch_model.bin"
    entries = _entries(zip_file({"a": np.zeros(1000, np.float32)}))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"archive/byteorder": b"little", **entries}.items():
            is_chosen = name.startswith(f"archive/{compressed}")
            kind = zipfile.ZIP_DEFLATED if is_chosen else zipfile.ZIP_STORED
            archive.writestr(name, content, kind)
    with pytest.raises(UserError, match="compressed"):
        PyTorchFile(path).read("a")


def pickled_of(content):
    return _entries(content)["archive/data.pkl"]


def stored(content):
    return {k: v for k, v in _entries(content).items() if k.startswith("archive/data/")}


def _entries(content):
    import io

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_give_one_error(tmp_path_factory, write, data):
    content = bytearray(write(ARRAYS))
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("damaged") / "pytorch_model.bin"
    path.write_bytes(content)
    messages = []
    try:
        file = PyTorchFile(path)
        for name in file.names:
            file.read(name)
    except UserError as error:
        messages.append(str(error))
    assert all(len(message.splitlines()) == 1 for message in messages)
