"""Input that changes after the plan or while the job reads it ends the job with one error line."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import ONE_THREAD, PAIRS, digest, options, preprocess, run_preprocess, write_pairs

from tt.model.errors import UserError
from tt.pipelines.preprocess import encode_steps
from tt.pipelines.preprocess.parquet_columns import ParquetColumns
from tt.pipelines.preprocess.plan import claim_output, plan_preprocess
from tt.pipelines.preprocess.sources import Tsv


def refused(plan):
    with pytest.raises(UserError) as caught:
        run_preprocess(plan, beam_arguments=ONE_THREAD)
    return str(caught.value)


def changed(path):
    return f"{path} has changed since the job was planned. Run the same command again"


def write_parquet(path, pairs):
    source, target = zip(*pairs, strict=True)
    pq.write_table(pa.table({"source": source, "target": target}), path)
    return ParquetColumns(str(path), "source", "target")


def write_tsv(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return Tsv(str(path))


def call_before(monkeypatch, owner, name, change):
    """Replace a function by one that calls `change` first."""
    function = getattr(owner, name)

    def wrapper(*given, **named):
        change()
        return function(*given, **named)

    monkeypatch.setattr(owner, name, wrapper)


def change_at_the_end(monkeypatch, owner, change):
    """Make `read_all` of a source call `change` at its end."""
    read_all = owner.read_all

    def wrapper(self):
        yield from read_all(self)
        change()

    monkeypatch.setattr(owner, "read_all", wrapper)


def test_input_changed_after_the_plan(tmp_path):
    corpus = write_pairs(tmp_path, PAIRS)
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path / "out"))
    write_pairs(tmp_path, PAIRS[:300])
    assert refused(plan) == changed(corpus.source_path)
    assert not (tmp_path / "out").exists()
    Path(corpus.target_path).unlink()
    write_pairs(tmp_path, PAIRS[:200], name="other")
    assert refused(plan) == changed(corpus.source_path)


def test_parquet_file_replaced_by_a_file_of_equal_length(tmp_path, monkeypatch):
    corpus = write_parquet(tmp_path / "a.parquet", PAIRS[:200])
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path / "out"))
    path = tmp_path / "a.parquet"
    call_before(monkeypatch, encode_steps, "encode_unit", lambda: write_parquet(path, PAIRS[200:]))
    assert refused(plan) == changed(corpus.path)
    assert not (tmp_path / "out").exists()


def test_held_out_parquet_file_replaced(tmp_path, monkeypatch, corpus):
    held_out = write_parquet(tmp_path / "a.parquet", PAIRS[:20])
    plan = plan_preprocess(
        sources=[corpus], validation_sources=[held_out], options=options(tmp_path / "out")
    )
    call_before(
        monkeypatch,
        encode_steps,
        "hash_pairs",
        lambda: write_parquet(tmp_path / "a.parquet", PAIRS[20:40]),
    )
    assert refused(plan) == changed(held_out.path)


def test_text_file_gets_other_lines_of_the_same_size_while_it_is_cut(tmp_path, monkeypatch):
    path = tmp_path / "a.tsv"
    corpus = write_tsv(path, PAIRS[:200])
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path / "out"))
    change_at_the_end(monkeypatch, Tsv, lambda: write_tsv(path, PAIRS[200:]))
    assert refused(plan) == changed(path)
    assert not (tmp_path / "out").exists()


def test_chunks_of_a_changed_file_are_deleted(tmp_path, monkeypatch):
    """The user restores the file and its modification time before the second run."""
    path, out = tmp_path / "a.tsv", tmp_path / "out"
    corpus = write_tsv(path, PAIRS[:200])
    stamp = path.stat().st_mtime_ns
    preprocess(sources=[corpus], options=options(tmp_path / "whole"), beam_arguments=ONE_THREAD)
    plan = plan_preprocess(sources=[corpus], options=options(out))
    claim_output(plan)
    with monkeypatch.context() as changing:
        call_before(changing, Tsv, "read_all", lambda: write_tsv(path, PAIRS[200:]))
        assert refused(plan) == changed(path)
    assert not [*out.glob("_work/*/chunk-*"), *out.glob("_work/*/units-*")]
    write_tsv(path, PAIRS[:200])
    os.utime(path, ns=(stamp, stamp))
    assert run_preprocess(plan, beam_arguments=ONE_THREAD).pairs_kept == 200
    assert digest(out) == digest(tmp_path / "whole")


@pytest.mark.parametrize("is_reading", [False, True])
def test_list_of_excluded_texts_changed(tmp_path, monkeypatch, corpus, is_reading):
    excluded = tmp_path / "excluded.txt"
    excluded.write_text(f"{PAIRS[0][0]}\n")
    chosen = options(tmp_path / "out", exclude=(str(excluded),))
    plan = plan_preprocess(sources=[corpus], options=chosen)

    def change():
        excluded.write_text(f"{PAIRS[0][0]}\n{PAIRS[1][0]}\n")

    if is_reading:
        call_before(monkeypatch, encode_steps, "hash_texts", change)
    else:
        change()
    assert refused(plan) == changed(excluded)
    assert not (tmp_path / "out").exists()


def test_given_vocabulary_changed_after_the_plan(tmp_path, corpus, dataset):
    given = tmp_path / "given.spm"
    given.write_bytes((dataset / "vocabulary.spm").read_bytes())
    chosen = options(tmp_path / "out", vocabulary=(str(given),))
    plan = plan_preprocess(sources=[corpus], options=chosen)
    given.write_bytes(b"another")
    assert refused(plan) == changed(given)
    assert not (tmp_path / "out").exists()
