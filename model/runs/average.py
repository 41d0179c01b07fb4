"""What is asked for where checkpoints are averaged; no TensorFlow until they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from model.errors import UserError, require, require_one_of
from model.folders.whole import is_free


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageRequest:
    """Checkpoints of a run to average into a model folder.

    Attributes:
      run: Run folder, from `tt train`.
      output: Model folder to write.
      of: Checkpoints to average: "last" or "best".
      count: Number of checkpoints, the newest or the best. By default all that are kept.
    """

    run: str
    output: str
    of: str = "last"
    count: int | None = None

    def __post_init__(self) -> None:
        require_one_of("`of`", self.of, ("last", "best"))
        require(
            self.count is None or self.count >= 1,
            f"`count` must be at least 1. Received: {self.count}",
        )

    def check(self) -> None:
        """Checks what can be known before TensorFlow is imported.

        Raises:
          UserError: There is no run on this machine, or the output is there.
        """
        check_is_run(self.run)
        if not is_free(Path(self.output)):
            raise UserError(f"{self.output} is there already: name another folder with `output`")

    def write(self) -> list[str]:
        """Writes the model folder, and returns the names of the checkpoints.

        Raises:
          UserError: The run has not so many checkpoints, one cannot be read, or the output cannot
            be written.
        """
        self.check()
        from model.runs.averaging import export_average

        return export_average(self.run, Path(self.output), which=self.of, count=self.count)


def check_is_run(path: str) -> None:
    """Checks that a folder is a run, if it lies on this machine.

    Raises:
      UserError: It is none.
    """
    if "://" not in path and not Path(path, "config.json").exists():
        raise UserError(
            f"no run at {path} (it has no config.json): name the run folder of a `tt train`"
        )
