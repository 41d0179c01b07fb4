"""The preprocess job as a whole: exact records, accounts, reruns and the errors of users."""

import dataclasses
import gzip
import hashlib
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from model.artifacts import MANIFEST_FILE, DatasetManifest, length_histogram
from model.errors import UserError
from model.vocabulary import TextNormalization, load_vocabularies
from pipelines import merging, transforms
from pipelines import preprocess as job
from pipelines.preprocess import PreprocessOptions, describe_manifest, preprocess
from pipelines.records import parse_record
from pipelines.sources import ParquetColumns, TextPair, Tsv, sources_from_options

ONE_THREAD = ["--direct_num_workers=1"]


def sentence(number):
    """Makes three words of the letters 0 to f."""
    letters = hashlib.md5(str(number).encode()).hexdigest()
    return f"{letters[:4]} {letters[4:7]} {letters[7:12]}"


PAIRS = [(sentence(i), sentence(i)[::-1]) for i in range(400)]


def write_pairs(folder, pairs, *, name="corpus"):
    paths = [folder / f"{name}.en", folder / f"{name}.de"]
    for path, texts in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{text}\n" for text in texts), newline="\n")
    return TextPair(*map(str, paths))


def options(output, **changes):
    values = {"output": str(output), "vocabulary_size": 48, "shards": 3}
    return PreprocessOptions(**(values | changes))


def records(folder, split):
    """Reads the records of a split as plain TensorFlow does."""
    manifest = DatasetManifest.load(folder)
    paths = [str(Path(folder) / name) for name in manifest.splits[split].shards]
    return [parse_record(record.numpy()) for record in tf.data.TFRecordDataset(paths)]


def texts(folder, split):
    """Reads a split back as pairs of texts."""
    vocabularies = load_vocabularies(folder)
    sources, targets = zip(*records(folder, split), strict=True)
    return list(
        zip(
            vocabularies.source.decode(list(sources)),
            vocabularies.target.decode(list(targets)),
            strict=True,
        )
    )


def rejected(folder):
    tables = [pq.read_table(path) for path in sorted(Path(folder).glob("rejected-*.parquet"))]
    return pa.concat_tables(tables).to_pylist() if tables else []


def digest(folder):
    """Hashes all files of a dataset but its manifest, which holds the same in counts."""
    found = sorted(path for path in Path(folder).iterdir() if path.name != MANIFEST_FILE)
    assert found
    return {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in found}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("corpus"), PAIRS)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, corpus):
    """A finished dataset of `corpus`."""
    output = tmp_path_factory.mktemp("dataset") / "data"
    preprocess(sources=[corpus], options=options(output), beam_arguments=ONE_THREAD)
    return output


def test_every_pair_is_in_one_split_once(dataset):
    train, validation = texts(dataset, "train"), texts(dataset, "validation")
    assert sorted(train + validation) == sorted(PAIRS)
    assert 1 <= len(validation) <= 20
    assert train != sorted(train)
    shard_sizes = [
        len(list(tf.data.TFRecordDataset(str(path)))) for path in dataset.glob("train-*")
    ]
    assert len(shard_sizes) == 3
    assert min(shard_sizes) > 80


def test_records_are_the_ids_that_translation_makes(dataset):
    vocabularies = load_vocabularies(dataset)
    train = records(dataset, "train")
    pairs = dict(PAIRS)
    for source_ids, target_ids in train[:50]:
        [source] = vocabularies.source.decode([source_ids])
        assert vocabularies.source.encode([f" {source}\u200b "]) == [source_ids]
        assert vocabularies.target.encode([pairs[source]]) == [target_ids]


