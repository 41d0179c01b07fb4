"""Corpora whose texts are in other languages than the given ones."""

import dataclasses
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from block_reading import facts_of
from command_line import run
from corpora import ENGLISH, GERMAN, open_named, options, preprocess, write_tsv

from tt.pipelines.preprocess.description import (
    dataset_blocks,
    describe_doubts,
    describe_first_pairs,
)
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import Tsv


def first_file(folder, *, name):
    """Return a first file for a corpus whose second file has swapped sides.

    The texts of this file are too short for detection. Without the file, a run would refuse the
    corpus.
    """
    source = write_tsv(folder / "short.tsv", ["one", "two"], ["eins", "zwei"])
    return dataclasses.replace(source, given_name=name)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """The manifest of a dataset of a good corpus and a corpus with swapped sides."""
    folder = tmp_path_factory.mktemp("languages")
    swapped = write_tsv(folder / "swapped.tsv", GERMAN, ENGLISH)
    return preprocess(
        sources=[
            write_tsv(folder / "good.tsv", ENGLISH, GERMAN),
            first_file(folder, name="swapped.tsv"),
            dataclasses.replace(swapped, given_name="swapped.tsv"),
        ],
        options=options(
            folder / "out", vocabulary_type="char", source_language="en", target_language="de"
        ),
    )


def test_manifest_counts_the_detected_languages_of_each_source(manifest):
    # The sample has the first 128 of the 343 rows, and a single later row.
    assert [source["languages"] for source in manifest.sources] == [
        {"source": {"en": 129}, "target": {"de": 129}},
        {"source": {"": 2}, "target": {"": 2}},
        {"source": {"de": 129}, "target": {"en": 129}},
    ]


def test_warning_names_only_the_corpus_with_swapped_sides(manifest):
    [line] = describe_doubts(manifest)
    assert "swapped.tsv seems to have source and target swapped: 129 of 129 source" in line
    assert line.endswith("or swap the languages, and make the dataset again")


def test_command_prints_the_warning(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    first_file(tmp_path / "a", name="")
    write_tsv(tmp_path / "a/swapped.tsv", GERMAN, ENGLISH)
    corpus = f"swapped={tmp_path}/a/*.tsv"
    languages = ("--source-language", "en", "--target-language", "de", "--vocabulary-type", "char")
    assert run("preprocess", corpus, *languages, "--output", tmp_path / "out") == 0
    said = capsys.readouterr().err.splitlines()
    [line] = [each for each in said if "source and target swapped" in each]
    assert line.startswith("tt: warning: swapped seems")


def test_missing_language_is_detected(manifest):
    german = manifest.sources[0]
    made = dataclasses.replace(manifest, sources=[german], source_language="")
    assert facts_of(dataset_blocks(made))["languages"] == "en (detected) to de"
    unknown = dataclasses.replace(made, sources=[german | {"languages": {}}])
    assert facts_of(dataset_blocks(unknown))["languages"] == "? to de"


def test_first_pair_of_each_corpus_is_shown_with_its_languages(tmp_path):
    # The first two lines are not pairs.
    lines = ["\ttwo", "one", "The  old\tDas alte", "The new\tDas neue"]
    (tmp_path / "a.tsv").write_text("".join(f"{line}\n" for line in lines))
    table = pa.table({"en": [None, "A" + " long" * 20], "de": ["x", "Ein Satz"]})
    pq.write_table(table, tmp_path / "b.parquet")
    (tmp_path / "empty.tsv").write_text("")
    names = [f"a={tmp_path}/a.tsv", f"b={tmp_path}/b.parquet:en:de", f"c={tmp_path}/empty.tsv"]
    plan = plan_preprocess(
        sources=open_named(corpora=names),
        options=options(tmp_path / "out", source_language="en-GB"),
    )
    assert list(describe_first_pairs(plan)) == [
        'first pair of a: en-GB "The old", target "Das alte"',
        f'first pair of b: en-GB "{("A" + " long" * 20)[:61]}...", target "Ein Satz"',
    ]


def test_first_pair_of_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "a.tsv")
    plan = plan_preprocess(
        sources=[Tsv(str(tmp_path / "a.tsv"))], options=options(tmp_path / "out")
    )
    assert list(describe_first_pairs(plan)) == []
