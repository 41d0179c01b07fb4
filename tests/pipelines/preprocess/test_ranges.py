"""Several workers cut a large text file, and the dataset is the same as by one worker."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from corpora import ENGLISH, GERMAN

from tt.model.errors import UserError
from tt.pipelines.preprocess import units
from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest
from tt.pipelines.preprocess.sources import TableColumns, TextPair, Tsv

PAIRS = [(f"{a} {i}", f"{b} {i}") for i in range(40) for a, b in zip(ENGLISH, GERMAN, strict=True)]


def write(folder, kind, *, encoding="utf-8", end="\n"):
    """Write a corpus with a header, a bad line and no line end at its end; return its name."""
    if kind in ("csv", "jsonl"):
        quotes = [f'"{a}","{b}{end}x"' for a, b in PAIRS]
        lines = ["en,de", *quotes[:7], "no comma", "", *quotes[7:]]
        if kind == "jsonl":
            objects = [json.dumps({"en": a, "de": b}, ensure_ascii=False) for a, b in PAIRS]
            lines = [*objects[:7], "no JSON", "", *objects[7:]]
        (folder / f"a.{kind}").write_text(end.join(lines), encoding=encoding, newline="")
        return f"{folder}/a.{kind}:en:de"
    lines = [f"{a}\t{b}" for a, b in PAIRS]
    lines[:0], lines[7:7] = ["en\tde"], ["no tab" if kind == "tsv" else "no tab\t"]
    if kind == "tsv":
        (folder / "a.tsv").write_text(end.join(lines), encoding=encoding, newline="")
        return f"{folder}/a.tsv"
    for name, side in (("a.en", 0), ("a.de", 1)):
        texts = [line.split("\t")[side] for line in lines]
        (folder / name).write_text(end.join(texts), encoding=encoding, newline="")
    return f"{folder}/a.en+{folder}/a.de"


def make(corpus, output, **options):
    chosen = {"vocabulary_size": 50, "filters": Filters(min_letters=0), **options}
    request = PreprocessRequest(
        corpora=(corpus,), options=PreprocessOptions(output=str(output), **chosen)
    )
    request.plan().run()
    return output


def content(folder):
    """Return the shards and the sorted rejected pairs."""
    shards = {path.name: path.read_bytes() for path in folder.glob("*.tfrecord")}
    rejected = [
        row for path in folder.glob("rejected-*") for row in pq.read_table(path).to_pylist()
    ]
    assert shards
    return shards, sorted(map(str, rejected))


@pytest.mark.parametrize("kind", ["tsv", "pair", "csv", "jsonl"])
@pytest.mark.parametrize(("encoding", "end"), [("utf-8-sig", "\r\n"), ("latin-1", "\n")])
def test_a_file_cut_by_many_workers_gives_the_same_dataset(
    kind, encoding, end, tmp_path, monkeypatch
):
    corpus = write(tmp_path, kind, encoding=encoding, end=end)
    options = {"encoding": encoding}
    expected = content(make(corpus, tmp_path / "one", **options))
    monkeypatch.setattr(units, "_RANGE_BYTES", 2000)
    opened = []
    for source in (Tsv, TextPair, TableColumns):
        read = source.read_ranges
        monkeypatch.setattr(
            source,
            "read_ranges",
            lambda self, ranges, r=read: opened.append(ranges) or r(self, ranges),
        )
    assert content(make(corpus, tmp_path / "many", **options)) == expected
    assert len(opened) > 5
    manifests = [json.loads((tmp_path / n / "dataset.json").read_text()) for n in ("one", "many")]
    assert manifests[0]["rejected"] == manifests[1]["rejected"]


def test_a_killed_job_cuts_only_the_missing_units_and_counts_no_lines(tmp_path, monkeypatch):
    corpus = write(tmp_path, "tsv")
    expected = content(make(corpus, tmp_path / "one"))
    monkeypatch.setattr(units, "_RANGE_BYTES", 2000)
    cut = []
    write_chunk = units._write_chunk

    def die_at_the_fourth(path, *args, **kwargs):
        cut.append(Path(path).name)
        if len(cut) == 4:
            raise RuntimeError("killed")
        return write_chunk(path, *args, **kwargs)

    monkeypatch.setattr(units, "_write_chunk", die_at_the_fourth)
    with pytest.raises(RuntimeError, match="killed"):
        make(corpus, tmp_path / "many")
    [index] = (tmp_path / "many").glob("_work/*/units-000.json")
    count = len(json.loads(index.read_text()))
    monkeypatch.setattr(Tsv, "find_ranges", None)
    assert content(make(corpus, tmp_path / "many")) == expected
    finished = cut[:3]
    assert len(cut) == len(finished) + 1 + count - len(finished)
    assert not set(finished) & set(cut[4:])


def test_files_with_different_numbers_of_lines_are_refused_before_they_are_cut(
    tmp_path, monkeypatch
):
    corpus = write(tmp_path, "pair")
    monkeypatch.setattr(units, "_RANGE_BYTES", 2000)
    with (tmp_path / "a.de").open("a") as file:
        file.write("\nmore")
    count = len(PAIRS) + 2
    counts = rf"a\.en has {count:,} lines, but .*a\.de has {count + 1:,}\."
    with pytest.raises(UserError, match=counts):
        make(corpus, tmp_path / "out")
    assert not list((tmp_path / "out").glob("_work/*/chunk-*"))


def test_a_file_can_be_both_sides_of_a_pair(tmp_path):
    path = tmp_path / "a.en"
    path.write_text("".join(f"line {number}\n" for number in range(50)))
    source = TextPair(str(path), str(path))
    found = source.find_ranges(max_pairs=10, max_bytes=100)
    tables = (table for each in found for table in source.read_ranges(each))
    rows = [row for table in tables for row in table.to_pylist()]
    assert len(found) == 5
    assert rows == [row for table in source.read_all() for row in table.to_pylist()]
