"""Three days of a growing table, with kills on the third day."""

import random
import shutil
import signal
import time

import pytest
from commands import Child
from slow_translation import translate_slowly
from translation_jobs import output_bytes, read_all, translate, write

KILLS = 8
FILES = {"changed": "redo", "removed": "delete"}
ROWS = {"key": ("id",)}


def rows(*, first, count, word="text"):
    return {
        "id": list(range(first, first + count)),
        "text": [f"{word} {i % 50}" for i in range(first, first + count)],
    }


@pytest.fixture(scope="module", params=["files", "rows"])
def options(request):
    return FILES if request.param == "files" else ROWS


@pytest.fixture(scope="module")
def days(options, tmp_path_factory):
    """The input and the output after two days, and the input of the third day."""
    folder = tmp_path_factory.mktemp("days")
    source = folder / "in"
    write(source / "a.parquet", rows(first=0, count=300))
    write(source / "b.parquet", rows(first=1000, count=90))
    assert run(source, folder / "out", options).wait().result["error"] == ""
    write(source / "c.parquet", rows(first=2000, count=300))
    assert run(source, folder / "out", options).wait().result["error"] == ""
    write(source / "a.parquet", rows(first=5, count=300))  # rows were deleted and added
    write(source / "d.parquet", rows(first=3000, count=150, word="new"))
    (source / "b.parquet").unlink()
    return folder


def run(source, output, options):
    return Child(translate_slowly, str(source), str(output), tuple(options.items()))


@pytest.fixture(scope="module")
def fresh(days, options):
    """The output of a first run on the input of the third day."""
    output = days / "fresh"
    assert run(days / "in", output, options).wait().result["error"] == ""
    return output


@pytest.fixture(scope="module")
def seconds(days, options, fresh):
    """The duration of the third day without kills."""
    output = days / "undisturbed"
    shutil.copytree(days / "out", output)
    began = time.monotonic()
    assert run(days / "in", output, options).wait().result["error"] == ""
    assert equal(output, fresh, options)
    return time.monotonic() - began


def equal(output, fresh, options):
    if options == FILES:
        return output_bytes(output) == output_bytes(fresh)
    return read_all(output) == read_all(fresh)


def test_a_third_day_that_is_killed_repeatedly_equals_a_fresh_run(
    days, options, fresh, seconds, tmp_path
):
    chooser = random.Random(11)
    kills = attempts = 0
    while kills < KILLS:
        output = tmp_path / f"out{attempts}"
        attempts += 1
        shutil.copytree(days / "out", output)
        while True:
            child = run(days / "in", output, options)
            if kills < KILLS:
                time.sleep(chooser.uniform(0, seconds))
                child.kill_group()
            ended = child.wait()
            if ended.code != -signal.SIGKILL:
                break
            kills += 1
            if (output / "_tt/manifest.json").exists():  # not started yet, or finished already
                assert equal(output, fresh, options) or equal(output, days / "out", options)
        assert ended.result["error"] == ""
        assert equal(output, fresh, options)
        assert not list(output.rglob("*.tmp"))
        known = {"unit_rows": 30, "text_columns": ("text",), **options}
        assert translate(days / "in", output, **known).already_finished
    assert kills == KILLS
