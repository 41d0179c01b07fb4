"""The pipeline between BigQuery tables in docs/how-to/beam.md, as a request to Dataflow."""

from __future__ import annotations

import pytest
from documents import ROOT, blocks_of

ARGUMENTS = (
    "--runner=DataflowRunner", "--project=my-project", "--region=europe-west4",
    "--temp_location=gs://bucket/staging", "--sdk_container_image=image:1",
)  # fmt: skip


@pytest.fixture
def translate_products():
    """The function of the document."""
    [block] = [each for each in blocks_of(ROOT / "docs/how-to/beam.md") if "BigQ" in each.text]
    names = {}
    exec(compile(block.text, str(block), "exec"), names)
    return names["translate_products"]


def test_the_request_reads_translates_and_writes(
    translate_products, object_store, dataflow_service
):
    dataflow_service.is_run = False
    translate_products([*ARGUMENTS, *dataflow_service.arguments])
    names = [step.unique_name for step in dataflow_service.program.components.transforms.values()]
    for step in ("ReadFromBigQuery", "TranslateRows", "WriteToBigQuery/BigQueryBatchFileLoads"):
        assert any(name.startswith(step) for name in names), step
    [pool] = dataflow_service.job.environment.worker_pools
    assert {image.container_image for image in pool.sdk_harness_container_images} == {"image:1"}
