"""What Google Cloud's names of machines and accelerators say.

https://cloud.google.com/compute/docs/general-purpose-machines and the pages beside it have the
names of machine types, https://cloud.google.com/dataflow/docs/gpu/use-gpus those of accelerators.
"""

from __future__ import annotations

import dataclasses
import re

from model.errors import UserError

# "n2-standard-8", "c4-highmem-96-lssd", and with numbers of one's own "n2-custom-8-16384".
_CORES = re.compile(
    r"[a-z]\d+[a-z]*-(?:standard|highmem|highcpu|ultramem|megamem)-(\d+)(?:-[a-z]+)?"
    r"|(?:[a-z]\d+[a-z]*-)?custom-(\d+)-\d+(?:-ext)?"
)
_OTHERS = {
    "e2-micro": 2, "e2-small": 2, "e2-medium": 2, "f1-micro": 1, "g1-small": 1,
    "a2-highgpu-1g": 12, "a2-highgpu-2g": 24, "a2-highgpu-4g": 48, "a2-highgpu-8g": 96,
    "a2-megagpu-16g": 96, "a2-ultragpu-1g": 12, "a2-ultragpu-2g": 24, "a2-ultragpu-4g": 48,
    "a2-ultragpu-8g": 96, "a3-highgpu-1g": 26, "a3-highgpu-2g": 52, "a3-highgpu-4g": 104,
    "a3-highgpu-8g": 208,
}  # fmt: skip

_ACCELERATOR = re.compile(r"(?P<kind>nvidia-[a-z0-9-]+)(?::(?P<count>[1-9]\d?))?")
_DRIVER = "install-nvidia-driver"


def count_cores(machine_type: str) -> int | None:
    """Returns the virtual cores of a machine type, or None if its name does not tell.

    >>> count_cores("n2-standard-8"), count_cores("n2-custom-6-8192"), count_cores("mine")
    (8, 6, None)
    """
    if found := _CORES.fullmatch(machine_type):
        return int(found[1] or found[2])
    return _OTHERS.get(machine_type)


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
