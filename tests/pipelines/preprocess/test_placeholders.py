"""Placeholders in datasets: their replacement, counts, held-out texts, and reruns."""

import dataclasses
import random

import pytest
from corpora import (
    ONE_THREAD,
    examples,
    options,
    preprocess,
    records,
    rejected,
    sentence,
    texts,
    write_pairs,
)
from toy import texts_of_record

from tt.model.dataset.manifest import DatasetManifest
from tt.model.errors import UserError
from tt.model.text.spans import PLACEHOLDERS
from tt.model.text.vocabulary import UNK_ID, load_vocabularies
from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.plan import plan_preprocess

SPANS = ["{a}", "%s", "<b>", ":hut:"]


def pairs_with_spans(count=300):
    """Return pairs with up to 4 spans on both sides of each, in different orders."""
    chooser = random.Random(5)
    pairs = []
    for i in range(count):
        spans = chooser.sample(SPANS, i % 5)
        source, target = sentence(i).split(), sentence(i)[::-1].split()
        pairs.append((" ".join([*spans, *source]), " ".join([*target, *spans[::-1]])))
    return pairs


PAIRS = pairs_with_spans()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("corpus"), PAIRS)


@pytest.fixture(scope="module")
def dataset(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset")
    preprocess(sources=[corpus], options=options(folder), beam_arguments=ONE_THREAD)
    return folder


def expected_pair(source, target):
    spans = source.split()[:-3]
    for span, placeholder in zip(spans, PLACEHOLDERS, strict=False):
        source, target = source.replace(span, placeholder), target.replace(span, placeholder)
    return source, target


def test_shared_spans_are_placeholders_in_records_and_validation_texts(dataset):
    train, validation = texts(dataset, "train"), texts(dataset, "validation")
    expected = sorted(expected_pair(*pair) for pair in PAIRS)
    assert sorted(train + validation) == expected
    assert [texts_of_record(each) for each in examples(dataset, "validation")] == validation
    vocabulary = load_vocabularies(dataset).source
    assert vocabulary.has_placeholders
    [ids] = vocabulary.encode([f"a{''.join(PLACEHOLDERS)}"])
    pieces = [vocabulary.piece(i) for i in ids]
    assert pieces[-9:-1] == [*PLACEHOLDERS]
    found = {i for pair in records(dataset, "train") for side in pair for i in side}
    assert {*ids[-9:-5]} <= found
    assert UNK_ID not in found


def test_pairs_are_counted_by_their_placeholders(tmp_path, dataset):
    manifest = DatasetManifest.load(dataset)
    for name, split in manifest.splits.items():
        counts = [source.count("⟦") for source, _ in texts(dataset, name)]
        at_least = [sum(count >= k for count in counts) for k in range(1, 5)]
        assert split.placeholder_pairs == at_least[: max(counts)]
    assert sum(split.placeholder_pairs[0] for split in manifest.splits.values()) == 240
    source = write_pairs(tmp_path, PAIRS + PAIRS[::2])  # duplicates are not counted
    again = preprocess(sources=[source], options=options(tmp_path / "out"))
    assert again.rejected == {"duplicate_pair": 150}
    for name, split in again.splits.items():
        assert split.placeholder_pairs == manifest.splits[name].placeholder_pairs


def test_without_protection_nothing_is_replaced(tmp_path, corpus):
    manifest = preprocess(sources=[corpus], options=options(tmp_path, protect=False))
    assert sorted(texts(tmp_path, "train") + texts(tmp_path, "validation")) == sorted(PAIRS)
    assert [split.placeholder_pairs for split in manifest.splits.values()] == [[], []]
    assert not load_vocabularies(tmp_path).source.has_placeholders
    assert not {"protect", "protect_regex"} & manifest.options.keys()


def test_vocabulary_without_placeholders_turns_replacement_off(tmp_path, corpus, dataset):
    known = options(tmp_path / "known", vocabulary=(str(dataset / "vocabulary.spm"),))
    preprocess(sources=[corpus], options=known)
    assert sorted(texts(tmp_path / "known", "train")) == sorted(texts(dataset, "train"))
    plain = options(tmp_path / "plain", protect=False)
    preprocess(sources=[corpus], options=plain)
    given = (str(tmp_path / "plain/vocabulary.spm"),)
    lacking = options(tmp_path / "lacking", vocabulary=given)
    manifest = preprocess(sources=[corpus], options=lacking)
    assert sorted(texts(tmp_path / "lacking", "train")) == sorted(
        texts(tmp_path / "plain", "train")
    )
    # The options equal those from before placeholders existed, so the dataset is finished.
    without = dataclasses.replace(lacking, protect=False)
    assert preprocess(sources=[corpus], options=without) == manifest
    for needed in ({"protect_regex": ("x+",)}, {"placeholder_share": 0.3}):
        with pytest.raises(
            UserError, match=rf"`{next(iter(needed))}` needs tokens .*vocabulary\.spm has"
        ):
            plan_preprocess(sources=[corpus], options=dataclasses.replace(lacking, **needed))


def test_users_patterns_and_symbols_can_be_combined(tmp_path):
    pairs = [(f"{sentence(i)} Rex {{a}}", f"Rex {sentence(i)[::-1]}") for i in range(100)]
    chosen = options(
        tmp_path / "out", protect_regex=("[RL][eu]x",), user_symbols=("{a}", "⟦2⟧"),
        vocabulary_type="char",
    )  # fmt: skip
    plan = plan_preprocess(sources=[write_pairs(tmp_path, pairs)], options=chosen)
    preprocess(sources=plan.sources, options=chosen)
    assert all(
        source.endswith(" ⟦1⟧ {a}") and target.startswith("⟦1⟧ ")
        for source, target in texts(tmp_path / "out", "train")
    )


def test_pairs_that_differ_only_in_their_spans_are_duplicates(tmp_path):
    pairs = [
        (f"{sentence(i)} {10_000 + i}", f"{10_000 + i} {sentence(i)[::-1]}") for i in range(50)
    ]
    more = [
        (f"{sentence(i)} {20_000 + i}", f"{20_000 + i} {sentence(i)[::-1]}") for i in range(30, 40)
    ]  # held out: none
    alone = [(f"{sentence(7)} 30007", sentence(7)[::-1])]  # The number is on one side only.
    source = write_pairs(tmp_path, [*pairs, *more, *alone])
    manifest = preprocess(sources=[source], options=options(tmp_path / "out"))
    assert manifest.rejected == {"duplicate_pair": 10}
    found = texts(tmp_path / "out", "train") + texts(tmp_path / "out", "validation")
    assert alone[0] in found
    assert (f"{sentence(7)} ⟦1⟧", f"⟦1⟧ {sentence(7)[::-1]}") in found


def test_held_out_texts_with_and_without_placeholders_are_not_in_training(tmp_path):
    def pair(i, number, *, words=""):
        return f"{sentence(i)} {words}{number}", f"{number} {words}{sentence(i)[::-1]}"

    training = [pair(i, 10_000 + i) for i in range(100)]
    training.append((training[0][0], "not a number"))  # a pair without placeholder
    # Validation pair 5 has another number on both sides, and pair 6 has another target.
    validation = [*(pair(i, 10_000 + i) for i in range(5)), pair(5, 77_777)]
    validation.append((training[6][0], "no number here"))
    excluded = tmp_path / "excluded.txt"
    excluded.write_text(f"{training[20][0]}\n{training[21][1]}\n{sentence(22)} 99999\n")
    manifest = preprocess(
        sources=[write_pairs(tmp_path, training)],
        validation_sources=[write_pairs(tmp_path, validation, name="validation")],
        options=options(tmp_path / "out", exclude=(str(excluded),)),
    )
    gone = {0, 1, 2, 3, 4, 5, 6, 20, 21, 100}
    assert manifest.rejected == {
        "held_out_pair": 6, "held_out_source": 3, "held_out_target": 1,
    }  # fmt: skip
    assert sorted(row["line"] - 1 for row in rejected(tmp_path / "out")) == sorted(gone)
    assert {source for source, _ in texts(tmp_path / "out", "train")} == {
        f"{sentence(i)} ⟦1⟧" for i in range(100) if i not in gone
    }
    assert texts(tmp_path / "out", "validation").count(("no", "number")) == 0
    lines = {source for source, _ in texts(tmp_path / "out", "validation")}
    assert training[6][0] in lines
    assert f"{sentence(0)} ⟦1⟧" in lines


def test_characters_that_only_placeholders_replace_get_no_token(tmp_path):
    pairs = [(f"{sentence(i)} {{Ж}}", f"{{Ж}} {sentence(i)[::-1]}") for i in range(60)]
    chosen = options(tmp_path / "out", vocabulary_type="char")
    preprocess(sources=[write_pairs(tmp_path, pairs)], options=chosen)
    vocabulary = load_vocabularies(tmp_path / "out").source
    assert vocabulary.find_unknown("Ж")
    assert not vocabulary.find_unknown("⟦1⟧ face")


def test_stray_placeholders_are_rejected(tmp_path):
    pairs = [(sentence(i), sentence(i)[::-1]) for i in range(60)]
    strange = [("a ⟦3⟧ b", "c ⟦3⟧"), ("a ⟦3⟧ d", "c"), ("a", "{x} ⟦1⟧ c")]
    source = write_pairs(tmp_path, [*pairs, *strange])
    manifest = preprocess(sources=[source], options=options(tmp_path / "out"))
    assert manifest.rejected == {"stray_placeholder": 2}
    assert [row["source"] for row in rejected(tmp_path / "out")] == ["a ⟦3⟧ d", "a"]
    found = texts(tmp_path / "out", "train") + texts(tmp_path / "out", "validation")
    assert ("a ⟦1⟧ b", "c ⟦1⟧") in found
    plain = preprocess(sources=[source], options=options(tmp_path / "plain", protect=False))
    assert plain.rejected == {}


def test_filters_apply_to_texts_with_placeholders(tmp_path):
    url = "https://example.com/a-long-address/of/many/letters"
    han = [(f"{chr(0x4E00 + i)}{chr(0x5000 + i)}", sentence(i)) for i in range(30)]
    pairs = [*han, (f"狗 {url}", f"dog {url}"), (url, url), ("dog", "dog x")]
    chosen = dataclasses.replace(
        options(tmp_path / "out", vocabulary_type="char", vocabulary_size=400),
        filters=Filters(source_script="Han", min_letters=0.05, max_length_ratio=0),
    )
    manifest = preprocess(sources=[write_pairs(tmp_path, pairs)], options=chosen)
    assert manifest.rejected == {"identical": 1, "wrong_script_source": 1}
    found = texts(tmp_path / "out", "train") + texts(tmp_path / "out", "validation")
    assert ("狗 ⟦1⟧", "dog ⟦1⟧") in found
