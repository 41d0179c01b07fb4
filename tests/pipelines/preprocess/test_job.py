"""The complete preprocess job: exact records, counts, splits and user errors."""

import collections
import gzip
import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece
import tensorflow as tf
from block_reading import facts_of
from corpora import (
    ONE_THREAD,
    PAIRS,
    TWO_THREADS,
    digest,
    examples,
    open_named,
    options,
    preprocess,
    records,
    rejected,
    sentence,
    texts,
    write_pairs,
)
from toy import texts_of_record
from vocabularies import train as train_vocabulary

from tt.model.dataset.manifest import DatasetManifest, ratio_places
from tt.model.errors import UserError
from tt.model.formats.model_card import TrainingData
from tt.model.text.normalization import TextNormalization
from tt.model.text.spans import PLACEHOLDERS
from tt.model.text.vocabulary import UNK_ID, load_vocabularies
from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.description import dataset_blocks
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.parquet_columns import ParquetColumns


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


def test_records_have_the_ids_that_translation_uses(dataset):
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
    [source] = manifest.sources
    looked_at = source.pop("languages")
    # The sample has the first 128 of the 400 rows, and row 256.
    assert [sum(looked_at[side].values()) for side in ("source", "target")] == [129, 129]
    assert source == corpus.identity() | {
        "is_held_out": False, "read": 400, "kept": 400, "rejected": {}, "decoded": 0, "shifted": {},
    }  # fmt: skip
    assert source["name"] == f"{corpus.source_path} + {corpus.target_path}"
    assert [file["bytes"] for file in source["files"]] == [
        Path(path).stat().st_size for path in corpus.paths()
    ]
    assert manifest.vocabulary_digests == {
        name: hashlib.blake2b((dataset / name).read_bytes(), digest_size=16).hexdigest()
        for name in ("vocabulary.json", "vocabulary.spm")
    }
    assert manifest.shared_vocabulary
    assert manifest.source_vocabulary_size == manifest.target_vocabulary_size == 48
    assert manifest.options["vocabulary_size"] == 48
    assert "output" not in manifest.options
    for name, split in manifest.splits.items():
        found = records(dataset, name)
        lengths = [[len(side) for side in sides] for sides in zip(*found, strict=True)]
        assert split.records == len(found)
        assert [split.source_tokens, split.target_tokens] == [sum(side) for side in lengths]
        assert split.source_lengths == np.bincount(np.array(lengths[0]) // 8).tolist()
        assert split.length_ratios == np.bincount(ratio_places(*map(np.array, lengths))).tolist()
        assert split.lost_end_ratios == [0], "no source ends with a full stop"
        assert split.target_lengths == np.bincount(np.array(lengths[1]) // 8).tolist()
        assert split.longest == max(map(max, lengths))
        assert split.shard_sizes == [(dataset / name).stat().st_size for name in split.shards]
    facts = facts_of(dataset_blocks(manifest))
    assert facts["pairs"] == "400 read, 400 kept, 0 rejected"
    assert facts["vocabulary"] == "48 tokens, shared"
    assert sorted(path.name for path in dataset.iterdir()) == [
        "dataset.json",
        "train-00000-of-00003.tfrecord",
        "train-00001-of-00003.tfrecord",
        "train-00002-of-00003.tfrecord",
        "validation-00000-of-00001.tfrecord",
        "vocabulary.json",
        "vocabulary.spm",
    ]


# Reasons of rejected pairs.


def test_length_limits_do_not_count_bos_and_eos(tmp_path):
    lengths = [1, 2, 3, 4, 5]
    # A char vocabulary encodes "aaa" as 4 tokens, because the space mark comes first.
    corpus = write_pairs(tmp_path, [("a" * (n - 1) or "a", f"b{'a' * (n - 2)}") for n in lengths])
    manifest = preprocess(
        sources=[corpus],
        validation_sources=[write_pairs(tmp_path, [("ba", "ab")], name="held")],
        options=options(
            tmp_path / "out",
            vocabulary_type="char",
            filters={"min_tokens": 3, "max_tokens": 4},
            shards=1,
        ),
    )
    assert manifest.rejected == {"too_long": 1, "too_short": 2}
    assert {len(source) for source, _ in records(tmp_path / "out", "train")} == {5, 6}


# Splits.


def test_each_source_is_in_one_split(tmp_path):
    pairs = [(source, f"{target} {i}") for source, target in PAIRS[:100] for i in range(3)]
    corpus = write_pairs(tmp_path, pairs)
    preprocess(sources=[corpus], options=options(tmp_path / "out", validation_fraction=0.2))
    train, validation = texts(tmp_path / "out", "train"), texts(tmp_path / "out", "validation")
    assert not {source for source, _ in train} & {source for source, _ in validation}
    assert sorted(train + validation) == sorted(pairs)
    assert 0.05 < len(validation) / 300 < 0.4


UNKNOWN = " ⁇ "  # a decoded text without known tokens


def test_tiny_corpus_holds_out_the_source_with_the_smallest_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 2)
    pairs = [("a", "x"), ("b", "x"), ("c", "x"), ("b", "y"), ("b", "x"), ("a", "y")]

    def source_hash(pair):
        return int.from_bytes(
            hashlib.blake2b(pair[0].encode(), digest_size=16).digest()[:8], "little"
        )

    [least] = {pair[0] for pair in pairs if source_hash(pair) == min(map(source_hash, pairs))}
    manifest = preprocess(
        sources=[write_pairs(tmp_path, pairs)],
        options=options(tmp_path / "out", vocabulary_type="char", shards=2, validation_fraction=0),
    )
    train, validation = texts(tmp_path / "out", "train"), texts(tmp_path / "out", "validation")
    # The vocabulary is not trained on held-out pairs.
    assert {source for source, _ in validation} == {UNKNOWN}
    wanted = {(UNKNOWN if source == least else source, target) for source, target in pairs}
    assert sorted(train + validation) == sorted(wanted)
    assert manifest.rejected == {"duplicate_pair": 1}


def texts_in_records(folder, split):
    return [texts_of_record(example) for example in examples(folder, split)]


def test_validation_records_contain_texts_that_decoding_cannot_restore(tmp_path):
    """The texts are normalized, but SentencePiece's rule and unknown tokens do not change them."""
    corpus = write_pairs(tmp_path, PAIRS)
    pairs = [("BAD  m²", "Cafe\u0301…"), ("feed", "ﬁ 中"), ("\u3000A\u00a0b", "c")]
    held_out = write_pairs(tmp_path, pairs, name="held")
    preprocess(
        sources=[corpus],
        validation_sources=[held_out],
        options=options(
            tmp_path / "out", vocabulary_type="char", sentencepiece_rule="nmt_nfkc",
            normalization=TextNormalization(lowercase=True),
        ),
    )  # fmt: skip
    found = texts_in_records(tmp_path / "out", "validation")
    assert sorted(found) == [("a b", "c"), ("bad m²", "café…"), ("feed", "ﬁ 中")]
    decoded = texts(tmp_path / "out", "validation")
    assert decoded[found.index(("feed", "ﬁ 中"))] == ("feed", "f ⁇   ⁇ ")
    assert set(texts_in_records(tmp_path / "out", "train")) == {None}


@pytest.mark.parametrize("fraction", [0, 0.2])
def test_records_held_out_by_hash_contain_their_texts(tmp_path, monkeypatch, fraction):
    """With a fraction of 0, only the source with the smallest hash is held out."""
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 30)
    pairs = [*PAIRS[:60], *PAIRS[20:40], *((source, "be") for source, _ in PAIRS[:60])]
    chosen = options(
        tmp_path / "out", vocabulary_type="char", shards=2, validation_fraction=fraction
    )
    manifest = preprocess(
        sources=[write_pairs(tmp_path, pairs)], options=chosen, beam_arguments=ONE_THREAD
    )
    assert manifest.rejected == {"duplicate_pair": 20}
    found = texts_in_records(tmp_path / "out", "validation")
    assert found == texts(tmp_path / "out", "validation")
    assert len(found) == 2 if fraction == 0 else 4 < len(found) < 60
    train = texts(tmp_path / "out", "train")
    assert texts_in_records(tmp_path / "out", "train") == [None] * len(train)
    assert sorted(found + train) == sorted(set(pairs))


