"""Random histories of an input folder, with runs that are killed: the output equals a fresh run."""

import itertools
import signal

import pyarrow.parquet as pq
import pytest
from commands import Child
from fakes import reverse
from input_histories import (
    GONE,
    LOST,
    OPTIONS,
    SAFE,
    History,
    stem,
    translate_today,
    translate_until,
    write_file,
)
from translation_jobs import manifest, output_bytes, outputs, translate

from tt.pipelines.tables import reading

DAYS = 3
MOST_CHANGES = 60  # of files in the output folder; a run makes 40 to 120
SMALL_HEAD = 24  # bytes, so that most text files are too large to be read before the run
# Whether translations of removed files stay, whether changed files need a second command, and the
# bytes of a file that `tt` reads before the run.
KINDS = list(
    itertools.product(("delete", "keep"), ("refuse", "redo"), (SMALL_HEAD, reading.HEAD_BYTES))
)


def check(output, history):
    """Check that the output has exactly the expected rows, and that the manifest counts them."""
    expected = {stem(name): file.readable for name, file in history.expected.items()}
    found = {}
    for name in outputs(output):
        table = pq.read_table(output / name)
        rows = found.setdefault(name.rpartition("-of-")[0].rpartition("-")[0], [])
        rows += zip(table["text"].to_pylist(), table["translation"].to_pylist(), strict=True)
    assert found == {
        name: [(text, text and reverse(text)) for text in texts]
        for name, texts in expected.items()
        if texts
    }
    counts = manifest(output)
    rows = sum(map(len, expected.values()))
    assert counts["rows_out"] == sum(counts["rows_by_status"]["text"].values()) == rows
    assert counts["rows"] == sum(len(file.texts) for file in history.expected.values())
    skipped = {name for name in history.files if history.is_skipped(name)}
    assert {each["file"] for each in counts["skipped_files"]} == skipped
    lost = {name for name, file in history.expected.items() if file.state == LOST}
    assert {each["file"] for each in counts["skipped_units"]} == lost
    assert counts["output_bytes"] == {
        name: (output / name).stat().st_size for name in outputs(output)
    }


def live(folder, monkeypatch, *, seed):
    """Translate a random history, and check the output each day; finally run the job afresh.

    Only some seeds take the time for the fresh run, which compares the files byte for byte.

    It depends on the moment of a kill which files were translated. So no file is damaged between a
    kill and the next run, and no file disappears then if its translations would be kept.
    """
    removed, changed, head_bytes = KINDS[seed % len(KINDS)]
    monkeypatch.setattr(reading, "HEAD_BYTES", head_bytes)
    keeps, source, output = removed == "keep", folder / "in", folder / "out"
    history = History(source, seed=seed, keeps=keeps, head_bytes=head_bytes)
    chooser = history.chooser
    for day in range(1, DAYS + 1):
        if chooser.random() < 0.4:
            moment = chooser.randint(1, MOST_CHANGES)
            arguments = str(source), str(output), removed, changed, head_bytes, moment
            ended = Child(translate_until, *arguments).wait()
            assert ended.code in (0, -signal.SIGKILL), ended.lines
            for _ in range(chooser.randint(0, 2)):
                history.step(SAFE if keeps else (*SAFE, *GONE))
        translate_today(source, output, removed=removed, changed=changed)
        history.finish()
        check(output, history)
        assert translate(source, output, removed=removed, **OPTIONS).already_finished
        for _ in range(chooser.randint(5, 10) if day < DAYS else 0):
            history.step()
    if seed % 3 == 0:
        for name, file in history.expected.items():
            write_file(folder / "all" / name, file)
        translate(folder / "all", folder / "fresh", **OPTIONS)
        assert output_bytes(output) == output_bytes(folder / "fresh")


@pytest.mark.parametrize("seed", range(8))
def test_a_random_history(seed, tmp_path, monkeypatch):
    live(tmp_path, monkeypatch, seed=seed)


@pytest.mark.parametrize("seed", range(8, 60))
def test_another_random_history(seed, tmp_path, monkeypatch):
    live(tmp_path, monkeypatch, seed=seed)
