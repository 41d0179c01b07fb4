"""What a job is reckoned to take, by hand and from the figures that the documents have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.transformer.config import PRESETS
from pipelines.remote import estimates
from pipelines.remote.estimates import (
    Estimate,
    count_layer_weights,
    count_slots,
    count_workers,
    estimate_preprocess,
    estimate_translation,
)
from pipelines.runners.beam_options import describe_arguments

MEASUREMENTS = (Path(__file__).parents[3] / "docs/measurements.md").read_text("utf-8")
DATAFLOW = ("--runner=DataflowRunner", "--machine_type=n2-standard-8")


def translation(**changes):
    tiny = count_layer_weights(PRESETS["tiny"])
    asked = {
        "characters": 61 * 504 * 3600.0, "layer_weights": tiny, "beam_size": 1, "files": 10,
        "units": 100, "is_remote": True,
    }  # fmt: skip
    return estimate_translation(**(asked | changes))


def test_the_figures_are_those_of_the_documents():
    rates = estimates._SENTENCES_PER_SECOND
    for name, (greedy, beam) in rates.items():
        for search, rate in (("greedy", greedy), ("beam 4", beam)):
            assert f"\n| {name}, {search} | {rate} |" in MEASUREMENTS
        assert estimates._LAYER_WEIGHTS[name] == count_layer_weights(PRESETS[name])
    [row] = re.findall(r"one core, all default filters and scripts \| ([\d,]+) ", MEASUREMENTS)
    assert int(row.replace(",", "")) == estimates._PAIRS_PER_SECOND


def test_the_work_of_a_translation_grows_with_text_model_and_beam():
    hour = translation()
    assert hour.core_seconds == pytest.approx(3600)
    assert hour.basis.endswith("(tiny, greedy, docs/measurements.md#translation-speed-the-decoder)")
    assert translation(characters=61 * 504).core_seconds == pytest.approx(1)
    assert translation(beam_size=4).core_seconds == pytest.approx(3600 * 504 / 178)
    assert translation(beam_size=8).core_seconds == pytest.approx(2 * 3600 * 504 / 178)
    base = translation(layer_weights=count_layer_weights(PRESETS["base"]))
    assert base.core_seconds == pytest.approx(3600 * 504 / 22)
    big = translation(layer_weights=count_layer_weights(PRESETS["big"]))
    assert big.core_seconds / base.core_seconds == pytest.approx(4)
    assert big.basis.endswith(", times 4 for this model and search")


def test_what_was_not_measured_is_not_reckoned():
    gpu = translation(has_accelerator=True)
    assert gpu.core_seconds is None
    assert gpu.describe(DATAFLOW, price_per_hour=3) == [
        "requests: about 1,346 to the object store, if none fails",
        "time: not reckoned, as no GPU has been measured",
    ]
    assert translation(layer_weights=None).basis == "no model of this kind has been measured"


def test_units_that_are_part_of_a_file_take_more_requests():
    assert translation(divided=0).requests == 26 + 2 * 10 + 13 * 100
    assert translation(divided=40).requests == 26 + 2 * 10 + 13 * 100 + 3 * 40


def test_the_work_of_a_dataset_is_that_of_its_texts():
    small = {"files": 2, "units": 3, "shards": 4}
    found = estimate_preprocess(text_bytes=392 * 27_527 * 60, **small, is_remote=False)
    assert found.core_seconds == pytest.approx(60)
    assert found.requests is None
    remote = estimate_preprocess(text_bytes=1, **small, is_remote=True)
    assert remote.requests == 50 + 10 * 2 + 7 * 4 + 3 * (24 + 4)
    in_place = estimate_preprocess(text_bytes=1, **small, is_remote=True, is_in_place=True)
    assert in_place.requests == 50 + 13 * 2 + 7 * 4 + 3 * (15 + 4)


def test_an_estimate_is_told_with_workers_and_money():
    job = Estimate(core_seconds=16 * 3600, basis="a figure")
    assert job.describe((*DATAFLOW, "--max_num_workers=4"), price_per_hour=2.5) == [
        "work: about 16:00:00 of one core, reckoned with a figure",
        "time: about 30:00 on 4 workers of 8 cores, without start and end",
        "price: about 1.25, at 2.50 an hour",
    ]
    assert job.describe(["--direct_num_workers=2"])[1] == (
        "time: about 8:00:00 on 2 cores of this machine, without start and end"
    )


def test_workers_are_those_that_beams_flags_name():
    assert count_workers(DATAFLOW) == (1, 8)
    assert count_workers((*DATAFLOW, "--num_workers=3")) == (3, 8)
    assert count_workers(["--runner=FlinkRunner", "--parallelism=6"]) == (6, 1)
    assert count_workers(["--runner=FlinkRunner"]) == (1, 1)
    assert count_workers(["--direct_num_workers=2"]) == (1, 2)


def test_slots_are_workers_times_threads():
    assert count_slots(["--direct_num_workers=2"]) == 2
    assert count_slots(["--runner=FlinkRunner", "--parallelism=6"]) == 6
    assert count_slots((*DATAFLOW, "--max_num_workers=25")) == 25 * 8
    threads = "--number_of_worker_harness_threads=2"  # of a worker with two GPUs
    assert count_slots((*DATAFLOW, "--max_num_workers=25", threads)) == 50
    assert count_slots(["--runner=PortableRunner", "--job_endpoint=h:1"]) == 1


def test_secrets_are_not_shown():
    beam = (
        "--s3_access_key_id=A", "--s3_secret_access_key", "B", "--s3_session_token=C",
        "--azure_connection_string=D", "--region", "r",
    )  # fmt: skip
    assert describe_arguments(beam) == (
        "--s3_access_key_id=*** --s3_secret_access_key=*** --s3_session_token=*** "
        "--azure_connection_string=*** --region r"
    )
    assert describe_arguments([]) == "none"
