"""The test split is disjoint from training and validation, and its texts can be translated."""

import pyarrow.parquet as pq
import pytest
from block_reading import table_of
from corpora import (
    ONE_THREAD,
    PAIRS,
    TWO_THREADS,
    digest,
    examples,
    options,
    preprocess,
    records,
    rejected,
    texts,
    write_pairs,
)
from toy import texts_of_record

from tt.model.dataset.manifest import DatasetManifest
from tt.model.dataset.tfrecords import texts_of
from tt.model.errors import UserError
from tt.model.text.vocabulary import load_vocabularies
from tt.pipelines.preprocess.description import dataset_blocks
from tt.pipelines.preprocess.held_out import hash_each
from tt.pipelines.preprocess.request import PreprocessRequest

TABLE = "test-00000-of-00001.parquet"


def make(folder, pairs=PAIRS, *, source=None, beam_arguments=ONE_THREAD, validation=(), **changes):
    folder.mkdir(exist_ok=True)
    held_out = [write_pairs(folder, validation, name="val")] if validation else []
    values = {"test_fraction": 0.1, "validation_fraction": 0.05, "vocabulary_type": "char"}
    return preprocess(
        sources=[source or write_pairs(folder, pairs)],
        validation_sources=held_out,
        options=options(folder / "out", **(values | changes)),
        beam_arguments=beam_arguments,
    )


def table(folder):
    return pq.read_table(folder / "out" / TABLE).to_pylist()


def pairs_of(folder, split):
    return set(texts(folder / "out", split))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("test_split")
    make(folder, held_out_by="pair")
    return folder


def test_hashes_of_the_sources_decide_the_split(folder):
    hashes = dict(zip(PAIRS, hash_each([source for source, _ in PAIRS]).tolist(), strict=True))
    validation = {pair for pair in PAIRS if hashes[pair] < int(0.05 * 2**64)}
    test = {pair for pair in PAIRS if hashes[pair] < int(0.15 * 2**64)} - validation
    assert 20 < len(test) < 60
    assert pairs_of(folder, "validation") == validation
    assert pairs_of(folder, "test") == test
    assert pairs_of(folder, "train") == {*PAIRS} - validation - test


def test_manifest_and_summary_show_the_split(folder):
    manifest = DatasetManifest.load(folder / "out")
    split = manifest.splits["test"]
    assert (split.shards, split.tables) == (["test-00000-of-00001.tfrecord"], [TABLE])
    assert split.records == len(table(folder))
    assert manifest.options["test_fraction"] == 0.1
    assert sum(split.records for split in manifest.splits.values()) == manifest.pairs_kept
    rows = {row[0]: row for row in table_of(dataset_blocks(manifest), "split")}
    assert rows["test"][1:3] == [1, split.records]


def test_table_has_the_texts_and_places_of_the_records(folder):
    found = table(folder)
    assert [(row["source"], row["target"]) for row in found] == texts(folder / "out", "test")
    lines = (folder / "corpus.en").read_text().splitlines()
    for row in found:
        assert (row["corpus"], row["file"]) == (
            f"{folder}/corpus.en + {folder}/corpus.de", f"{folder}/corpus.en",
        )  # fmt: skip
        assert lines[row["line"] - 1] == row["source"]
    for record in examples(folder / "out", "test"):
        assert texts_of(record) == texts_of_record(record)


LONG = "one two three four five six"


def hash_below(fraction, *, start=0.0):
    """Return a source whose hash is in a part of the range."""
    for i in range(10_000):
        text = f"source number {i} has many words"
        [found] = hash_each([text]).tolist()
        if start * 2**64 <= found < fraction * 2**64:
            return text
    raise AssertionError(fraction)