def test_manifest(dataset, corpus):
    manifest = DatasetManifest.load(dataset)
    assert manifest.lines_read == manifest.pairs_kept == 400
    assert manifest.rejected == {}
    assert manifest.sources == [
        {"name": corpus.name, "is_held_out": False, "read": 400, "kept": 400, "rejected": {}}
    ]
    assert manifest.shared_vocabulary
    assert manifest.source_vocabulary_size == manifest.target_vocabulary_size == 48
    assert manifest.options["vocabulary_size"] == 48
    assert "output" not in manifest.options
    for name, split in manifest.splits.items():
        found = records(dataset, name)
        lengths = [[len(side) for side in sides] for sides in zip(*found, strict=True)]
        assert split.records == len(found)
        assert [split.source_tokens, split.target_tokens] == [sum(side) for side in lengths]
        assert split.source_lengths == length_histogram(lengths[0])
        assert split.target_lengths == length_histogram(lengths[1])
        assert split.longest == max(map(max, lengths))
    lines = describe_manifest(manifest)
    assert lines[0] == "400 pairs read, 400 kept, 0 rejected"
    assert lines[-1] == "vocabulary: 48 pieces, shared"
    assert sorted(path.name for path in dataset.iterdir()) == [
        "dataset.json",
        "train-00000-of-00003.tfrecord",
        "train-00001-of-00003.tfrecord",
        "train-00002-of-00003.tfrecord",
        "validation-00000-of-00001.tfrecord",
        "vocabulary.json",
        "vocabulary.spm",
    ]


# Every reason.


def test_every_pair_is_kept_or_rejected_with_its_reason_and_place(tmp_path):
    text = write_pairs(
        tmp_path,
        [
            ("good one", "gut eins"),
            ("", "leer"),
            ("empty", "\u200b \u2028"),
            ("good one", "gut eins"),
            ("long " * 60, "lang"),
            ("good  one", "gut\u00a0eins"),  # the same once it is normalised
            *PAIRS[:40],
        ],
    )
    tsv = tmp_path / "more.tsv"
    tsv.write_bytes(b"no tab here\nbad \xff\tx\ngood one\tgut eins\nanother\tein anderer\n")
    manifest = preprocess(
        sources=[text, Tsv(str(tsv))],
        options=options(tmp_path / "out", max_tokens=50, vocabulary_type="char"),
    )
    assert manifest.rejected == {
        "duplicate_pair": 3,
        "empty_source": 1,
        "empty_target": 1,
        "invalid_utf8": 1,
        "malformed": 1,
        "too_long": 1,
    }
    assert (manifest.lines_read, manifest.pairs_kept) == (50, 42)
    assert [(s["read"], s["kept"]) for s in manifest.sources] == [(46, 41), (4, 1)]
    # Whatever has a duplicate, the first stays; whatever is left out is told with its place.
    survivor = (text.name, text.source_path, 1)
    expected = {
        (text.source_path, 2): ("empty_source", "", "leer", None),
        (text.source_path, 3): ("empty_target", "empty", "\u200b \u2028", None),
        (text.source_path, 4): ("duplicate_pair", None, None, survivor),
        (text.source_path, 5): ("too_long", "long " * 60, "lang", None),
        (text.source_path, 6): ("duplicate_pair", None, None, survivor),
        (str(tsv), 1): ("malformed", "no tab here", "", None),
        (str(tsv), 2): ("invalid_utf8", "bad \ufffd", "x", None),
        (str(tsv), 3): ("duplicate_pair", None, None, survivor),
    }
    found = {}
    for row in rejected(tmp_path / "out"):
        kept = (row["survivor_corpus"], row["survivor_file"], row["survivor_line"])
        place = (row["file"], row["line"])
        assert row["corpus"] == (text.name if row["file"] == text.source_path else str(tsv))
        found[place] = (row["reason"], row["source"], row["target"], kept if any(kept) else None)
    assert found == expected
    both = texts(tmp_path / "out", "train") + texts(tmp_path / "out", "validation")
    assert sorted(both) == sorted(
        [("good one", "gut eins"), ("another", "ein anderer"), *PAIRS[:40]]
    )
    assert "8 rejected (3 duplicate_pair, 1 empty_source" in describe_manifest(manifest)[0]


