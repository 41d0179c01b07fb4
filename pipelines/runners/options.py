"""The options for the runner and the machines of a job."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tt.model.errors import UserError, require

_SHORT_NAMES = {"dataflow": "DataflowRunner", "flink": "FlinkRunner"}
_ACCELERATOR = re.compile(r"(nvidia-[a-z0-9-]+)(?::([1-9]\d?))?")

# The runner that each option needs.
_RUNNER_OF_OPTION = {
    **dict.fromkeys(
        ("project", "region", "staging", "max_workers", "machine_type", "accelerator", "spot"),
        "dataflow",
    ),
    "flink_master": "flink",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """The options for the runner and the machines of a job.

    Beam's own options take precedence over these options.

    Attributes:
      runner: Run the job on dataflow, flink or another Beam runner. By default on this machine.
      project: Run the Dataflow job in this Google Cloud project.
      region: Start the Dataflow workers in this region, such as europe-west4.

        Choose the region of the data.
      staging: Store the program and temporary files of a Dataflow job in gs://BUCKET/FOLDER.
      worker_image: Run the workers in this container image, built from deploy/Dockerfile.

        By default, tt sends itself to Dataflow, and each worker takes minutes to install it.
      max_workers: Start at most N Dataflow workers.
      machine_type: Run the Dataflow workers on this machine type. By default n2-standard-4.
      accelerator: Give each Dataflow worker these GPUs, such as nvidia-l4, or nvidia-l4:2 for two.

        Only workers that translate get GPUs. They need an image for GPUs.
      spot: Use Dataflow's cheaper FlexRS scheduling, which may start the job hours later.

        Flexible Resource Scheduling starts the job within six hours.
      flink_master: Run the job on the Flink cluster whose job manager listens at HOST:PORT.
    """

    runner: str | None = None
    project: str | None = None
    region: str | None = None
    staging: str | None = None
    worker_image: str | None = None
    max_workers: int | None = None
    machine_type: str | None = None
    accelerator: str | None = None
    spot: bool = False
    flink_master: str | None = None

    def __post_init__(self) -> None:
        require(
            self.max_workers is None or self.max_workers >= 1,
            "`max_workers` must be at least 1",
            self.max_workers,
        )
        if self.staging is not None:
            check_staging_folder(self.staging)
        if self.accelerator is not None:
            parse_accelerator(self.accelerator)

    def arguments(self, beam: Sequence[str] = ()) -> tuple[str, ...]:
        """Return Beam's flags: first these options, then the given flags, which take precedence.

        Raises:
          UserError: There is no such runner, or an option needs another runner.
        """
        from tt.pipelines.runners.beam_options import LOCAL_RUNNERS, check_runner, find_runner_name

        given = {argument.partition("=")[0] for argument in beam}
        runner = self.runner and _SHORT_NAMES.get(self.runner.lower(), self.runner)
        chosen = [f"--runner={runner}"] if runner and "--runner" not in given else []
        check_runner([*chosen, *beam])
        name = find_runner_name([*chosen, *beam])
        for option, wanted in _RUNNER_OF_OPTION.items():
            if getattr(self, option) not in (None, False) and wanted not in name:
                raise UserError(
                    f"`{option}` needs `runner={wanted}`, but the job has another runner. Choose "
                    f"that runner, or remove `{option}`"
                )
        if self.worker_image is not None and name in LOCAL_RUNNERS:
            raise UserError(
                "`worker_image` is only for other machines. Set `runner`, or remove `worker_image`"
            )
        if self.spot and self.accelerator is not None:
            raise UserError("`spot` machines have no GPUs. Remove `spot` or `accelerator`")
        made = {
            "--project": self.project,
            "--region": self.region,
            "--temp_location": self.staging and f"{self.staging.rstrip('/')}/temp",
            "--staging_location": self.staging and f"{self.staging.rstrip('/')}/staging",
            "--max_num_workers": self.max_workers,
            "--machine_type": self.machine_type,
            "--flexrs_goal": "COST_OPTIMIZED" if self.spot else None,
            "--flink_master": self.flink_master,
        }
        if "dataflow" in name:
            made["--sdk_container_image"] = self.worker_image
        elif self.worker_image is not None and not given & {
            "--environment_config", "--environment_options",
        }:  # fmt: skip
            made |= {"--environment_type": "DOCKER", "--environment_config": self.worker_image}
        flags = [f"{flag}={value}" for flag, value in made.items() if value is not None]
        return (*chosen, *(each for each in flags if each.partition("=")[0] not in given), *beam)


def parse_accelerator(text: str) -> tuple[str, int]:
    """Return the kind and the number of GPUs, such as ("nvidia-l4", 2) for "nvidia-l4:2".

    Raises:
      UserError: The text has another form.
    """
    found = _ACCELERATOR.fullmatch(text)
    if found is None:
        raise UserError(
            "`accelerator` must be GPU or GPU:NUMBER, such as nvidia-l4 or nvidia-tesla-t4:2. "
            f"Received: {text}"
        )
    return found[1], int(found[2] or 1)


def check_staging_folder(folder: str) -> None:
    """Check that a folder is on Google Cloud Storage and has a bucket.

    >>> check_staging_folder("gs://")
    Traceback (most recent call last):
    tt.model.errors.UserError: `staging` must be a folder on Google Cloud Storage, \
gs://BUCKET/FOLDER. Received: gs://
    """
    rule = "`staging` must be a folder on Google Cloud Storage, gs://BUCKET/FOLDER"
    require(re.match("gs://[^/]", folder) is not None, rule, folder)
