"""Pairs in other languages and unrelated pairs are rejected, and all pairs are accounted for."""

from __future__ import annotations

import collections
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from block_reading import facts_of
from corpora import ONE_THREAD, TWO_THREADS, digest, rejected, run_preprocess, write_pairs

import tt.pipelines.preprocess as package
from tt.model.dataset.manifest import MANIFEST_FILE
from tt.model.errors import UserError
from tt.model.inspection.dataset import alignment_section
from tt.pipelines.preprocess import judging
from tt.pipelines.preprocess import manifest as manifests
from tt.pipelines.preprocess.description import dataset_blocks
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest

GERMAN = [
    "Zwei junge Männer stehen vor einem großen Haus und reden miteinander.",
    "Die alte Frau kauft auf dem Markt frisches Gemüse und ein paar Äpfel.",
    "Morgen fahren wir mit dem Zug in die Stadt, wenn das Wetter schön ist.",
]
PARTLY_GERMAN = "The sign in front of the house says: Bitte den Rasen nicht betreten, danke."


@pytest.fixture(scope="module")
def pairs():
    """Return 600 pairs of the embedded corpus."""
    path = Path(package.__file__).parent / "english_spanish_train.tsv.gz"
    lines = gzip.decompress(path.read_bytes()).decode().split("\n")
    found = [tuple(line.split("\t")[:2]) for line in lines if line.count("\t") == 1]
    return random.Random(1).sample([pair for pair in found if len(pair[0]) > 25], 600)


@pytest.fixture(scope="module")
def noisy(pairs, tmp_path_factory):
    """Write the pairs and 15 German sources, 15 German targets and 60 unrelated targets."""
    chance = random.Random(2)
    german = [f"{text} {i}" for i in range(10) for text in GERMAN]
    noise = [(text, pair[1]) for text, pair in zip(german[:15], pairs, strict=False)]
    noise += [(pair[0], text) for text, pair in zip(german[15:], pairs, strict=False)]
    noise += [(pairs[i][0], pairs[i + 300][1]) for i in range(60)]
    rows = [*pairs, *noise]
    chance.shuffle(rows)
    return write_pairs(tmp_path_factory.mktemp("noisy"), rows).paths()


def plan(files, output, **options):
    names = {"source_language": "en", "target_language": "es"} | options
    request = PreprocessRequest(
        source=files[:1], target=files[1:],
        options=PreprocessOptions(output=str(output), **{"vocabulary_size": 500} | names),
    )  # fmt: skip
    return request.plan().plan


def reasons(output):
    return collections.Counter(row["reason"] for row in rejected(output))


def test_pairs_in_other_languages_are_rejected_by_default(noisy, tmp_path):
    manifest = run_preprocess(plan(noisy, tmp_path / "a"), beam_arguments=ONE_THREAD)
    found = reasons(tmp_path / "a")
    assert found["wrong_language_source"] == found["wrong_language_target"] == 15
    assert manifest.lines_read == manifest.pairs_kept + sum(manifest.rejected.values()) == 690
    assert manifest.options["language_filter"] is True
    assert manifest.alignment is None
    for row in rejected(tmp_path / "a"):
        side = row["reason"].removeprefix("wrong_language_")
        assert side not in ("source", "target") or row[side].rpartition(" ")[0] in GERMAN


def test_languages_are_not_compared_without_codes_or_without_the_filter(noisy, tmp_path):
    for name, options in (
        ("off", {"language_filter": False}),
        ("codes", {"source_language": "", "target_language": ""}),
    ):
        made = run_preprocess(plan(noisy, tmp_path / name, **options), beam_arguments=ONE_THREAD)
        assert made.options["language_filter"] is False
        assert not {*made.rejected} & {"wrong_language_source", "wrong_language_target"}


def test_an_error_after_most_pairs_are_rejected_counts_the_reasons(noisy, tmp_path):
    made = plan(noisy, tmp_path / "a", vocabulary_size=20_000)
    with pytest.raises(UserError, match=r"cannot train .* The filters rejected .*wrong_language"):
        run_preprocess(made, beam_arguments=ONE_THREAD)


