"""The comparison of `make compare` finds each kind of difference, and accepts only listed ones."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare.datasets import use_pairs
from compare.differences import Difference, as_toml, compare_results, explain
from compare.options import COMMANDS, long_options, unused_options
from compare.reading import read_results, without_variables
from sentencepiece import SentencePieceProcessor
from shards import write_shards
from vocabularies import TEXTS, make_vocabulary

CASES = tomllib.loads((Path(__file__).parent / "compare/cases.toml").read_text("utf-8"))["cases"]
TABLE = pa.table({"id": [1, 2], "translation": ["uno", None]})
MANIFEST = {"rows": {"ok": 1, "null": 1}, "seconds": 3.25, "rejected": {"header": 1}}


def write_results(root, *, table=TABLE, manifest=MANIFEST, said="2 rows in 3 s\n", code=0):
    """Write the files of a case, and return the folder."""
    folder = root / "case"
    (folder / "out/_tt").mkdir(parents=True)
    pq.write_table(table, folder / "out/a.parquet")
    (folder / "out/_tt/manifest.json").write_text(json.dumps(manifest))
    (folder / "1.err").write_text(f"{said}Translated: {folder}/out\n")
    (folder / "1.code").write_text(f"{code}\n")
    return root


@pytest.fixture
def compare(tmp_path):
    """Return a function that compares the files of a case with changed ones."""

    def compare_with(**changes):
        before = read_results(write_results(tmp_path / "before"))
        after = read_results(write_results(tmp_path / "a-longer-path", **changes))
        return [
            (each.file, each.place, each.before, each.after)
            for each in compare_results("name", before, after)
        ]

    return compare_with


def test_equal_results_with_other_times_and_paths_have_no_difference(compare):
    manifest = MANIFEST | {"seconds": 11.0}
    assert compare(manifest=manifest, said="2 rows in 1 min 2 s\n") == []


def test_changed_cell_is_a_difference(compare):
    table = pa.table({"id": [1, 2], "translation": ["uno", "dos"]})
    assert compare(table=table) == [("out/a.parquet", "row 2, translation", "None", "'dos'")]


def test_changed_type_is_a_difference(compare):
    table = TABLE.cast(pa.schema({"id": pa.int32(), "translation": pa.string()}))
    assert compare(table=table) == [("out/a.parquet", "type of id", "int64", "int32")]


def test_changed_metadata_is_a_difference(compare):
    table = TABLE.replace_schema_metadata({"pandas": "{}"})
    assert compare(table=table) == [("out/a.parquet", "metadata pandas", None, "{}")]


def test_changed_order_of_columns_is_a_difference(compare):
    table = TABLE.select(["translation", "id"])
    assert compare(table=table) == [
        ("out/a.parquet", "columns", "id, translation", "translation, id")
    ]


def test_changed_order_of_rows_is_a_difference(compare):
    places = [place for _, place, _, _ in compare(table=TABLE.take([1, 0]))]
    assert places == ["row 1, id", "row 2, id", "row 1, translation", "row 2, translation"]


def test_missing_row_is_a_difference(compare):
    found = compare(table=TABLE.slice(0, 1))
    assert ("out/a.parquet", "rows", "2", "1") in found
    assert ("out/a.parquet", "row 2, id", "2", None) in found


def test_changed_count_is_a_difference(compare):
    manifest = MANIFEST | {"rows": {"ok": 2, "null": 1}}
    assert compare(manifest=manifest) == [("out/_tt/manifest.json", "rows.ok", "1", "2")]


def test_changed_exit_code_is_a_difference(compare):
    assert compare(code=2) == [("1.code", "line 1", "0", "2")]


def test_added_line_is_a_single_difference(compare):
    assert compare(said="tt: warning: b\n2 rows in 3 s\n") == [
        ("1.err", "after line 0, 1", None, "tt: warning: b")
    ]


def test_progress_of_a_slow_run_is_no_difference(compare):
    said = "2 rows in 3 s\nreading: 300 of 500 pairs, 150 pairs/s, 0:01 left\ntraining: 1:03\n"
    assert compare(said=said) == []


def test_missing_file_is_a_difference(tmp_path):
    before, after = (read_results(write_results(tmp_path / name)) for name in "ba")
    del after["1.err"]
    assert compare_results("name", before, after) == [
        Difference("name", "1.err", "file", "exists", None)
    ]


def test_other_bytes_are_a_difference(tmp_path):
    roots = [write_results(tmp_path / name) for name in "ba"]
    for root, content in zip(roots, (b"one", b"two"), strict=True):
        (root / "case/out/train-00000-of-00001.tfrecord").write_bytes(content)
    (found,) = compare_results("name", *map(read_results, roots))
    assert (found.file, found.place) == ("out/train-00000-of-00001.tfrecord", "bytes")


def write_dataset(root, texts, *, shards, reason="too_long"):
    """Write a dataset with texts as both sides of its pairs, and with a rejected pair."""
    folder = root / "case/out"
    folder.mkdir(parents=True)
    make_vocabulary(folder)
    vocabulary = SentencePieceProcessor(model_file=str(folder / "vocabulary.spm"))
    ids = [[vocabulary.bos_id(), *vocabulary.encode(text), vocabulary.eos_id()] for text in texts]
    write_shards(folder, list(zip(ids, ids, strict=True)), shards)
    rejected = pa.table({"reason": [reason], "source": ["a"], "target": ["b"]})
    pq.write_table(rejected, folder / "rejected-0.parquet")
    (folder / "dataset.json").write_text(json.dumps({"fingerprint": str(texts), "read": 5}))
    return root


@pytest.fixture
def compare_pairs(tmp_path):
    """Return a function that compares a dataset of `TEXTS` with another dataset."""

    def compare_with(texts, **changes):
        roots = [
            write_dataset(tmp_path / "before", TEXTS, shards=1),
            write_dataset(tmp_path / "after", texts, shards=2, **changes),
        ]
        results = [read_results(root) for root in roots]
        assert compare_results("name", *results)  # The bytes differ.
        for root, result in zip(roots, results, strict=True):
            use_pairs(result, root, "out")
        return compare_results("name", *results)

    return compare_with


def test_datasets_with_equal_pairs_in_another_order_have_no_difference(compare_pairs):
    assert compare_pairs(TEXTS[::-1]) == []


def test_other_pair_of_a_dataset_is_a_difference(compare_pairs):
    kept, gone = TEXTS[:3], TEXTS[3]
    places = {(each.place, each.before, each.after) for each in compare_pairs([*kept, kept[0]])}
    assert places == {
        (f"train: {[gone, gone]}", "1", None),
        (f"train: {[kept[0], kept[0]]}", "1", "2"),
    }


def test_other_reason_of_a_rejected_pair_is_a_difference(compare_pairs):
    places = [each.place for each in compare_pairs(TEXTS[::-1], reason="too_short")]
    assert places == ["too_long: ['a', 'b']", "too_short: ['a', 'b']"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12 rows, 3 copied, 5 sentences", "12 rows, 3 copied, 5 sentences"),
        ("took 1 h 2 min, 80.5 rows/s", "took DURATION, SPEED"),
    ],
)
def test_only_durations_and_speeds_are_replaced(text, expected):
    assert without_variables(text, Path("/nowhere")) == expected


FOUND = [
    Difference("a", "out/x.parquet", "row 1, text", "'one'", "'two'"),
    Difference("b", "out/x.parquet", "row 1, text", "'one'", "'two'"),
    Difference("b", "1.err", "after line 2, 1", None, 'a "new" line\\'),
]


def entries(text=None):
    """Return the entries that explain `FOUND`."""
    text = as_toml(FOUND) if text is None else text
    return tomllib.loads(text.replace('reason = ""', 'reason = "Meant."'))["difference"]


def test_printed_differences_are_entries_that_explain_them():
    assert len(entries()) == 2
    assert explain(FOUND, entries(), cases="ab") == ([], [])


def test_difference_without_an_entry_stays():
    assert explain(FOUND, entries()[:1], cases="ab") == ([FOUND[2]], [])


@pytest.mark.parametrize("field", ["file", "place", "before", "after"])
def test_entry_must_match_each_field(field):
    wrong = dataclasses.replace(FOUND[1], **{field: "other"})
    left, problems = explain([FOUND[1]], entries(as_toml([wrong])), cases="b")
    assert left == [FOUND[1]]
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("entry", "is_right"),
    [
        ({"file": "*", "place": "*", "count": 2}, True),
        ({"file": "out/*", "place": "*", "count": 2}, False),
        ({"file": "*", "place": "line [12]", "count": 2}, False),
        ({"file": "*", "place": "*", "count": 3}, False),
    ],
)
def test_entry_with_patterns_explains_the_given_number_of_differences(entry, is_right):
    places = [Difference("a", "1.err", f"line {line}", None, "x") for line in (1, 2)]
    left, problems = explain(places, [{"cases": ["a"], "reason": "new", **entry}], cases="a")
    assert (not left and not problems) is is_right


def test_entry_that_does_not_occur_is_a_problem():
    left, problems = explain(FOUND[:1], entries(), cases="ab")
    assert left == []
    assert len(problems) == 2  # both differences of case b


def test_entry_of_a_case_that_was_not_run_is_no_problem():
    assert explain(FOUND[:1], entries(), cases="a") == ([], [])


def test_entry_without_a_reason_is_a_problem():
    unexplained = tomllib.loads(as_toml(FOUND[:1]))["difference"]
    assert len(explain(FOUND[:1], unexplained, cases="a")[1]) == 1


def test_cases_use_every_option():
    assert unused_options(CASES.values(), {name: long_options(name) for name in COMMANDS}) == []


def test_unused_option_is_found():
    options = {"train": ["--steps", "--run"], "show": ["--all"]}
    scripts = ["tt train --run show # --steps\ntt show x", "until a tt translate --all"]
    assert unused_options(scripts, options) == ["tt train --steps", "tt show --all"]