def test_length_limits_count_neither_bos_nor_eos(tmp_path):
    lengths = [1, 2, 3, 4, 5]
    # "aaa" is 4 characters to a char vocabulary: the mark of a space comes first.
    corpus = write_pairs(tmp_path, [("a" * (n - 1) or "a", f"b{'a' * (n - 2)}") for n in lengths])
    manifest = preprocess(
        sources=[corpus],
        options=options(
            tmp_path / "out", vocabulary_type="char", min_tokens=3, max_tokens=4, shards=1
        ),
    )
    assert manifest.rejected == {"too_long": 1, "too_short": 2}
    assert {len(source) for split in manifest.splits for source, _ in
            records(tmp_path / "out", split)} == {5, 6}  # fmt: skip


# Splits.


def test_a_source_stands_in_one_split_only(tmp_path):
    pairs = [(source, f"{target} {i}") for source, target in PAIRS[:100] for i in range(3)]
    corpus = write_pairs(tmp_path, pairs)
    preprocess(sources=[corpus], options=options(tmp_path / "out", validation_fraction=0.2))
    train, validation = texts(tmp_path / "out", "train"), texts(tmp_path / "out", "validation")
    assert not {source for source, _ in train} & {source for source, _ in validation}
    assert sorted(train + validation) == sorted(pairs)
    assert 0.05 < len(validation) / 300 < 0.4


@pytest.mark.parametrize("max_pairs", [2, 1000])
def test_a_tiny_corpus_holds_out_the_source_with_the_least_hash(tmp_path, monkeypatch, max_pairs):
    monkeypatch.setattr(job, "MAX_UNIT_PAIRS", max_pairs)
    pairs = [("a", "x"), ("b", "x"), ("c", "x"), ("b", "y"), ("b", "x"), ("a", "y")]

    def source_hash(pair):
        return int.from_bytes(hashlib.blake2b(pair[0].encode(), digest_size=8).digest(), "little")

    [least] = {pair[0] for pair in pairs if source_hash(pair) == min(map(source_hash, pairs))}
    manifest = preprocess(
        sources=[write_pairs(tmp_path, pairs)],
        options=options(tmp_path / "out", vocabulary_type="char", shards=2, validation_fraction=0),
    )
    train, validation = texts(tmp_path / "out", "train"), texts(tmp_path / "out", "validation")
    assert {source for source, _ in validation} == {least}
    assert sorted(train + validation) == sorted(set(pairs))
    assert manifest.rejected == {"duplicate_pair": 1}


def test_held_out_files_are_the_validation_split(tmp_path):
    corpus = write_pairs(tmp_path, PAIRS)
    held_out = write_pairs(
        tmp_path, [("feed u", "ade"), (PAIRS[7][0], "face"), ("feed u", "ade")], name="held"
    )
    manifest = preprocess(
        sources=[corpus],
        validation_sources=[held_out],
        options=options(tmp_path / "out", vocabulary_type="char"),
    )
    assert {target for _, target in texts(tmp_path / "out", "validation")} == {"ade", "face"}
    assert sorted(texts(tmp_path / "out", "train")) == sorted([*PAIRS[:7], *PAIRS[8:]])
    assert manifest.rejected == {"duplicate_pair": 1, "in_validation": 1}
    assert [s["is_held_out"] for s in manifest.sources] == [False, True]
    [taken] = [row for row in rejected(tmp_path / "out") if row["reason"] == "in_validation"]
    assert (taken["file"], taken["line"]) == (corpus.source_path, 8)
    # The vocabulary is not trained on what is held out: "u" stands nowhere else.
    assert [1 in ids for ids, _ in records(tmp_path / "out", "validation")].count(True) == 1


# The same bytes.


def mixed_sources(folder):
    """Makes three sources of different kinds with duplicates across them."""
    chooser = random.Random(3)
    parts = [chooser.choices(PAIRS, k=150) for _ in range(3)]
    text = write_pairs(folder, parts[0])
    tsv = folder / "b.tsv.gz"
    tsv.write_bytes(gzip.compress("".join(f"{s}\t{t}\n" for s, t in parts[1]).encode()))
    parquet = folder / "c.parquet"
    sources, targets = zip(*parts[2], strict=True)
    pq.write_table(pa.table({"s": sources, "t": targets}), parquet, row_group_size=40)
    return [text, Tsv(str(tsv)), ParquetColumns(str(parquet), "s", "t")], parts


