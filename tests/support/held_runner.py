"""Runners for `--runner=held_runner.NAME`, which accept a job but do not run it."""

from __future__ import annotations

from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState


class HeldResult(PipelineResult):
    """A job that runs until it is canceled; the attributes of its class determine the outcome."""

    ends_as = PipelineState.CANCELLED  # None: the job never ends
    refuses: Exception | None = None
    cancelled = 0

    def __init__(self):
        super().__init__(PipelineState.RUNNING)

    def job_id(self):
        return "held-1"

    def wait_until_finish(self, duration=None):
        raise KeyboardInterrupt

    def cancel(self):
        type(self).cancelled += 1
        if self.refuses:
            raise self.refuses
        if self.ends_as:
            self._state = self.ends_as


class HeldRunner(PipelineRunner):
    """A runner whose wait is interrupted by Ctrl-C."""

    def run_pipeline(self, pipeline, options):
        return HeldResult()


class TemplateRunner(PipelineRunner):
    """A runner that starts no job, like Dataflow's when a Flex Template is launched."""

    def run_pipeline(self, pipeline, options):
        return DataflowPipelineResult(None, self, options)
