"""The file system of the tests that represents remote file systems."""

import gzip
from concurrent.futures import ThreadPoolExecutor

import pytest
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from memory_filesystem import MemoryFileSystem

from tt.pipelines.storage import files, listing


@pytest.fixture
def memory():
    MemoryFileSystem.clear()
    yield MemoryFileSystem
    MemoryFileSystem.clear()


def paths_of(pattern):
    return [file.path for file in listing.find_listed(pattern)]


def test_the_memory_file_system_behaves_like_an_object_store(memory):
    filesystem = FileSystems.get_filesystem("mem://b/x")
    assert FileSystems.join("mem://b/", "x", "y.txt") == "mem://b/x/y.txt"
    assert FileSystems.split("mem://b/x/y.txt") == ("mem://b/x", "y.txt")
    FileSystems.mkdirs("mem://b/x")
    with files.write_whole("mem://b/x/y.txt", temporary_folder="mem://b/t") as file:
        file.write(b"one")
        assert not FileSystems.exists("mem://b/x/y.txt")
    files.write_text("mem://b/z.txt", "two", temporary_folder="mem://b")
    first = FileSystems.last_updated("mem://b/z.txt")
    files.write_text("mem://b/z.txt", "two!", temporary_folder="mem://b")
    assert FileSystems.last_updated("mem://b/z.txt") > first
    assert memory.paths() == ["mem://b/x/y.txt", "mem://b/z.txt"]
    assert listing.file_identity("mem://b/z.txt")["bytes"] == filesystem.size("mem://b/z.txt") == 4
    FileSystems.copy(["mem://b/z.txt"], ["mem://c/z.txt"])
    FileSystems.rename(["mem://c/z.txt"], ["mem://b/x/z.txt"])
    assert paths_of("mem://b/*.txt") == ["mem://b/z.txt"]
    assert paths_of("mem://**") == [
        "mem://b/x/y.txt", "mem://b/x/z.txt", "mem://b/z.txt",
    ]  # fmt: skip
    with FileSystems.open("mem://b/x/y.txt") as file:
        assert file.seek(1) == 1
        assert file.read() == b"ne"
    with FileSystems.create("mem://b/a.gz") as file:
        file.write(b"text")
    with files.open_binary("mem://b/a.gz") as file:
        assert gzip.decompress(file.read()) == b"text"
    with FileSystems.open("mem://b/a.gz") as file:
        assert file.read() == b"text"
    FileSystems.delete(["mem://b/x", "mem://b/*.gz"])
    assert memory.paths() == ["mem://b/z.txt"]
    with pytest.raises(BeamIOError):
        FileSystems.delete(["mem://b/x"])
    with pytest.raises(BeamIOError):
        FileSystems.rename(["mem://b/x"], ["mem://b/y"])
    with pytest.raises(FileNotFoundError):
        FileSystems.open("mem://b/x")


def test_all_threads_share_the_memory_file_system(memory):
    def write(number):
        for i in range(20):
            files.write_text(f"mem://b/{i}", str(number), temporary_folder=f"mem://t/{number}")
            FileSystems.match(["mem://**"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert memory.paths() == sorted(f"mem://b/{i}" for i in range(20))