def test_the_result_does_not_depend_on_workers_or_repeated_bundles(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "MAX_UNIT_PAIRS", 20)  # 24 units
    sources, parts = mixed_sources(tmp_path)
    digests, manifests = [], []
    for i, arguments in enumerate(
        [
            ONE_THREAD,
            ["--direct_num_workers=2", "--direct_running_mode=multi_threading"],
            [*ONE_THREAD, "--direct_runner_bundle_repeat=1"],
        ]
    ):
        output = tmp_path / f"out{i}"
        manifests.append(
            preprocess(sources=sources, options=options(output), beam_arguments=arguments)
        )
        digests.append(digest(output))
    assert digests[0] == digests[1] == digests[2]
    assert manifests[0] == manifests[1] == manifests[2]
    both = texts(output, "train") + texts(output, "validation")
    assert sorted(both) == sorted(set(sum(parts, [])))  # noqa: RUF017
    assert manifests[0].lines_read == 450
    assert manifests[0].rejected == {"duplicate_pair": 450 - len(both)}
    # Units may be larger: then the places are the same, and so are the records.
    monkeypatch.setattr(job, "MAX_UNIT_PAIRS", 1000)
    preprocess(sources=sources, options=options(tmp_path / "whole"))
    assert digest(tmp_path / "whole") == digests[0]


def test_the_seed_and_the_number_of_shards_change_only_the_order(tmp_path, corpus, dataset):
    one = options(tmp_path / "one", shards=1)
    preprocess(sources=[corpus], options=one)
    assert records(tmp_path / "one", "train") == records(dataset, "train")
    preprocess(sources=[corpus], options=options(tmp_path / "two", shards=1, seed=2))
    assert records(tmp_path / "two", "train") != records(dataset, "train")
    assert sorted(records(tmp_path / "two", "train")) == sorted(records(dataset, "train"))


def test_many_buckets_give_the_same_shards(tmp_path, monkeypatch, corpus, dataset):
    monkeypatch.setattr(job, "_BUCKET_BYTES", 300)
    preprocess(sources=[corpus], options=options(tmp_path / "out"))
    assert digest(tmp_path / "out") == digest(dataset)


# Runs that are started again.


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("where", ["merge_bucket", "check_splits"])
def test_a_rerun_after_a_crash_reuses_what_is_finished(
    tmp_path, monkeypatch, corpus, dataset, where
):
    def crash(*args, **kwargs):
        raise KilledError

    with monkeypatch.context() as broken:
        broken.setattr(merging, where, crash)
        with pytest.raises(Exception, match="KilledError"):
            preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=ONE_THREAD)
    assert not (tmp_path / MANIFEST_FILE).exists()
    assert list(tmp_path.glob("_work/*/spill-*"))
    with pytest.raises(UserError, match="not a finished dataset folder"):
        DatasetManifest.load(tmp_path)

    for name in ("encode_unit", "train_vocabulary"):
        monkeypatch.setattr(transforms, name, crash)
    monkeypatch.setattr(TextPair, "read_tables", crash)
    preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=ONE_THREAD)
    assert digest(tmp_path) == digest(dataset)


def test_a_finished_folder_is_left_as_it_is(tmp_path, corpus, dataset, monkeypatch):
    stamps = {path: path.stat().st_mtime_ns for path in dataset.iterdir()}
    monkeypatch.setattr(job, "run_pipeline", None)
    manifest = preprocess(sources=[corpus], options=options(dataset))
    assert manifest == DatasetManifest.load(dataset)
    assert {path: path.stat().st_mtime_ns for path in dataset.iterdir()} == stamps


def test_work_left_behind_a_finished_folder_is_deleted(tmp_path, corpus):
    preprocess(sources=[corpus], options=options(tmp_path))
    (tmp_path / "_work/x").mkdir(parents=True)
    preprocess(sources=[corpus], options=options(tmp_path))
    assert not (tmp_path / "_work").exists()


