"""Every rule for held-out pairs and texts, compared with the same rule on plain texts."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from block_reading import facts_of, table_of
from corpora import PAIRS as CORPUS
from corpora import examples, options, preprocess, records, rejected, texts, write_pairs
from hypothesis import given
from hypothesis import strategies as st
from toy import texts_of_record

from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import UNK_ID, load_vocabularies
from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.cleaning import hash_pairs
from tt.pipelines.preprocess.description import dataset_blocks
from tt.pipelines.preprocess.filters import HELD_OUT_BY
from tt.pipelines.preprocess.held_out import (
    SHORT_TOKENS,
    digest_halves,
    digest_texts,
    hash_each,
    hash_texts,
    held_out_reasons,
    seem_short,
    short_tokens,
    unite,
)

TEXT = st.sampled_from(["a", "b", "c c", "d d d d", "e e e e e", "f f f f f f"])
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=8)


def tokens(text):
    return len(text.split())


def table(pairs, *, fault=None):
    sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table(
        {
            "source": pa.array(sources, pa.large_string()),
            "target": pa.array(targets, pa.large_string()),
            "fault": pa.array([fault] * len(pairs), pa.string()),
        }
    )


def find_reasons(pairs, *, validation, excluded, by, knows_tokens=True):
    plain = TextNormalization()
    held_out = unite(
        [
            hash_pairs([table(validation)], options("", held_out_by=by)),
            hash_texts([pa.array(excluded, pa.large_string())], normalization=plain),
        ]
    )
    lengths = [np.array([tokens(pair[side]) for pair in pairs], np.int64) for side in (0, 1)]
    return held_out_reasons(
        digest_halves(digest_texts(source for source, _ in pairs))[0],
        hash_each([target for _, target in pairs]),
        held_out,
        is_short=tuple(side <= short_tokens(by) for side in lengths) if knows_tokens else None,
    )


def expected_reason(pair, *, validation, excluded, by, knows_tokens=True):
    """Return the reason that the rule gives for the texts themselves, without hashes."""
    texts = set(excluded)
    if by in ("side", "long-side"):
        texts |= {text for held_out in validation for text in held_out}

    def is_held_out(text):
        is_long = by == "side" or not knows_tokens or tokens(text) > SHORT_TOKENS
        return text in texts and is_long

    if pair in validation:
        return "held_out_pair"
    if is_held_out(pair[0]) or (by == "source" and pair[0] in {source for source, _ in validation}):
        return "held_out_source"
    return "held_out_target" if is_held_out(pair[1]) else None


@pytest.mark.parametrize("knows_tokens", [True, False])
@pytest.mark.parametrize("by", HELD_OUT_BY)
@given(pairs=PAIRS, validation=PAIRS, excluded=st.lists(TEXT, max_size=3))
def test_reasons_match_a_plain_version_of_the_rule(pairs, validation, excluded, by, knows_tokens):
    given_ = {
        "validation": validation,
        "excluded": excluded,
        "by": by,
        "knows_tokens": knows_tokens,
    }
    expected = {place: expected_reason(pair, **given_) for place, pair in enumerate(pairs)}
    assert find_reasons(pairs, **given_) == {p: reason for p, reason in expected.items() if reason}


def test_common_short_sentences_remain_unless_their_pair_is_held_out():
    validation = [("Thank you .", "Danke ."), ("The dog ran to us .", "Der Hund lief zu uns .")]
    pairs = [
        ("Thank you .", "Danke ."),
        ("Thank you .", "Vielen Dank ."),
        ("Thanks .", "Danke ."),
        ("The dog ran to us .", "Der Hund kam ."),
        ("It came .", "Der Hund lief zu uns ."),
        ("Danke .", "Der Hund lief zu uns ."),
        ("Der Hund lief zu uns .", "The dog came ."),  # the held-out text is on the other side
    ]
    found = {by: find_reasons(pairs, validation=validation, excluded=[], by=by)
             for by in HELD_OUT_BY}  # fmt: skip
    pair, source, target = "held_out_pair", "held_out_source", "held_out_target"
    assert found == {
        "pair": {0: pair},
        "source": {0: pair, 1: source, 3: source},
        "long-side": {0: pair, 3: source, 4: target, 5: target, 6: source},
        "side": {0: pair, 1: source, 2: target, 3: source, 4: target, 5: source, 6: source},
    }


def test_swapped_sides_are_a_different_pair():
    assert find_reasons(
        [("b", "a"), ("a", "b")], validation=[("a", "b")], excluded=[], by="pair"
    ) == {1: "held_out_pair"}


def test_held_out_texts_are_normalized_and_empty_texts_are_ignored():
    plain = TextNormalization()
    pairs = table([(" a\u00a0b ", "c"), ("", "d"), ("e", "\u200b")])
    found = unite(
        [
            hash_pairs([pairs], options("", held_out_by="side")),
            hash_texts([pa.array([" \u200b", None, "f"])], normalization=plain),
        ]
    )
    hashes = digest_halves(digest_texts(["a b", "c", "f"]))[0]
    assert found.texts.tolist() == sorted(hashes.tolist())
    assert len(found.pairs) == 1


def test_rejected_validation_pairs_hold_nothing_out():
    tables = [table([("source", "target")], fault="header"), table([("a", "b")])]
    found = hash_pairs(tables, options("", held_out_by="side"))
    assert found.texts.tolist() == sorted(digest_halves(digest_texts(["a", "b"]))[0].tolist())
    assert len(found.pairs) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thank you.", True),
        ("Thank you, Tom.", False),
        ("abcd efgh ijkl mnop", True),
        ("abcd efgh ijkl mnopq", False),
        ("abcdefghijklmnop", True),
        ("abcdefghijklmnopq", False),
        ("谢谢你的帮", True),
        ("谢谢你的帮助", False),
        ("e" + "\u0301" * 20, False),
    ],
)
def test_estimate_of_short_texts(text, expected):
    assert seem_short(["x" * 99, text], tokens=SHORT_TOKENS).tolist() == [False, expected]
    assert not seem_short([text], tokens=short_tokens("side")).any()


# Held-out texts in the job.


def test_long_held_out_texts_are_not_in_the_vocabulary_sample(tmp_path):
    long, other = "ein Žaba in fünf Worten", "some other words of it"
    sources = [write_pairs(tmp_path, [*PLAIN, ("ja", long), (long, "ja"), ("Öl", "Ål")])]
    held = [write_pairs(tmp_path, [(other, long), ("Öl", "Ål")], name="held")]
    preprocess(
        sources=sources,
        validation_sources=held,
        options=options(tmp_path / "out", vocabulary_type="char"),
    )
    vocabulary = load_vocabularies(tmp_path / "out").source
    assert all(UNK_ID in vocabulary.encode([character])[0] for character in "ŽÖÅ")


LETTERS = [chr(i) for i in range(500) if chr(i).isalpha()]
PLAIN = [(f"{source} w", target) for source, target in CORPUS[:40]]


@pytest.mark.parametrize(
    ("by", "left", "reasons"),
    [
        (None, [1, 2, 5], {"pair": 1, "source": 1, "target": 1}),
        ("pair", [1, 2, 3, 5], {"pair": 1, "target": 1}),
        ("source", [2, 5], {"pair": 1, "source": 2, "target": 1}),
        ("side", [], {"pair": 1, "source": 3, "target": 2}),
    ],
)
def test_option_decides_which_pairs_are_held_out(tmp_path, monkeypatch, by, left, reasons):
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 3)
    pairs = [
        ("yes", "ja"),
        ("yes", "aber ja doch"),
        ("so it is", "ja"),
        ("feed a dad", "ein ganz anderer satz"),
        ("some other words", "faded cafe"),  # excluded; "bee" is also excluded, but short
        ("bee", "was immer"),
    ]
    excluded = tmp_path / "test.txt"
    excluded.write_text("faded cafe\nbee\n")
    others = [("the quick brown fox jumps over the lazy dog", "jo"), *CORPUS[:40]]
    manifest = preprocess(
        sources=[write_pairs(tmp_path, [*pairs, *others])],
        validation_sources=[
            write_pairs(tmp_path, [("yes", "ja"), ("feed a dad", "x")], name="held")
        ],
        options=options(
            tmp_path / "out",
            vocabulary_type="char",
            held_out_by=by,
            exclude=(str(excluded),),
            vocabulary_size=64,
        ),
    )
    expected = sorted([*others, *(pairs[i] for i in left)])
    assert sorted(texts(tmp_path / "out", "train")) == expected
    assert manifest.rejected == {f"held_out_{reason}": count for reason, count in reasons.items()}
    assert manifest.lines_read == manifest.pairs_kept + sum(reasons.values())
    assert manifest.options["held_out_by"] == (by or "long-side")
    assert facts_of(dataset_blocks(manifest))["excluded texts"] == 2
    found = sorted(row["line"] - 1 for row in rejected(tmp_path / "out"))
    assert found == [row for row in range(6) if row not in left]


@pytest.mark.parametrize("by", HELD_OUT_BY)
def test_training_sees_no_validation_text_of_the_split_by_hash(tmp_path, monkeypatch, by):
    """Every target belongs to four sources, and every source is also a target."""
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 7)
    sources = [source for source, _ in CORPUS[:80]]
    pairs = [
        (source, sources[(i + 7 * k + 1) % 20]) for i, source in enumerate(sources) for k in (0, 1)
    ]
    pairs += [("a", "bee"), ("bee", "a"), ("cab", "a")]
    manifest = preprocess(
        sources=[write_pairs(tmp_path, pairs)],
        options=options(
            tmp_path / "out", vocabulary_type="char", validation_fraction=0.05, held_out_by=by
        ),
    )
    train, validation = texts(tmp_path / "out", "train"), texts(tmp_path / "out", "validation")
    assert train
    assert validation
    held_out = {text for pair in validation for text in pair if len(text) >= SHORT_TOKENS}
    seen = {text for pair in train for text in pair}
    assert not {source for source, _ in validation} & {source for source, _ in train}
    assert bool(held_out & seen) == (by in ("pair", "source"))
    # No other pairs are rejected.
    long = held_out if by in ("long-side", "side") else set()
    kept = [pair for pair in pairs if pair not in validation and not long & {*pair}]
    if by != "side":
        assert sorted(train) == sorted(kept)
    assert len(pairs) == manifest.pairs_kept + sum(manifest.rejected.values())


GREETINGS = [pair for i in range(82)
             for pair in [(f"Hi {{name}} {i}!", f"¡Hola {{name}} {i}!"),
                          (f"Hi {{name}} {i}!", f"¡Hola {i}!")]]  # fmt: skip


def test_source_with_a_placeholder_in_only_one_of_its_pairs_is_in_one_split(tmp_path):
    """Whether a span becomes a placeholder depends on the other side of the pair."""
    preprocess(
        sources=[write_pairs(tmp_path, GREETINGS)],
        options=options(
            tmp_path / "out", vocabulary_type="char", validation_fraction=0.5, held_out_by="pair"
        ),
    )
    kept = [texts_of_record(each) for each in examples(tmp_path / "out", "validation")]
    numbers = [re.search(r"\d+!$", target)[0] for _, target in kept]
    assert 40 < len(kept) < 124
    assert sorted(numbers) == sorted([*{*numbers}] * 2)  # both pairs of each source
    assert len(texts(tmp_path / "out", "train")) == 164 - len(kept)


def test_excluded_texts_are_counted_even_if_the_corpus_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(
        preprocess_sizes, "MAX_UNIT_PAIRS", 10
    )  # several units, each with the same count
    for name, text in (("a", "nowhere\n\nnot here\n"), ("b", "nowhere\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    manifest = preprocess(
        sources=[write_pairs(tmp_path, CORPUS[:40])],
        options=options(
            tmp_path / "out", vocabulary_type="char",
            exclude=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")),
        ),
    )  # fmt: skip
    assert manifest.excluded_texts == 3
    assert facts_of(dataset_blocks(manifest))["excluded texts"] == 3


def test_validation_corpus_keeps_all_pairs_that_can_be_encoded(tmp_path):
    """Filters do not apply to this corpus, so that its scores can be compared with others."""
    kept = [
        ("the same", "the same"),
        ("12 34 56", "78"),
        ("a", "ein ganz und gar nicht so kurzer satz wie der andere"),
        ("the device", "das GerÃ¤t"),
        ("a dog", "собака"),
        ("yes", "ja"),
        ("yes", "ja"),
        CORPUS[0],
        ("faded " * 5, "bad " * 60),  # more characters than the training filter allows
    ]
    held_out = write_pairs(
        tmp_path, [*kept, ("", "leer"), ("empty", "\u200b"), ("faded " * 90, "bad")], name="held"
    )
    with Path(held_out.target_path).open("ab") as target:
        target.write(b"nicht \xff\n")
    with Path(held_out.source_path).open("ab") as source:
        source.write(b"not\n")
    filters = {
        "max_length_ratio": 3.0, "min_letters": 0.25, "reject_identical": True, "min_tokens": 3,
        "reject_mojibake": True, "target_script": "Latin", "source_script": "Latin",
        "min_characters": 4, "max_characters": 60, "max_tokens": 320,
    }  # fmt: skip
    manifest = preprocess(
        sources=[write_pairs(tmp_path, CORPUS)],
        validation_sources=[held_out],
        options=options(
            tmp_path / "out", vocabulary_type="char", filters=filters, deduplicate="source",
        ),
    )  # fmt: skip
    assert manifest.splits["validation"].records == len(kept)
    train, held = manifest.sources
    assert (held["read"], held["kept"]) == (len(kept) + 4, len(kept))
    assert held["rejected"] == {
        "empty_source": 1, "empty_target": 1, "invalid_utf8": 1, "too_long": 1,
    }  # fmt: skip
    assert train["rejected"]["held_out_pair"] == 1
    assert table_of(dataset_blocks(manifest), "corpus")[1][1:] == [True, 13, 9]
    assert len({str(record) for record in records(tmp_path / "out", "validation")}) == 8
