"""The cores of Google Cloud's machine types, and accelerators.

See https://cloud.google.com/compute/docs/general-purpose-machines for machine types, and
https://cloud.google.com/dataflow/docs/gpu/use-gpus for accelerators.
"""

from __future__ import annotations

import dataclasses
import re

from model.errors import UserError

# The last number of a machine type, such as "n2-standard-8" and "n2-custom-6-8192".
_CORES = re.compile(r"(?:^|-)(?:custom-)?(\d+)(?:-\d+)?(?:-[a-z]+)?$")
_ACCELERATOR = re.compile(r"(?P<kind>nvidia-[a-z0-9-]+)(?::(?P<count>[1-9]\d?))?")
_DRIVER = "install-nvidia-driver"


def count_cores(machine_type: str) -> int | None:
    """Return the virtual cores of a machine type; None if its name does not contain the number.

    >>> count_cores("n2-standard-8"), count_cores("n2-custom-6-8192"), count_cores("e2-medium")
    (8, 6, None)
    """
    found = _CORES.search(machine_type)
    return int(found[1]) if found else None


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """GPUs of a worker."""

    kind: str  # as Compute Engine calls it, "nvidia-l4"
    count: int  # of each worker

    @classmethod
    def parse(cls, text: str) -> Accelerator:
        """Reads "nvidia-l4" or "nvidia-l4:2".

        Raises:
          UserError: It is neither.
        """
        found = _ACCELERATOR.fullmatch(text)
        if found is None:
            raise UserError(
                "`accelerator` must be the name of a GPU, and their number if there are several, "
                f"as in nvidia-l4 or nvidia-tesla-t4:2. Received: {text}"
            )
        return cls(found["kind"], int(found["count"] or 1))

    @property
    def hint(self) -> str:
        """What Beam's resource hint says of it.

        >>> Accelerator("nvidia-l4", 1).hint
        'type:nvidia-l4;count:1;install-nvidia-driver'
        """
        return f"type:{self.kind};count:{self.count};{_DRIVER}"


def has_bucket(folder: str) -> bool:
    """Says whether a folder is of Google Cloud Storage, with the name of a bucket.

    >>> has_bucket("gs://bucket"), has_bucket("gs://"), has_bucket("/tmp")
    (True, False, False)
    """
    scheme, _, rest = folder.partition("://")
    return scheme == "gs" and bool(rest.partition("/")[0])
