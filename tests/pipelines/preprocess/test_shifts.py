"""The correlation of lengths finds shifted sides, and never refuses aligned sides."""

import gzip
import random

import numpy as np
import pyarrow as pa
import pytest
from corpora import ONE_THREAD, options, preprocess

from tt.model.errors import UserError
from tt.pipelines.preprocess.description import describe_doubts
from tt.pipelines.preprocess.job import PreprocessJob
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.shifts import find_shift, find_windows
from tt.pipelines.preprocess.sources import TextPair

CORPORA = [
    ("multi30k/train", "en", "fr"), ("tatoeba_zh_en/dev", "zh", "en"),
    ("ted_ru_en/test", "ru", "en"), ("news_zh_en/train", "zh", "en"),
]  # fmt: skip
ROWS = 4096  # rows per table, as in a run


def table(sources, targets):
    return pa.table(
        {
            "source": pa.array(sources, pa.large_string()),
            "target": pa.array(targets, pa.large_string()),
        }
    )


def offsets(sources, targets, *, rows=ROWS):
    """Return the offsets of all windows, over tables of some rows."""
    found = []
    for begin in range(0, len(sources), rows):
        end = begin + rows
        found += find_windows(table(sources[begin:end], targets[begin:end]))
    return [window.offset for window in found]


def read_lines(path):
    return gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]


@pytest.mark.parametrize(("name", "source", "target"), CORPORA)
def test_windows_of_real_corpora(shared_data, name, source, target):
    sources, targets = (read_lines(shared_data / f"{name}.{code}.gz") for code in (source, target))
    assert set(offsets(sources, targets)) == {0}
    assert set(offsets(sources, targets, rows=64)) == {0}
    assert set(offsets(sources[1:], targets[:-1])) == {1}
    assert set(offsets(sources[:-1], targets[1:])) == {-1}
    assert set(offsets(sources[2:], targets[:-2])) == {2}
    assert find_shift(table(sources[:16_384], targets[:16_384])) is None


def test_sides_without_correlation_are_not_shifted(shared_data):
    """The lengths of single words do not correlate, and neither do random pairs."""
    rows = [line.split("\t") for line in read_lines(shared_data / "messy/crowd_dict_ur_en.tsv.gz")]
    sources, targets = zip(*(row[:2] for row in rows if len(row) > 1), strict=True)
    assert set(offsets(sources, targets)) == {0}
    sources = read_lines(shared_data / "tatoeba_de_en/train.de.gz")
    random.Random(1).shuffle(sources)
    targets = read_lines(shared_data / "tatoeba_de_en/train.en.gz")
    assert set(offsets(sources, targets)) == {0}


def texts_of(lengths):
    return ["x" * length for length in lengths]


LENGTHS = np.random.default_rng(1).integers(5, 200, 2000).tolist()


def test_equal_constant_short_and_null_texts_are_not_shifted():
    for sources, targets in (
        (LENGTHS, LENGTHS), ([5] * 500, LENGTHS[:500]), ([5] * 500, [5] * 500),
        (LENGTHS[1:64], LENGTHS[:63]), ([], []), (sorted(LENGTHS)[1:], sorted(LENGTHS)[:-1]),
    ):  # fmt: skip
        assert set(offsets(texts_of(sources), texts_of(targets))) <= {0}
    assert offsets([None] * 500, texts_of(LENGTHS[:500])) == [0]


def test_few_shifted_rows_among_many_are_no_shift_of_the_file():
    targets = LENGTHS * 4
    targets[2049:2305] = targets[2048:2304]  # a line is twice here, and another one is missing
    found = [*find_windows(table(texts_of(LENGTHS * 4), texts_of(targets)))]
    assert sum(window.offset != 0 for window in found) == 1
    assert find_shift(table(texts_of(LENGTHS * 4), texts_of(targets))) is None


SOURCES = [f"{'word ' * (length // 5)}{i}" for i, length in enumerate(LENGTHS * 10)]
TARGETS = [f"{'wort ' * (length // 6)}{i}" for i, length in enumerate(LENGTHS * 10)]


def corpus(folder, sources, targets):
    paths = [folder / "a.en", folder / "a.de"]
    for path, side in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(f"{text}\n" for text in side))
    return TextPair(*map(str, paths))


def plan_of(folder, source):
    chosen = options(folder / "out", vocabulary_type="char", shards=1)
    return plan_preprocess(sources=[source], options=chosen)


def test_shifted_first_rows_are_refused_before_the_run(tmp_path):
    source = corpus(tmp_path, SOURCES[:3000], [*TARGETS[:600], "extra", *TARGETS[600:2999]])
    job = PreprocessJob(plan=plan_of(tmp_path, source))
    for act in (job.run, job.describe):
        with pytest.raises(UserError) as error:
            act()
        assert str(error.value) == (
            f"the sides of {tmp_path}/a.en + {tmp_path}/a.de are shifted against each other: from "
            "about line 545 on, line N of the sources fits line N+1 of the targets, as their "
            "lengths show. In the 272 lines before or after it, find the line that only one side "
            "has, and remove it"
        )
    assert not (tmp_path / "out").exists()


def test_later_shift_is_a_warning_with_its_place(tmp_path):
    first = 18_000  # beyond the first rows
    source = corpus(tmp_path, SOURCES, [*TARGETS[:first], *TARGETS[first + 1 :], "the last one"])
    manifest = preprocess(
        sources=[source],
        options=options(tmp_path / "out", vocabulary_type="char", shards=1),
        beam_arguments=ONE_THREAD,
    )
    [found] = [each["shifted"] for each in manifest.sources]
    assert first - 256 <= found["first_line"] <= first + 257
    assert found["pairs_by_offset"].keys() == {"-1"}
    assert 1400 <= found["pairs_by_offset"]["-1"] <= 2000 + 256
    [line] = describe_doubts(manifest)
    assert "pairs of ..." in line
    assert "line N of the sources fits line N-1 of the targets" in line
