"""Sizes that must not grow with the number of files, units and shards."""

import functools
import pickle

import numpy as np
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
from tt.pipelines.jobs.running import AddUp
from tt.pipelines.preprocess import encode_steps, job
from tt.pipelines.preprocess import plan as preprocess_plan
from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.encoding import UnitStatistics
from tt.pipelines.preprocess.manifest import Totals, arrival_of, check_totals
from tt.pipelines.preprocess.merge_steps import ShardStatistics
from tt.pipelines.preprocess.parquet_columns import ParquetColumns
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import Tsv
from tt.pipelines.preprocess.units import Part, Unit
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


@pytest.mark.parametrize("arguments", [ONE_THREAD, TWO_THREADS], ids=["one", "two"])
def test_many_small_files_share_units(tmp_path, monkeypatch, arguments):
    encoded = []
    encode = encode_steps.encode_unit

    def counted(unit, *given, **named):
        encoded.append(unit)
        return encode(unit, *given, **named)

    monkeypatch.setattr(encode_steps, "encode_unit", counted)
    sources = small_sources(tmp_path)
    given = {"sources": sources[:45], "validation_sources": sources[45:]}
    apart = preprocess(**given, options=options(tmp_path / "apart"), beam_arguments=arguments)
    assert [len(unit.parts) for unit in encoded] == [1] * 60
    encoded.clear()
    monkeypatch.setattr(preprocess_sizes, "_MOST_UNITS", 5)
    monkeypatch.setattr(preprocess_sizes, "_LEAST_GROUP_BYTES", 1)
    # With many units, the samples of the vocabulary are also merged in parts.
    together = preprocess(**given, options=options(tmp_path / "out"), beam_arguments=arguments)
    # There are up to twice as many groups, each cut at a change between text and Parquet.
    assert len({unit.order for unit in encoded}) <= 10
    assert len(encoded) < 60
    assert sorted(part.order for unit in encoded for part in unit.parts) == list(range(60))
    assert {unit.is_held_out for unit in encoded if unit.parts[-1].order < 45} == {False}
    assert {unit.is_held_out for unit in encoded if unit.parts[0].order >= 45} == {True}
    assert {part.order >= 45 for unit in encoded if unit.is_held_out for part in unit.parts} == {
        True
    }
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


@pytest.mark.parametrize(
    ("sizes", "held_out_from", "groups"),
    [
        ([5] * 10, 10, list(range(10))),  # few sources, so each forms a group
        ([1] * 24, 24, [i // 2 * 2 for i in range(24)]),
        ([1] * 24, 3, [0, 0, 2, *[3 + i // 2 * 2 for i in range(21)]]),
        ([0] * 12, 12, [0] * 12),
        ([100, *[1] * 20], 21, [0, *[1] * 12, *[13] * 8]),
    ],
)
def test_groups_of_sources(monkeypatch, sizes, held_out_from, groups):
    monkeypatch.setattr(preprocess_sizes, "_MOST_UNITS", 10 if len(sizes) < 24 else 12)
    monkeypatch.setattr(preprocess_sizes, "_LEAST_GROUP_BYTES", 2)
    assert preprocess_sizes.group_sources(sizes, held_out_from=held_out_from) == groups


def test_tiny_sources_share_units_of_a_minimum_size():
    """A thousandth of the input would be too small, so a group has about 1.6 MB at least."""
    groups = preprocess_sizes.group_sources([54] * 60_000, held_out_from=60_000)
    assert groups[::30_340] == [0, 30_340]
    assert len(set(groups)) == 2


@pytest.mark.parametrize("arguments", [ONE_THREAD, TWO_THREADS], ids=["one", "two"])
def test_vocabulary_of_many_units_is_the_same(tmp_path, monkeypatch, corpus, arguments):
    """There are 80 units, two vocabularies, a sample of the lines, and side inputs to wait for."""
    chosen = {"shared_vocabulary": False, "vocabulary_sample": 150}
    preprocess(sources=[corpus], options=options(tmp_path / "few", **chosen))
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 5)
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path / "many", **chosen))
    run_preprocess(plan, beam_arguments=arguments)
    few, many = digest(tmp_path / "few"), digest(tmp_path / "many")
    assert few == many


@pytest.mark.parametrize(
    ("text_bytes", "pairs"),
    [
        (1 << 20, 16_384),
        (1 << 30, 131_072),
        (20 << 30, 214_749),  # 1,000 units
        (100 << 30, 1_048_576),
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


# Sums of all statistics.

SOURCES = 1000


def shard_statistics(number):
    return ShardStatistics(
        split=TRAIN,
        shard=number,
        records=SOURCES,
        source_tokens=10 * number,
        target_tokens=5,
        longest=number,
        source_lengths=[1, number],
        placeholder_pairs=[3],
        kept_by_source=dict.fromkeys(range(SOURCES), 1),
        duplicates_by_source={7: 2},
        size=100 + number,
    )


def unit_statistics(number):
    return UnitStatistics(
        order=number, index=0, rows=[[number, 10]], rejected=[(number, "too_long", number % 2)]
    )


def cut_unit(number):
    return Unit(order=number, index=0, parts=(Part(order=number, first_row=0, rows=10),))


@pytest.fixture
def sum_statistics(tmp_path, corpus):
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path / "out", shards=64))
    return AddUp(functools.partial(Totals, plan.duplicate_reason))


def test_size_of_statistics_does_not_grow_with_shards_and_units(sum_statistics):
    sizes = {}
    for count in (1, 64):
        totals = sum_statistics.create_accumulator()
        for number in range(count):
            totals = sum_statistics.add_input(totals, shard_statistics(number))
            totals = sum_statistics.add_input(totals, cut_unit(number))
            totals = sum_statistics.add_input(totals, unit_statistics(number))
        sizes[count] = len(pickle.dumps(totals))
    assert sizes[64] < sizes[1] + 64 * 32, "only the sizes of the shards are added"
    assert sizes[64] < 5 * 8 * SOURCES


def test_size_of_a_units_statistics_does_not_grow_with_the_sources():
    totals = Totals("duplicate_pair")
    totals.add(unit_statistics(99_999))
    assert len(pickle.dumps(totals)) < 1000


def test_sum_of_statistics_does_not_depend_on_their_distribution(sum_statistics):
    found = [shard_statistics(n) for n in range(64)]
    found += [make(n) for n in range(40) for make in (cut_unit, unit_statistics)]
    chooser = np.random.default_rng(1)
    chooser.shuffle(found)
    parts = [sum_statistics.create_accumulator() for _ in range(5)]
    for i, each in enumerate(found):
        parts[i % 5] = sum_statistics.add_input(parts[i % 5], each)
    totals = sum_statistics.merge_accumulators(pickle.loads(pickle.dumps(parts)))
    assert totals.counts["encoded"] == totals.counts["cut"]
    sources = totals.counts["sources"]
    sums = [sum(each.get(name, 0) for each in sources.values()) for name in ("read", "kept")]
    assert (totals.counts["cut"]["units"], *sums) == (40, 400, 64_000)
    rejected = [sources[order]["rejected"] for order in (0, 1, 7)]
    assert rejected == [{"too_long": 0}, {"too_long": 1}, {"duplicate_pair": 128, "too_long": 1}]
    split = totals.splits[TRAIN]
    assert (split.records, split.source_tokens, split.longest) == (64_000, 20_160, 63)
    assert (split.source_lengths, split.placeholder_pairs) == ([64, 2016], [192])
    assert split.sizes == {number: 100 + number for number in range(64)}


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
