"""Sizes that must not grow with the number of files, units and shards."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import (
    ONE_THREAD,
    TWO_THREADS,
    digest,
    options,
    preprocess,
    rejected,
    run_preprocess,
    sentence,
)

from tt.model.dataset.manifest import TRAIN
from tt.pipelines.jobs.progress import add_counts
from tt.pipelines.preprocess import encode_steps, job
from tt.pipelines.preprocess import plan as preprocess_plan
from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.encoding import UnitStatistics
from tt.pipelines.preprocess.manifest import Totals, arrival_of, check_totals
from tt.pipelines.preprocess.merge_steps import ShardStatistics
from tt.pipelines.preprocess.parquet_columns import ParquetColumns
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import Tsv
from tt.pipelines.runners.runner import make_pipeline


def small_sources(folder):
    """Write 60 TSV and Parquet files of 10 pairs each, with duplicates across the files."""
    sources = []
    for number in range(60):
        pairs = [(sentence(i), sentence(i)[::-1]) for i in range(number * 7, number * 7 + 10)]
        pairs[number % 10] = ("", "x")
        if number % 3:
            path = folder / f"{number}.tsv"
            path.write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
            sources.append(Tsv(str(path)))
        else:
            path = folder / f"{number}.parquet"
            columns = zip(*pairs, strict=True)
            pq.write_table(pa.table(dict(zip("st", columns, strict=True))), path)
            sources.append(ParquetColumns(str(path), "s", "t"))
    return sources


def test_many_small_files_share_units(tmp_path, monkeypatch):
    encoded = []
    encode = encode_steps.encode_unit

    def counted(unit, *given, **named):
        encoded.append(unit)
        return encode(unit, *given, **named)

    monkeypatch.setattr(encode_steps, "encode_unit", counted)
    sources = small_sources(tmp_path)
    given = {
        "sources": sources[:45], "validation_sources": sources[45:], "beam_arguments": ONE_THREAD
    }  # fmt: skip
    apart = preprocess(**given, options=options(tmp_path / "apart"))
    assert len(encoded) == 60
    encoded.clear()
    monkeypatch.setattr(preprocess_sizes, "_MOST_UNITS", 5)
    monkeypatch.setattr(preprocess_sizes, "_LEAST_GROUP_BYTES", 1)
    # With many units, the samples of the vocabulary are also merged in parts.
    together = preprocess(**given, options=options(tmp_path / "out"))
    assert len(encoded) < 60
    assert together == apart
    files = [digest(tmp_path / name) for name in ("apart", "out")]
    ours = [
        {name: value for name, value in found.items() if not name.startswith("rejected-0")}
        for found in files
    ]
    assert ours[0] == ours[1]
    assert len([name for name in files[1] if name.startswith("rejected-0")]) <= len(encoded)
    rows = [sorted(map(str, rejected(tmp_path / name))) for name in ("apart", "out")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == apart.lines_read - apart.pairs_kept > 60


def test_vocabulary_of_many_units_is_the_same(tmp_path, monkeypatch, corpus):
    """There are 80 units, two vocabularies, a sample of the lines, and side inputs to wait for."""
    chosen = {"shared_vocabulary": False, "vocabulary_sample": 150}
    preprocess(sources=[corpus], options=options(tmp_path / "few", **chosen))
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 5)
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path / "many", **chosen))
    run_preprocess(plan, beam_arguments=TWO_THREADS)
    few, many = digest(tmp_path / "few"), digest(tmp_path / "many")
    assert few == many


@pytest.mark.parametrize(
    ("text_bytes", "pairs"),
    [
        (1 << 20, 16_384),
        (20 << 30, 214_749),  # 1,000 units
        (10 << 40, 1_048_576),
    ],
)
def test_units_grow_with_the_input_up_to_a_limit(text_bytes, pairs):
    assert preprocess_sizes.unit_pairs_of(text_bytes) == pairs


def test_size_of_the_pipeline_does_not_depend_on_the_number_of_files(tmp_path, corpus):
    """The pipeline with 100,000 sources is built but not run."""
    sizes = []
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path / "out"))
    for count in (1, 100_000):
        many = [Tsv(f"gs://bucket/a-folder-of-the-corpus/part-{i:06d}.tsv") for i in range(count)]
        identities = [{"name": source.path, "files": [source.path]} for source in many]
        whole = preprocess_plan.PreprocessPlan(
            **vars(plan)
            | {
                "sources": many, "identities": identities, "groups": range(count),
                "source_count": count, "held_out_from": count,
            }
        )  # fmt: skip
        pipeline = make_pipeline(ONE_THREAD)
        job._add_steps(pipeline, whole)
        program = pipeline.to_runner_api()
        sizes.append(len(program.SerializeToString()))
        # Flink drops the second of two consecutive reshuffles, and `Create` adds its own.
        reshuffles = {step.unique_name for step in program.components.transforms.values()
                      if step.spec.urn == "beam:transform:reshuffle:v1"}  # fmt: skip
        own = {name for name in reshuffles if not name.endswith("MaybeReshuffle/Reshuffle")}
        assert own == {"List units/Spread units"}
    assert sizes[1] < sizes[0] + 1000
    assert sizes[1] < 200_000


# Accounting.


def whole_totals(plan):
    """Return consistent totals of one unit and its shards."""
    totals = Totals("")
    add_counts(totals.counts["cut"], arrival_of(0, 0, [[0, 9]]))
    totals.add(UnitStatistics(order=0, index=0, rows=[[0, 9]], rejected=[(0, "x", 4)]))
    for split, spread in plan.splits.items():
        for shard in range(spread.shards):
            kept = {0: 5} if (split, shard) == (TRAIN, 0) else {}
            statistics = ShardStatistics(split=split, shard=shard, kept_by_source=kept)
            totals.add(statistics)
    return totals


def test_lost_and_repeated_units_shards_and_pairs_are_errors(tmp_path, corpus):
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path / "out"))
    job.files.make_folder(plan.work.path)
    job.claim_output(plan)
    check_totals(plan, whole_totals(plan))

    totals = whole_totals(plan)
    add_counts(totals.counts["cut"], arrival_of(0, 1, [[0, 9]]))
    with pytest.raises(RuntimeError, match="1 encoded units arrived, which differ from the 2 cut"):
        check_totals(plan, totals)
    add_counts(totals.counts["encoded"], arrival_of(0, 2, [[0, 9]]))  # equal number, other unit
    with pytest.raises(RuntimeError, match="2 encoded units arrived, which differ from the 2 cut"):
        check_totals(plan, totals)

    totals = whole_totals(plan)
    with pytest.raises(RuntimeError, match=r"shards arrived twice: \[1\]"):
        totals.add(ShardStatistics(split=TRAIN, shard=1))
    del totals.splits[TRAIN].sizes[1]
    with pytest.raises(RuntimeError, match=r"shards \[0, 2\] of train arrived instead of 3"):
        check_totals(plan, totals)

    totals = whole_totals(plan)
    totals.counts["sources"][0]["kept"] += 1
    with pytest.raises(RuntimeError, match=r"corpus\.de: 9 pairs read, but 6 kept and 4 rejected"):
        check_totals(plan, totals)