def test_another_data_set_is_not_overwritten(tmp_path, corpus, dataset):
    with pytest.raises(UserError, match=r"finished dataset of 400 pairs .* choose another"):
        preprocess(sources=[corpus], options=options(dataset, seed=9))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds something else \(notes\.txt\): choose another"):
        preprocess(sources=[corpus], options=options(tmp_path))
    with pytest.raises(UserError, match=r"notes\.txt is a file, not a folder"):
        preprocess(sources=[corpus], options=options(tmp_path / "notes.txt"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_an_unfinished_run_with_other_options_is_not_overwritten(tmp_path, monkeypatch, corpus):
    monkeypatch.setattr(job, "run_pipeline", lambda pipeline: None)
    with pytest.raises(UserError, match="not a finished dataset folder"):
        preprocess(sources=[corpus], options=options(tmp_path))
    with pytest.raises(UserError, match="unfinished dataset made from other input"):
        preprocess(sources=[corpus], options=options(tmp_path, seed=9))


# Vocabularies.


def test_separate_vocabularies_and_characters_on_one_side(tmp_path, corpus):
    manifest = preprocess(
        sources=[corpus],
        options=options(
            tmp_path, shared_vocabulary=False, vocabulary_type="bpe", target_vocabulary_type="char"
        ),
    )
    vocabularies = load_vocabularies(tmp_path)
    assert not vocabularies.is_shared
    assert not manifest.shared_vocabulary
    characters = {c for _, target in PAIRS for c in target} - {" "}
    assert vocabularies.source.piece_count == 48
    assert vocabularies.target.piece_count == 4 + 1 + len(characters)
    assert manifest.target_vocabulary_size == 24
    assert sorted(texts(tmp_path, "train") + texts(tmp_path, "validation")) == sorted(PAIRS)
    assert describe_manifest(manifest)[-1] == "vocabularies: 48 source and 24 target pieces"


@pytest.mark.parametrize("count", [1, 2])
def test_given_vocabularies_are_used(tmp_path, corpus, dataset, count):
    path = str(dataset / "vocabulary.spm")
    preprocess(sources=[corpus], options=options(tmp_path, vocabulary=(path,) * count))
    assert load_vocabularies(tmp_path).is_shared == (count == 1)
    assert records(tmp_path, "train") == records(dataset, "train")


def test_a_vocabulary_is_loaded_once_a_process(tmp_path, monkeypatch, corpus, dataset):
    monkeypatch.setattr(job, "MAX_UNIT_PAIRS", 40)  # 10 units
    loads = []

    def count_load(folder):
        loads.append(folder)
        return load_vocabularies(folder)

    monkeypatch.setattr(transforms, "load_vocabularies", count_load)
    preprocess(
        sources=[corpus],
        options=options(tmp_path, vocabulary=(str(dataset / "vocabulary.spm"),)),
        beam_arguments=["--direct_num_workers=2", "--direct_running_mode=multi_threading"],
    )
    assert len(loads) == 1


def test_too_large_a_vocabulary_writes_nothing_that_looks_whole(tmp_path, corpus):
    with pytest.raises(UserError) as caught:
        preprocess(sources=[corpus], options=options(tmp_path, vocabulary_size=8000))
    message = str(caught.value)
    assert message.startswith("a shared vocabulary of 8000 pieces is larger than this corpus")
    assert "--vocabulary-size" in message
    assert "\n" not in message
    assert "while running" not in message
    assert not (tmp_path / MANIFEST_FILE).exists()


# Errors of users.


@pytest.mark.parametrize("arguments", [ONE_THREAD, []])
def test_files_of_unequal_length(tmp_path, arguments):
    corpus = write_pairs(tmp_path, PAIRS)
    with Path(corpus.target_path).open("a") as file:
        file.write("one more\n")
    with pytest.raises(UserError) as caught:
        preprocess(sources=[corpus], options=options(tmp_path / "out"), beam_arguments=arguments)
    assert str(caught.value) == (
        f"{corpus.source_path} has 400 lines and {corpus.target_path} has 401: line-aligned "
        "files must have equally many, so check that both are whole and belong together"
    )


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "no text to train the shared vocabulary on"),
        ([("", "x")], "no text to train the shared vocabulary on"),
        ([("a", "x")] * 3, "too small: of 3 pairs read .2 duplicate_pair rejected. none is left"),
        ([("a", "x"), ("a", "y")], "too small: .* at least two pairs with different sources"),
    ],
)
def test_too_small_a_corpus(tmp_path, pairs, message):
    tsv = tmp_path / "c.tsv"
    tsv.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    with pytest.raises(UserError, match=message):
        preprocess(
            sources=[Tsv(str(tsv))], options=options(tmp_path / "out", vocabulary_type="char")
        )


