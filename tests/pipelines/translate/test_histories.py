"""Random histories of an input folder, with runs that are killed: the output equals a fresh run."""

import signal

import pyarrow.parquet as pq
import pytest
from commands import Child
from fakes import reverse
from input_histories import OPTIONS, History, stem, translate_until
from translation_jobs import manifest, output_bytes, outputs, translate

DAYS = 3
MOST_CHANGES = 60  # of files in the output folder; a run makes 40 to 120


def check(output, *, expected, bad):
    """Check that the output has exactly these rows, and that the manifest counts them.

    Args:
      output: The output folder.
      expected: The texts of each file, by its path without the suffix.
      bad: The damaged files.
    """
    found = {}
    for name in outputs(output):
        table = pq.read_table(output / name)
        rows = found.setdefault(name.rpartition("-of-")[0].rpartition("-")[0], [])
        rows += zip(table["text"].to_pylist(), table["translation"].to_pylist(), strict=True)
    assert found == {
        name: [(text, reverse(text)) for text in texts] for name, texts in expected.items()
    }
    counts = manifest(output)
    rows = {name: len(texts) for name, texts in expected.items()}
    assert {stem(name): file["rows_out"] for name, file in counts["files"].items()} == rows
    assert counts["rows"] == counts["rows_out"] == sum(rows.values())
    assert sum(counts["rows_by_status"]["text"].values()) == sum(rows.values())
    assert {each["file"] for each in counts["skipped_files"]} == bad
    assert counts["output_bytes"] == {
        name: (output / name).stat().st_size for name in outputs(output)
    }


def live(folder, *, seed, removed):
    """Translate a random history, and compare the output with a fresh run.

    If the translations of removed files are kept, the folder stays the same after a kill, because
    it depends on the moment which files were translated.
    """
    history, expected = History(folder / "in", seed=seed), {}
    chooser, output = history.chooser, folder / "out"
    options = {"removed": removed, **OPTIONS}
    for _ in range(DAYS):
        for _ in range(chooser.randint(1, 5)):
            history.step()
        if chooser.random() < 0.5:
            moment = chooser.randint(1, MOST_CHANGES)
            arguments = str(folder / "in"), str(output), removed, moment
            ended = Child(translate_until, *arguments).wait()
            assert ended.code in (0, -signal.SIGKILL), ended.lines
            if removed == "delete" and chooser.random() < 0.5:
                history.step()
        translate(folder / "in", output, **options)
        now = {stem(name): rows["text"] for name, rows in history.tables.items()}
        expected = {**(expected if removed == "keep" else {}), **now}
        check(output, expected=expected, bad=history.bad)
    assert translate(folder / "in", output, **options).already_finished
    translate(folder / "in", folder / "fresh", **options)
    fresh, found = output_bytes(folder / "fresh"), output_bytes(output)
    assert {name: found[name] for name in fresh} == fresh
    assert removed == "keep" or found == fresh


@pytest.mark.parametrize("seed", range(20))
def test_a_random_history(seed, tmp_path):
    live(tmp_path, seed=seed, removed=("delete", "keep")[seed % 2])


@pytest.mark.parametrize("seed", range(20, 220))
def test_another_random_history(seed, tmp_path):
    live(tmp_path, seed=seed, removed=("delete", "keep")[seed % 2])
