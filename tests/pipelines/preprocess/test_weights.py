"""Corpora with a weight: the sample of pairs, and the counts."""

from __future__ import annotations

import pyarrow.dataset
import pytest
from block_reading import facts_of
from corpora import ONE_THREAD, PAIRS, options, records, write_pairs

from tt.model.errors import UserError
from tt.model.text.vocabulary import load_vocabularies
from tt.pipelines.preprocess.request import PreprocessRequest

FEW = PAIRS[:50]
MANY = PAIRS[50:]


@pytest.fixture(scope="module")
def fifth(texts, tmp_path_factory):
    """A dataset with a fifth of a corpus: its folder, its manifest, its pairs, and its job."""
    output = tmp_path_factory.mktemp("fifth") / "dataset"
    return output, *make(texts, output, "many=0.2")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The corpus strings of two corpora and of held-out pairs."""
    folder = tmp_path_factory.mktemp("texts")
    parts = {"few": FEW, "many": MANY, "held": [(f"held {i}", f"out {i}") for i in range(5)]}
    return {
        name: "+".join(write_pairs(folder, pairs, name=name).paths())
        for name, pairs in parts.items()
    }


def plan(texts, output, *weights, threads=ONE_THREAD):
    return PreprocessRequest(
        corpora=(f"few={texts['few']}", f"many={texts['many']}"), validation=(texts["held"],),
        weights=weights, options=options(output), beam_arguments=tuple(threads),
    ).plan()  # fmt: skip


def make(texts, output, *weights, threads=ONE_THREAD):
    """Make a dataset; return its manifest, its pairs as texts, and the job."""
    job = plan(texts, output, *weights, threads=threads)
    manifest = job.run()
    vocabularies = load_vocabularies(output)
    sides = zip(*records(output, "train"), strict=True)
    sources, targets = (
        side.decode([list(ids) for ids in rows])
        for side, rows in zip((vocabularies.source, vocabularies.target), sides, strict=True)
    )
    return manifest, {*zip(sources, targets, strict=True)}, job


def test_share_of_a_corpus_is_kept_and_the_rest_is_counted(fifth, texts, tmp_path):
    output, manifest, kept, job = fifth
    assert {*FEW} <= kept
    few, many, _ = manifest.sources
    assert "weight" not in few
    assert (few["kept"], few["rejected"]) == (50, {})
    assert many["weight"] == 0.2
    assert many["rejected"] == {"not_sampled": 350 - many["kept"]}
    assert len(kept) == 50 + many["kept"]
    # The number is binomial (350 pairs, 0.2): a mean of 70 and a standard deviation of 7.5.
    assert 40 < many["kept"] < 100
    assert "many = " in (line := facts_of(job.describe())["source 2"])
    assert line.endswith("(weight 0.2)")
    rejected = pyarrow.dataset.dataset(sorted(map(str, output.glob("rejected-*"))))
    rows = rejected.to_table().to_pylist()
    assert {row["reason"] for row in rows} == {"not_sampled"}
    assert {row["corpus"] for row in rows} == {"many"}
    assert {MANY[row["line"] - 1] for row in rows} == {*MANY} - kept
    assert {(row["source"], row["target"]) for row in rows} == {(None, None)}  # without texts

    # A larger share contains the smaller share.
    _, half, _ = make(texts, tmp_path / "half", "many=0.5", threads=["--direct_num_workers=2"])
    assert kept < half


def test_weight_changes_the_dataset_but_a_weight_of_1_does_not(fifth, texts):
    output, manifest, _, _ = fifth
    with pytest.raises(UserError, match=r"the input many has changed"):
        make(texts, output, "many=0.3")
    whole = plan(texts, output, "many=1").plan.fingerprint
    assert whole != manifest.fingerprint
    assert plan(texts, output).plan.fingerprint == whole


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (("many=2",), r"above 0 and at most 1.*Received: 'many=2'"),
        (("many=nan",), "Received: 'many=nan'"),
        (("few=0.1", "few=0.2"), "has few twice"),
        (("none=0.5",), r"training corpora are few, many\. Check the name, or"),
    ],
    ids=str,
)
def test_bad_weights_are_errors(texts, tmp_path, weights, message):
    with pytest.raises(UserError, match=message):
        make(texts, tmp_path / "dataset", *weights)
    assert not (tmp_path / "dataset").exists()