@pytest.mark.parametrize(
    ("deduplicate", "kept", "survivors"),
    [
        ("pair", [0, 1, 2, 4], {3: 0, 5: 4}),
        ("source", [0, 2, 4], {1: 0, 3: 0, 5: 4}),
        ("target", [0, 1], {2: 0, 3: 0, 4: 1, 5: 1}),
        ("none", [0, 1, 2, 3, 4, 5], {}),
    ],
)
def test_duplicates_by_pair_or_by_side(tmp_path, monkeypatch, deduplicate, kept, survivors):
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 4)  # duplicates inside and across units
    pairs = [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x"), ("c", "y"), ("c", "y")]
    corpus = write_pairs(tmp_path, pairs)
    held_out = write_pairs(tmp_path, [("held", "out")], name="held")
    manifest = preprocess(
        sources=[corpus],
        validation_sources=[held_out],
        options=options(
            tmp_path / "out", vocabulary_type="char", deduplicate=deduplicate, shards=2
        ),
    )
    assert sorted(texts(tmp_path / "out", "train")) == sorted(pairs[row] for row in kept)
    assert {
        row["line"] - 1: row["survivor_line"] - 1 for row in rejected(tmp_path / "out")
    } == survivors
    assert manifest.rejected == ({f"duplicate_{deduplicate}": len(survivors)} if survivors else {})


def test_lower_case_applies_to_records_vocabulary_and_translation(tmp_path):
    upper = [(source.upper(), target.upper()) for source, target in PAIRS[:40]]
    corpus = write_pairs(
        tmp_path,
        [
            *upper,
            ("Straße İX", "ΟΔΟΣ E\u0301"),
            ("straße i\u0307x", "οδος é"),  # equal to the previous pair except for case
            ("Berlin", "BERLIN"),
            ("The device", "das GerÃ¤t"),  # not recognizable as mojibake in lower case
            ("Feed DAD", "x"),
            ("y", "exClUded"),
        ],
    )
    held_out = write_pairs(tmp_path, [("FEED dad", "Ja")], name="held")
    excluded = tmp_path / "test.txt"
    excluded.write_text("EXCluded\n")
    output = tmp_path / "out"
    manifest = preprocess(
        sources=[corpus],
        validation_sources=[held_out],
        options=options(
            output, vocabulary_type="char", exclude=(str(excluded),), vocabulary_size=80,
            normalization=TextNormalization(lowercase=True),
            filters={"reject_identical": True, "reject_mojibake": True},
        ),
    )  # fmt: skip
    assert manifest.options["normalization"]["lowercase"] is True
    assert {row["line"]: row["reason"] for row in rejected(output)} == {
        42: "duplicate_pair", 43: "identical", 44: "mojibake", 45: "held_out_source",
        46: "held_out_target",
    }  # fmt: skip
    assert [row["source"] for row in rejected(output) if row["line"] == 43] == ["Berlin"], "as read"
    expected = [*PAIRS[:40], ("straße i\u0307x", "οδος é")]
    assert sorted(texts(output, "train")) == sorted(expected)
    assert [source for source, _ in texts(output, "validation")] == ["feed dad"]

    vocabularies = load_vocabularies(output)
    processor = sentencepiece.SentencePieceProcessor(str(output / "vocabulary.spm"))
    pieces = [processor.id_to_piece(i) for i in range(4, processor.get_piece_size())]
    # Before a vocabulary exists, held-out sides with few words seem short and stay.
    sampled = [*expected, ("feed dad", "x"), ("y", "excluded")]
    learnt = "".join(piece for piece in pieces if piece not in PLACEHOLDERS)
    assert set(learnt) - {"▁"} == set("".join(map("".join, sampled))) - {" "}
    train = {(tuple(source), tuple(target)) for source, target in records(output, "train")}
    for both in ([*upper, ("STRAßE İX", "ΟΔΟΣ É")], expected):
        sources, targets = zip(*both, strict=True)
        ids = zip(
            map(tuple, vocabularies.source.encode([*sources])),
            map(tuple, vocabularies.target.encode([*targets])),
            strict=True,
        )
        assert set(ids) == train


def test_special_characters_and_white_space_survive(tmp_path):
    """By default white space is normalized; with --keep-whitespace it also survives.

    Placeholders are off, because they would replace "™".
    """
    signs = ["5 m² … ﬁn", "１２３ ＡＢＣ", "می\u200cخواهم", "½ ℃ ™", "a\u200db"]
    space = ["  two  spaces ", "a\tb\n\nc", "no\u00a0break", "mark\u2581of space"]
    sources = [f"{text} {i}" for i in range(30) for text in signs + space]
    targets = [text[::-1] for text in sources]
    pq.write_table(
        pa.table({"s": [*sources, " \t "], "t": [*targets, "x"]}), tmp_path / "c.parquet"
    )
    corpus = ParquetColumns(str(tmp_path / "c.parquet"), "s", "t")
    for keep in (False, True):
        output = tmp_path / f"{keep}"
        normalization = TextNormalization(clean_whitespace=not keep)
        chosen = options(
            output, normalization=normalization, vocabulary_type="char", vocabulary_size=100,
            protect=False,
        )  # fmt: skip
        manifest = preprocess(sources=[corpus], options=chosen)
        assert manifest.rejected == {"empty_source": 1}
        both = texts(output, "train") + texts(output, "validation")
        assert not any(" ⁇ " in text for pair in both for text in pair)
        mark = str.maketrans("\u2581", " ")
        expected = [
            (s.translate(mark), t.translate(mark)) for s, t in zip(sources, targets, strict=True)
        ]
        if not keep:
            expected = [tuple(" ".join(text.split()) for text in pair) for pair in expected]
        assert sorted(both) == sorted(expected)


def test_line_of_many_megabytes_is_rejected(tmp_path):
    corpus = write_pairs(tmp_path, [*PAIRS[:200], ("long " * 4_000_000, "lang"), *PAIRS[200:]])
    made = preprocess(sources=[corpus], options=options(tmp_path / "out"))
    assert made.rejected == {"too_many_characters": 1}
    [row] = rejected(tmp_path / "out")
    assert (row["line"], len(row["source"]), row["target"]) == (201, 20_000_000, "lang")
    assert sorted(texts(tmp_path / "out", "train") + texts(tmp_path / "out", "validation")) == (
        sorted(PAIRS)
    )


# Vocabularies.


def test_separate_vocabularies_and_characters_on_one_side(tmp_path, corpus):
    manifest = preprocess(
        sources=[corpus], options=options(tmp_path, vocabulary_type=("bpe", "char"))
    )
    vocabularies = load_vocabularies(tmp_path)
    assert not vocabularies.is_shared
    assert not manifest.shared_vocabulary
    characters = {c for _, target in PAIRS for c in target} - {" "}
    assert vocabularies.source.piece_count == 48
    assert vocabularies.target.piece_count == 4 + len(PLACEHOLDERS) + 1 + len(characters)
    assert manifest.target_vocabulary_size == 32
    assert sorted(texts(tmp_path, "train") + texts(tmp_path, "validation")) == sorted(PAIRS)
    facts = facts_of(dataset_blocks(manifest))
    assert facts["vocabulary"] == "48 source and 32 target tokens"


def test_given_vocabularies_are_used(tmp_path, corpus, dataset):
    path = str(dataset / "vocabulary.spm")
    for count in (1, 2):
        output = tmp_path / str(count)
        preprocess(sources=[corpus], options=options(output, vocabulary=(path,) * count))
        assert load_vocabularies(output).is_shared == (count == 1)
        assert records(output, "train") == records(dataset, "train")


def test_given_vocabulary_with_other_content_is_another_job(tmp_path, corpus, dataset):
    given = tmp_path / "given.spm"
    given.write_bytes((dataset / "vocabulary.spm").read_bytes())
    chosen = options(tmp_path / "out", vocabulary=(str(given),))
    preprocess(sources=[corpus], options=chosen)
    before = digest(tmp_path / "out")
    given.write_bytes(train_vocabulary([source for source, _ in PAIRS[:100]], size=40))
    with pytest.raises(UserError, match="belongs to another job"):
        preprocess(sources=[corpus], options=chosen)
    assert digest(tmp_path / "out") == before


def test_byte_fallback_and_user_symbols(tmp_path, corpus):
    made = options(tmp_path, vocabulary_size=320, byte_fallback=True, user_symbols=("<de>", "<en>"))
    preprocess(sources=[corpus], options=made)
    vocabulary = load_vocabularies(tmp_path).source
    [ids] = vocabulary.encode(["中 face"])
    assert UNK_ID not in ids
    assert vocabulary.decode([ids]) == ["中 face"]
    [ids] = vocabulary.encode(["<de>face"])
    assert 4 in ids  # the first token after the special tokens


# Real corpora.


def test_every_line_of_messy_corpora_is_counted(tmp_path, shared_data):
    """All corpora are in one run. Few pairs that people labeled as valid are rejected."""
    folder = shared_data / "messy"
    corpora = [str(path) for path in sorted(folder.glob("*.tsv.gz"))]
    corpora += [f"{path}:zh:en" for path in sorted(folder.glob("*.jsonl.gz"))]
    sources = open_named(corpora=corpora)
    made = preprocess(
        sources=sources, options=PreprocessOptions(output=str(tmp_path), vocabulary_size=8000)
    )
    lines = {
        path.name: gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")
        for path in folder.glob("*.gz")
    }
    assert made.lines_read == sum(map(len, lines.values()))
    assert made.lines_read == made.pairs_kept + len(rejected(tmp_path))
    for source in made.sources:
        assert source["read"] == source["kept"] + sum(source["rejected"].values())

    labels, lost = collections.Counter(), collections.Counter()
    web = {name: texts for name, texts in lines.items() if name.startswith("web_")}
    for texts_of_file in web.values():
        labels.update(line.split("\t")[2] for line in texts_of_file)
    for row in rejected(tmp_path):
        name = Path(row["file"]).name
        if name in web and not row["reason"].startswith("duplicate"):
            lost[web[name][row["line"] - 1].split("\t")[2]] += 1
    for label in sorted(labels):
        print(f"{label}: {lost[label]} of {labels[label]} rejected")
    valid = [sum(count[label] for label in "VF") for count in (lost, labels)]
    assert valid[0] <= 0.03 * valid[1]


def test_pairs_with_a_lost_end_are_counted_by_their_length_ratio(tmp_path):
    def pair(i):
        source, target = sentence(i), sentence(i)[::-1]
        if i % 4 == 0:
            return source + ".", target  # The end is lost.
        if i % 4 == 1:
            return source + ".", target.split()[0]  # The end and many words are lost.
        return (source + ".", target + ".") if i % 4 == 2 else (source, target + ".")

    pairs = [pair(i) for i in range(400)]
    corpus = write_pairs(tmp_path, [*pairs, *pairs[:40]])  # duplicates are not counted
    preprocess(sources=[corpus], options=options(tmp_path / "data"), beam_arguments=TWO_THREADS)
    manifest = DatasetManifest.load(tmp_path / "data")
    for name, split in manifest.splits.items():
        of_split = zip(
            records(tmp_path / "data", name), texts(tmp_path / "data", name), strict=True
        )
        lost = [ids for ids, (source, target) in of_split if source[-1] == "." != target[-1]]
        lengths = ([len(side) for side in sides] for sides in zip(*lost, strict=True))
        assert split.lost_end_ratios == np.bincount(ratio_places(*map(np.array, lengths))).tolist()
    assert sum(sum(split.lost_end_ratios) for split in manifest.splits.values()) == 200
    assert TrainingData.of(manifest).lost_end_ratios == manifest.splits["train"].lost_end_ratios
