"""The options that say where a job runs, and on what machines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tt.model.errors import UserError, require

_SHORT_NAMES = {"dataflow": "DataflowRunner", "flink": "FlinkRunner"}
_ACCELERATOR = re.compile(r"(nvidia-[a-z0-9-]+)(?::([1-9]\d?))?")

# The runner that an option is for.
_FOR = {
    **dict.fromkeys(
        ("project", "region", "staging", "max_workers", "machine_type", "accelerator", "spot"),
        "dataflow",
    ),
    "flink_master": "flink",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """Where a job runs, and on what machines.

    Beam's own flags can say more, and what they say holds.

    Attributes:
      runner: Where the job runs: "dataflow", "flink", or another of Beam's runners by its name. By
        default this machine.
      project: Project of Google Cloud that pays for the job on Dataflow.
      region: Region of the workers on Dataflow, such as europe-west4: that of the data.
      staging: Folder for what Dataflow keeps of a job, gs://BUCKET/FOLDER: its program and parts
        that it makes in between.
      worker_image: Container image of the workers, of deploy/Dockerfile. By default, tt sends
        itself to Dataflow, and each worker installs it for minutes.
      max_workers: Most workers that Dataflow starts; it chooses how many are worth it.
      machine_type: Machine type of the workers on Dataflow, such as n2-standard-8. By default
        n2-standard-4.
      accelerator: GPUs of each worker on Dataflow that translates, such as nvidia-l4, or
        nvidia-tesla-t4:2 for two; an image for GPUs is needed.
      spot: Cheaper machines of Dataflow's Flexible Resource Scheduling, of which a part can be
        taken away at any time; the job starts within six hours.
      flink_master: Where the job manager of Flink listens, as HOST:PORT.
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
        require(
            self.staging is None or has_bucket(self.staging),
            "`staging` must be a folder of Google Cloud Storage, gs://BUCKET/FOLDER",
            self.staging,
        )
        if self.accelerator is not None:
            parse_accelerator(self.accelerator)

    def arguments(self, beam: Sequence[str] = ()) -> tuple[str, ...]:
        """Return Beam's own flags: those of these options, then the given ones, which win.

        Raises:
          UserError: There is no such runner, or an option is for another runner.
        """
        from tt.pipelines.runners.beam_options import LOCAL_RUNNERS, check_runner, find_runner_name

        given = {argument.partition("=")[0] for argument in beam}
        runner = self.runner and _SHORT_NAMES.get(self.runner.lower(), self.runner)
        chosen = [f"--runner={runner}"] if runner and "--runner" not in given else []
        check_runner([*chosen, *beam])
        name = find_runner_name([*chosen, *beam])
        for option, wanted in _FOR.items():
            if getattr(self, option) not in (None, False) and wanted not in name:
                raise UserError(
                    f"`{option}` is for `runner={wanted}`, and the job has another runner: choose "
                    f"that runner, or leave out `{option}`"
                )
        if self.worker_image is not None and name in LOCAL_RUNNERS:
            raise UserError(
                "`worker_image` is for other machines: choose a `runner`, or leave out the image"
            )
        if self.spot and self.accelerator is not None:
            raise UserError("`spot` machines have no GPUs: leave out `spot` or `accelerator`")
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
      UserError: The text is neither a kind nor a kind and a number.
    """
    found = _ACCELERATOR.fullmatch(text)
    if found is None:
        raise UserError(
            "`accelerator` must be the name of a GPU, and their number if there are several, as in "
            f"nvidia-l4 or nvidia-tesla-t4:2. Received: {text}"
        )
    return found[1], int(found[2] or 1)


def has_bucket(folder: str) -> bool:
    """Return whether a folder is on Google Cloud Storage and names a bucket.

    >>> has_bucket("gs://bucket"), has_bucket("gs://"), has_bucket("/tmp")
    (True, False, False)
    """
    scheme, _, rest = folder.partition("://")
    return scheme == "gs" and bool(rest.partition("/")[0])