def test_texts_of_the_test_split_are_kept_out_of_training(tmp_path):
    validation, test = hash_below(0.05), hash_below(0.15, start=0.05)
    train = [hash_below(0.5, start=0.4), hash_below(0.8, start=0.7), hash_below(0.95, start=0.9)]
    pairs = [
        (validation, "a b c d e f validation"),
        (test, LONG),
        (test, "another translation of the same text"),
        (train[0], LONG),  # the target of a test pair
        (train[1], test),  # the source of a test pair
        (train[2], "this pair is for training"),
        (hash_below(0.15, start=0.1), "a b c d e f validation"),  # the target of a validation pair
    ]  # fmt: skip
    make(tmp_path, pairs, vocabulary_size=None, byte_fallback=True)
    assert pairs_of(tmp_path, "validation") == {pairs[0]}
    assert pairs_of(tmp_path, "test") == {*pairs[1:3]}
    assert pairs_of(tmp_path, "train") == {pairs[5]}
    found = {(row["source"], row["target"]): row["reason"] for row in rejected(tmp_path / "out")}
    assert found == dict.fromkeys((pairs[3], pairs[4], pairs[6]), "held_out_target")


def test_vocabulary_does_not_see_the_test_split(tmp_path):
    test = hash_below(0.15, start=0.05)
    make(tmp_path, [*PAIRS, (test, "Ω " * 9)])
    vocabulary = load_vocabularies(tmp_path / "out").source
    assert ("Ω " * 9).strip() in {row["target"] for row in table(tmp_path)}
    assert vocabulary.find_unknown("Ω")


def test_validation_corpus_and_test_fraction_together(tmp_path):
    validation = [(f"held {source}", f"out {target}") for source, target in PAIRS[:9]]
    test = hash_below(0.1)
    shared = (test, validation[0][1] + " long enough for the rule")
    validation.append(("some source that is in no other pair", shared[1]))
    manifest = make(tmp_path, [*PAIRS, shared], validation=validation)
    assert manifest.splits["validation"].records == len(validation)
    below = [pair for pair in PAIRS if hash_each([pair[0]])[0] < int(0.1 * 2**64)]
    assert pairs_of(tmp_path, "test") == {*below}
    assert "held_out_target" in {row["reason"] for row in rejected(tmp_path / "out")}


def test_texts_of_the_test_split_have_no_placeholders(tmp_path):
    names = [source.partition(" ")[0] for source, _ in PAIRS[:200]]
    pairs = [(f"see {a} at www.{a}.org now", f"siehe {a} unter www.{a}.org jetzt") for a in names]
    make(tmp_path, pairs, placeholder_share=0.5, held_out_by="pair")
    found = table(tmp_path)
    assert len(found) >= 5
    assert all((row["source"], row["target"]) in pairs for row in found)
    ids = load_vocabularies(tmp_path / "out").source.encode([row["source"] for row in found])
    assert [source for source, _ in records(tmp_path / "out", "test")] == ids
    assert any("⟦1⟧" in source for source, _ in pairs_of(tmp_path, "train"))


def test_workers_do_not_change_the_split(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", beam_arguments=TWO_THREADS)
    one, two = digest(tmp_path / "a/out"), digest(tmp_path / "b/out")
    assert one["test-00000-of-00001.tfrecord"] == two["test-00000-of-00001.tfrecord"]
    tables = [table(tmp_path / name) for name in "ab"]
    assert [row["source"] for row in tables[0]] == [row["source"] for row in tables[1]]


def test_damaged_table_is_made_again(tmp_path):
    source = write_pairs(tmp_path, PAIRS)
    make(tmp_path, source=source)
    before = table(tmp_path)
    path = tmp_path / "out" / TABLE
    path.write_bytes(path.read_bytes()[:-2])
    make(tmp_path, source=source)
    assert table(tmp_path) == before


def test_empty_test_split_is_an_error_with_its_fix(tmp_path):
    with pytest.raises(
        UserError, match=r"no pairs for test: .* Raise `test_fraction`, or remove it"
    ):
        make(tmp_path, test_fraction=1e-12)
    assert not (tmp_path / "out").exists()


def test_fractions_are_at_most_a_half_together(tmp_path):
    files = write_pairs(tmp_path, PAIRS).paths()
    chosen = options("out", validation_fraction=0.3, test_fraction=0.3)
    request = PreprocessRequest(source=files[:1], target=files[1:], options=chosen)
    with pytest.raises(UserError, match=r"must be at most 0.5. Received: 0.3 \+ 0.3"):
        request.plan()
    chosen = options("out", validation_fraction=0.3, test_fraction=0.5)
    held_out = "+".join(files)
    request = PreprocessRequest(
        source=files[:1], target=files[1:], validation=(held_out,), options=chosen
    )
    assert request.plan()
