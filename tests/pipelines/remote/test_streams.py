"""What a stream may ask of Flink and of Dataflow, and how it is divided there."""

import pytest

from model.errors import UserError
from pipelines.remote import streams

FLINK = ("--runner=FlinkRunner", "--flink_master=h:1")
DATAFLOW = ("--runner=DataflowRunner", "--region=r")
IMAGE = "--sdk_container_image=image:1"


def check(*arguments, is_kafka=True, config=None, metrics=None):
    return streams.check_options(arguments, is_kafka=is_kafka, config=config, metrics=metrics)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(FLINK, True), (DATAFLOW, True), (("--runner=FnApiRunner",), False), ((), False)],
)
def test_flink_and_dataflow_have_workers_of_their_own(arguments, expected):
    assert streams.is_elsewhere(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "asked", "said"),
    [
        (FLINK, {"metrics": "metrics_port"}, "`metrics_port` is for a stream that this machine"),
        (FLINK, {"is_kafka": False}, "Flink is offered for streams of Kafka alone"),
        (DATAFLOW, {}, "would have no client of Kafka"),
        ((*DATAFLOW, "--flexrs_goal=COST_OPTIMIZED"), {"is_kafka": False}, "for jobs that end"),
    ],
)
def test_what_cannot_work_is_refused(arguments, asked, said):
    with pytest.raises(UserError, match=said):
        check(*arguments, **asked)


def test_who_reads_the_secrets_is_told():
    assert check(*FLINK) == check(*DATAFLOW, is_kafka=False) == []
    [line] = check(*FLINK, config="/etc/kafka")
    assert "/etc/kafka must be in the image or on the machine of each" in line
    [line] = check(*DATAFLOW, IMAGE, config="gs://b/kafka")
    assert line.endswith("the job does not hold it: gs://b/kafka")


def test_shares_go_by_the_slots():
    assert streams.count_shares([*FLINK, "--parallelism=3"]) == 12
    assert streams.count_shares(FLINK) == 4
    assert streams.count_shares(DATAFLOW) == 100


def test_hints_are_of_the_whole_job_and_do_not_replace_the_users():
    def with_hints(*more):
        found = streams.with_hints([*DATAFLOW, *more], model_bytes=lambda: 10, accelerator=None)
        return found[len(DATAFLOW) + len(more) :]

    assert with_hints() == ["--resource_hint=min_ram=3GB"]
    assert with_hints("--resource_hint=min_ram=8GB") == []
    assert with_hints("--resource_hints=cpu_count=2") == ["--resource_hint=min_ram=3GB"]