def test_no_corpus(tmp_path):
    with pytest.raises(UserError, match="no corpus given"):
        preprocess(sources=[], options=options(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": -1}, "shards must be 0 to 99,999. Received: -1"),
        ({"vocabulary_size": 3}, "vocabulary size must be 8 or more. Received: 3"),
        ({"vocabulary_type": "word"}, "unigram, bpe or char. Received: 'word'"),
        ({"target_vocabulary_type": "char"}, "a shared vocabulary has one type"),
        ({"min_tokens": 0}, "least tokens must be 1 or more. Received: 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "most tokens must be 9 or more. Received: 8"),
        ({"validation_fraction": 1.0}, "validation fraction must be 0 to 0.5. Received: 1.0"),
        ({"character_coverage": 0.5}, "character coverage must be 0.9 to 1. Received: 0.5"),
        ({"sentencepiece_normalization": "x"}, "must be one of nmt_nfkc, .* Received: 'x'"),
        ({"vocabulary": ("a", "b", "c")}, "at most two vocabularies"),
        ({"vocabulary_sample": 0}, "vocabulary sample must be 1 or more"),
        ({"seed": 2**63}, "seed must fit 64 bits"),
    ],
)
def test_bad_options(changes, message):
    with pytest.raises(UserError, match=message):
        options("out", **changes)


def test_a_missing_vocabulary_is_told_before_anything_is_written(tmp_path, corpus):
    with pytest.raises(UserError, match=r"no vocabulary at nowhere\.spm"):
        preprocess(sources=[corpus], options=options(tmp_path / "out", vocabulary=("nowhere.spm",)))
    assert not (tmp_path / "out").exists()


def test_the_fingerprint_tells_input_and_options_but_not_the_folder(tmp_path, corpus):
    def fingerprint(**changes):
        return job._fingerprint(
            [corpus], [], options=options(**({"output": "x"} | changes)), corpus=""
        )

    base = fingerprint()
    assert fingerprint(output="y") == base
    assert fingerprint(seed=2) != base
    assert fingerprint(normalization=TextNormalization(unicode_form="NFKC")) != base
    other = dataclasses.replace(corpus, target_path=corpus.source_path)
    assert job._fingerprint([other], [], options=options("x"), corpus="") != base
    assert job._fingerprint([corpus], [corpus], options=options("x"), corpus="") != base


# Real corpora.


def test_tfds_chinese_characters(tmp_path, shared_data):
    [source] = sources_from_options(
        tfds=["tfds:wmt19_translate/zh-en"],
        data_dir=str(shared_data / "tfds"),
        source_language="en",
        target_language="zh",
        split="train[:1000]",
    )
    [held_out] = sources_from_options(
        tfds=["tfds:wmt19_translate/zh-en"],
        data_dir=str(shared_data / "tfds"),
        source_language="en",
        target_language="zh",
        split="validation[:50]",
    )
    manifest = preprocess(
        sources=[source],
        validation_sources=[held_out],
        options=options(
            tmp_path, vocabulary_size=2000, shared_vocabulary=False, target_vocabulary_type="char"
        ),
    )
    assert (manifest.splits["train"].records, manifest.splits["validation"].records) == (
        1000 - sum(manifest.sources[0]["rejected"].values()),
        50 - sum(manifest.sources[1]["rejected"].values()),
    )
    assert manifest.splits["train"].records > 950
    pairs = texts(tmp_path, "validation")
    assert sum("\u4e00" <= c <= "\u9fff" for _, target in pairs for c in target) > 1000
