"""Steps of every job: compare workers with the machine that submitted it, and spread work."""

from __future__ import annotations

import dataclasses
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam

from tt.model.errors import UserError
from tt.model.formats.model_card import versions_of


def versions_here() -> dict[str, str]:
    """Return the versions in this process that a worker and the submitter must share."""
    ours = versions_of(["tt-translate"])["tt-translate"]
    python = ".".join(map(str, sys.version_info[:2]))
    return {"tt": ours, "Beam": beam.__version__, "Python": python}


def check_versions(there: Mapping[str, str]) -> None:
    """Compare the submitter's versions with those of this worker.

    Raises:
      UserError: A version differs.
    """
    here = versions_here()
    differing = [
        f"{name} {here[name]} where the job was submitted by {version}"
        for name, version in there.items()
        if here[name] != version
    ]
    if differing:
        raise UserError(
            f"the worker on {socket.gethostname()} has {' and '.join(differing)}: give it the same "
            "versions, as by an image of deploy/Dockerfile built from what submits the job"
        )


def check_worker(element: Any, *, versions: Mapping[str, str]) -> Any:
    """Return an element unchanged if this worker has the versions of the submitter.

    A worker that differs ends the job by a UserError, before it has done anything.
    """
    check_versions(versions)
    return element


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class Spread(beam.PTransform):
    """Distribute elements to all workers by a GroupByKey.

    Flink omits a `beam.Reshuffle` after another one, as if all elements were distributed already.
    So the first of two is a `Spread`, and the results of few elements are distributed as well.
    """

    key: Callable[[Any], str]  # names an element

    def expand(self, elements: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Wire the transform."""
        return (
            elements
            | "Name" >> beam.WithKeys(self.key).with_output_types(tuple[str, Any])
            | "Group" >> beam.GroupByKey()
            | "Values" >> beam.Values()
            | "Ungroup" >> beam.FlatMap(lambda values: values)
        )
