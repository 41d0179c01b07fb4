"""The flags that say where a job runs, and on what machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from model.errors import UserError, require
from pipelines.runners.machines import Accelerator, has_bucket

DATAFLOW, FLINK = "dataflow", "flink"
_SHORT_NAMES = {DATAFLOW: "DataflowRunner", FLINK: "FlinkRunner"}

# The runners that an option is for; `worker_image` is for all but this machine's.
_FOR = {
    **dict.fromkeys(
        ("project", "region", "staging", "max_workers", "machine_type", "accelerator", "spot"),
        DATAFLOW,
    ),
    "flink_master": FLINK,
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
            Accelerator.parse(self.accelerator)

    def arguments(self, beam: Sequence[str] = ()) -> tuple[str, ...]:
        """Returns Beam's own flags: those of these options, then the given ones, which win.

        Raises:
          UserError: There is no such runner, or an option does not go with it or with another.
        """
        given = {argument.partition("=")[0] for argument in beam}
        made = []
        if self.runner is not None and "--runner" not in given:
            made.append(f"--runner={_SHORT_NAMES.get(self.runner.lower(), self.runner)}")
        kind = _find_kind([*made, *beam], is_own_flag=bool(made))
        self._check(kind, beam=beam)
        for names, values in (*self._flags(), *self._image_flags(kind, beam=beam)):
            if not given & set(names):
                made += values
        return (*made, *beam)

    def _check(self, kind: str | None, *, beam: Sequence[str]) -> None:
        for name, wanted in _FOR.items():
            if getattr(self, name) not in (None, False) and kind != wanted:
                shown = _given_runner(beam) or self.runner or "this machine"
                raise UserError(
                    f"`{name}` is for `runner={wanted}`, and the runner is {shown}: choose that "
                    "runner, or leave it out"
                )
        if self.worker_image is not None and kind is None:
            raise UserError(
                "`worker_image` is for workers of other machines, and this machine's need none: "
                "choose a `runner`, or leave it out"
            )
        if self.spot and self.accelerator is not None:
            raise UserError(
                "`spot` is Dataflow's Flexible Resource Scheduling, which has no GPUs: leave out "
                "one of it and `accelerator`"
            )

    def _flags(self) -> Iterator[tuple[Sequence[str], list[str]]]:
        """Yields names of Beam's, any of which stands for an option, and what is given for it."""
        for name, value, *others in (
            ("--project", self.project),
            ("--region", self.region),
            ("--temp_location", self.staging and f"{self.staging.rstrip('/')}/temp"),
            ("--staging_location", self.staging and f"{self.staging.rstrip('/')}/staging"),
            ("--max_num_workers", self.max_workers),
            ("--machine_type", self.machine_type, "--worker_machine_type"),
            ("--flexrs_goal", "COST_OPTIMIZED" if self.spot else None),
            ("--flink_master", self.flink_master),
        ):
            if value is not None:
                yield (str(name), *map(str, others)), [f"{name}={value}"]

    def _image_flags(
        self, kind: str | None, *, beam: Sequence[str]
    ) -> Iterator[tuple[Sequence[str], list[str]]]:
        """Yields as `_flags`, for the image.

        Raises:
          UserError: Beam's flags ask for workers that have no image.
        """
        if self.worker_image is None:
            return
        if kind == DATAFLOW:
            yield ("--sdk_container_image",), [f"--sdk_container_image={self.worker_image}"]
            return
        from pipelines.runners.workers import DOCKER, find_environment

        own = ("--environment_config", "--environment_options")
        environment = find_environment(beam)
        if environment != DOCKER and not {each.partition("=")[0] for each in beam} & set(own):
            raise UserError(
                f"`worker_image` is for workers in containers, and --environment_type is "
                f"{environment}: leave out one of them"
            )
        yield ("--environment_type", *own), [f"--environment_type={DOCKER}"]
        yield own, [f"--environment_config={self.worker_image}"]


def _given_runner(beam: Sequence[str]) -> str | None:
    """Returns the runner that Beam's own flags name, as they name it."""
    from apache_beam.options.pipeline_options import StandardOptions

    from pipelines.runners.beam_options import parse_arguments

    runner = parse_arguments(beam).view_as(StandardOptions).runner
    return None if runner is None else str(runner)


def _find_kind(arguments: Sequence[str], *, is_own_flag: bool) -> str | None:
    """Returns "dataflow", "flink", the name of another runner, or None if it is this machine's.

    Raises:
      UserError: There is no such runner, or Beam cannot read a flag.
    """
    from pipelines.runners.beam_options import LOCAL_RUNNERS, check_runner, find_runner_name

    check_runner(arguments, is_own_flag=is_own_flag)
    name = find_runner_name(arguments)
    if name in LOCAL_RUNNERS:
        return None
    return next((kind for kind in (DATAFLOW, FLINK) if kind in name), name)