def test_unknown_languages(noisy, tmp_path):
    codes = {"source_language": "tok", "target_language": "es"}
    [notice] = plan(noisy, tmp_path / "a", **codes).notices
    assert notice == "the language filter is off, because tt cannot detect both tok and es"
    with pytest.raises(UserError, match=r"a `source_language` that tt can detect. Received: tok"):
        plan(noisy, tmp_path / "a", language_filter=True, **codes)


def test_mixed_pairs_are_counted_and_kept(pairs, tmp_path):
    mixed = (PARTLY_GERMAN, "El cartel dice que no se debe pisar el césped.")
    files = write_pairs(tmp_path, [*pairs[:100], mixed]).paths()
    manifest = run_preprocess(plan(files, tmp_path / "out"), beam_arguments=ONE_THREAD)
    assert manifest.pairs_kept == 101
    assert manifest.sources[0]["mixed_languages"] == 1
    shown = facts_of(dataset_blocks(manifest))["pairs with mixed languages"]
    assert shown == "1 of 101"


@pytest.fixture(scope="module")
def aligned(noisy, tmp_path_factory):
    """A dataset without pairs below a threshold, and its manifest."""
    output = tmp_path_factory.mktemp("aligned") / "data"
    planned = plan(noisy, output, alignment_filter="0.3")
    return output, run_preprocess(planned, beam_arguments=ONE_THREAD)


def test_unrelated_pairs_are_rejected_by_a_threshold(aligned):
    output, made = aligned
    found = reasons(output)
    assert 40 <= found["not_aligned"] <= 65
    assert made.lines_read == made.pairs_kept + sum(made.rejected.values()) == 690
    assert made.alignment["threshold"] == 0.3
    assert sum(made.alignment["counts"][:26]) == found["not_aligned"]
    _, table, examples = alignment_section(made).blocks
    assert sum(row[1] for row in table.rows) == sum(made.alignment["counts"])
    assert examples.blocks[0].rows


def test_a_threshold_of_zero_is_a_threshold(noisy, tmp_path):
    planned = plan(noisy, tmp_path / "a", alignment_filter="0")
    found = judging.judge_pairs(["The dog sleeps."], ["El tren llega tarde."], plan=planned)
    assert not np.isnan(found.cosines).any()


def test_a_share_is_rejected_the_same_way_by_any_number_of_workers(noisy, tmp_path):
    for name, threads in (("one", ONE_THREAD), ("two", TWO_THREADS)):
        planned = plan(noisy, tmp_path / name, alignment_filter="10%")
        made = run_preprocess(planned, beam_arguments=threads)
        compared = sum(made.alignment["counts"])
        assert made.rejected["not_aligned"] == pytest.approx(compared / 10, abs=2)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    ours, theirs = (
        json.loads((tmp_path / name / MANIFEST_FILE).read_text()) for name in ("one", "two")
    )
    assert ours["alignment"] == theirs["alignment"]


def test_truncated_judgments_are_made_again(noisy, aligned, tmp_path, monkeypatch):
    class KilledError(Exception):
        pass

    def fail(*args, **kwargs):
        raise KilledError

    options = {"alignment_filter": "0.3"}
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "check_splits", fail)
        with pytest.raises(Exception, match="KilledError"):
            run_preprocess(plan(noisy, tmp_path / "a", **options), beam_arguments=ONE_THREAD)
    paths = [*(tmp_path / "a").glob("_work/*/judged-*")]
    assert paths
    for path in paths:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    run_preprocess(plan(noisy, tmp_path / "a", **options), beam_arguments=ONE_THREAD)
    assert digest(tmp_path / "a") == digest(aligned[0])


@pytest.mark.parametrize("value", ["0%", "100%", "nan", "2", "two", ""])
def test_wrong_filters(value):
    with pytest.raises(UserError, match=r"`alignment_filter` must be a share of the pairs"):
        PreprocessOptions(output="a", alignment_filter=value)


def test_a_validation_split_without_related_pairs_is_an_error(pairs, tmp_path):
    rows = [(source, pairs[400 + i][1]) for i, (source, _) in enumerate(pairs[500:530])]
    files = write_pairs(tmp_path, rows).paths()
    planned = plan(files, tmp_path / "a", alignment_filter="0.9", vocabulary_size=200)
    with pytest.raises(UserError, match=r"no text to train|Relax `alignment_filter`"):
        run_preprocess(planned, beam_arguments=ONE_THREAD)
