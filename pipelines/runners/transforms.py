"""Steps of every job: check the versions of the workers, and distribute elements to them."""

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
    """Return the versions that a worker must share with the machine that submitted the job."""
    ours = versions_of(["tt-translate"])["tt-translate"]
    python = ".".join(map(str, sys.version_info[:2]))
    return {"tt": ours, "Beam": beam.__version__, "Python": python}


def check_versions(there: Mapping[str, str]) -> None:
    """Compare this worker's versions with the versions of the submitting machine.

    Raises:
      UserError: A version differs.
    """
    here = versions_here()
    differing = [
        f"{name} {here[name]} instead of {version}"
        for name, version in there.items()
        if here[name] != version
    ]
    if differing:
        raise UserError(
            f"the worker on {socket.gethostname()} has {' and '.join(differing)}. Install "
            "the versions of the machine that submits the job, for example with an image that you "
            "build there from deploy/Dockerfile"
        )


def check_worker(element: Any, *, versions: Mapping[str, str]) -> Any:
    """Return an element unchanged, if this worker has the versions of the submitting machine.

    Otherwise, a UserError ends the job before this worker has done any work.
    """
    check_versions(versions)
    return element


@dataclasses.dataclass(kw_only=True, eq=False)  # not frozen: Beam sets attributes of transforms
class Spread(beam.PTransform):
    """Distributes elements to all workers, with a GroupByKey.

    If a `beam.Reshuffle` follows another `beam.Reshuffle`, Flink omits the second one, even if the
    steps between them turn a few elements into many. With a `Spread` first, Flink executes both.
    """

    key: Callable[[Any], str]  # returns the name of an element

    def expand(self, elements: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Wire the transform."""
        return (
            elements
            | "Name" >> beam.WithKeys(self.key).with_output_types(tuple[str, Any])
            | "Group" >> beam.GroupByKey()
            | "Ungroup" >> beam.FlatMapTuple(lambda name, values: values)
        )
