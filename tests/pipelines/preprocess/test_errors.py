"""Errors for mistakes of users, and the state of the files afterwards."""

import dataclasses
import shutil

import pytest
from corpora import PAIRS, options, preprocess

from tt.model.errors import UserError
from tt.model.text.normalization import TextNormalization
from tt.pipelines.preprocess import encode_steps, merge_steps
from tt.pipelines.preprocess.filters import HELD_OUT_BY
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import Tsv


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("", "x")] * 2, r"vocabulary.spm: .* or rejected \(2 empty_source\). Check"),
        ([("a", "x")] * 3, "no text to train vocabulary.spm: .* all pairs are held out"),
    ],
)
def test_corpus_that_is_too_small(tmp_path, pairs, message):
    tsv = tmp_path / "c.tsv"
    tsv.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    with pytest.raises(UserError, match=message):
        preprocess(
            sources=[Tsv(str(tsv))], options=options(tmp_path / "out", vocabulary_type="char")
        )


KEPT = TextNormalization(clean_whitespace=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": -1}, "`shards` must be 0 to 10,000. Received: -1"),
        ({"vocabulary_size": 3}, "`vocabulary_size` must be 8 to 1,000,000. Received: 3"),
        ({"user_symbols": ("<unk>",)}, "must not be empty or one of <pad>, <unk>"),
        ({"shard_megabytes": 0}, "`shard_megabytes` must be at least 0.001. Received: 0"),
        ({"user_symbols": ("<a>", "<a>")}, "each of `user_symbols` must be unique"),
        ({"validation_fraction": 1.0}, "`validation_fraction` must be 0 to 0.5. Received: 1.0"),
        ({"character_coverage": 0.5}, "`character_coverage` must be 0.9 to 1. Received: 0.5"),
        (
            {"normalization": KEPT, "sentencepiece_rule": "nfkc"},
            "`clean_whitespace=False` needs `sentencepiece_rule=identity`, .* Received: nfkc",
        ),
        ({"vocabulary": ("a", "b", "c")}, "`vocabulary` takes 1 or 2 models"),
        ({"vocabulary_sample": 0}, "`vocabulary_sample` must be at least 1"),
        ({"seed": 2**63}, "`seed` must be -9,2"),
    ],
)
def test_bad_options(changes, message):
    with pytest.raises(UserError, match=message):
        options("out", **changes)


def test_fingerprint_depends_on_input_options_and_versions(tmp_path, monkeypatch, corpus):
    def fingerprint(source=corpus, held_out=(), **changes):
        chosen = options(**({"output": str(tmp_path / "x")} | changes))
        return plan_preprocess(
            sources=[source], validation_sources=held_out, options=chosen
        ).fingerprint

    base = fingerprint()
    assert fingerprint(output=str(tmp_path / "y")) == base
    assert fingerprint(seed=2) != base
    assert fingerprint(normalization=TextNormalization(unicode_form="NFKC")) != base
    assert fingerprint(normalization=TextNormalization(lowercase=True)) != base
    assert fingerprint(dataclasses.replace(corpus, target_path=corpus.source_path)) != base
    assert fingerprint(held_out=[corpus]) != base
    for held_out in ([], [corpus]):
        assert len({fingerprint(held_out=held_out, held_out_by=by) for by in HELD_OUT_BY}) == 4
    monkeypatch.setattr("sentencepiece.__version__", "0.1")
    assert fingerprint() != base


def test_given_vocabulary_excludes_options_for_training(dataset):
    given = (str(dataset / "vocabulary.spm"),)
    assert "vocabulary_size" not in options("x", vocabulary=given).resolved()
    message = r"`vocabulary` .* Received: `vocabulary_size`, `byte_fallback`\. Remove"
    with pytest.raises(UserError, match=message):
        options("x", vocabulary=given, vocabulary_size=64, byte_fallback=True)


def test_vocabulary_requires_its_normalization(tmp_path, corpus, dataset):
    given = (str(dataset / "vocabulary.spm"),)
    other = TextNormalization(unicode_form="NFKC")
    with pytest.raises(UserError, match=r"normalization .*NFC.*Received: .*NFKC.*Change `unicode"):
        preprocess(
            sources=[corpus],
            options=options(tmp_path / "out", vocabulary=given, normalization=other),
        )
    lowercase = TextNormalization(lowercase=True)
    with pytest.raises(UserError, match=r"Received: .*'lowercase': True.*Change .* or `lowercase`"):
        preprocess(
            sources=[corpus],
            options=options(tmp_path / "out", vocabulary=given, normalization=lowercase),
        )


def test_symbol_that_no_text_can_contain_is_an_error():
    lowercase = TextNormalization(lowercase=True)
    with pytest.raises(UserError, match=r"in lower case with .* Received: .*<2DE>"):
        options("x", user_symbols=("<2DE>",), normalization=lowercase)
    options("x", user_symbols=("<2de>",), normalization=lowercase)


def test_output_folder_with_special_characters(tmp_path, corpus):
    output = tmp_path / "what[1]* or?"
    with pytest.raises(UserError, match="the texts allow at most"):
        preprocess(sources=[corpus], options=options(output, vocabulary_size=8000))
    assert not output.exists()
    made = preprocess(sources=[corpus], options=options(output))
    assert preprocess(sources=[corpus], options=options(output)) == made
    with pytest.raises(UserError, match="belongs to another job: `seed` was 1 and is now 5"):
        preprocess(sources=[corpus], options=options(output, seed=5))
    assert not (output / "_work").exists()


@pytest.mark.parametrize("name", ["_Encode", "_Merge"])
def test_output_deleted_while_the_job_runs(tmp_path, monkeypatch, corpus, name):
    step = {"_Encode": encode_steps, "_Merge": merge_steps}[name]
    process = getattr(step, name).process

    def delete_and_process(self, *elements):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        return process(self, *elements)

    with monkeypatch.context() as patch:
        patch.setattr(getattr(step, name), "process", delete_and_process)
        with pytest.raises(UserError) as caught:
            preprocess(sources=[corpus], options=options(tmp_path / "out"))
    assert str(caught.value) == (
        f"{tmp_path}/out was deleted while the job was running. Delete the rest of the folder, and "
        "run the same command again"
    )
    made = preprocess(sources=[corpus], options=options(tmp_path / "out"))
    assert made.pairs_kept == len(PAIRS)
