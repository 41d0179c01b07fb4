"""Check that a job may use an output folder, and lock the folder."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tt.model.errors import UserError
from tt.model.folders import lock_folder
from tt.model.json_files import describe_differences, first_few
from tt.model.storage.locks import lock_object
from tt.model.storage.paths import is_local

LOCK_FILE = "lock"
_REMEDY = "choose another `output`"
_MODEL = "model_fingerprint"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobRecord:
    """The job that a folder belongs to, or the job that a user requests.

    Attributes:
      fingerprint: A digest of everything that affects the output. A run can resume only a job with
        the same fingerprint.
      options: The options that the fingerprint covers.
      inputs: The identity of each input, by the name of the input.
    """

    fingerprint: str
    options: Mapping[str, Any]
    inputs: Mapping[str, Any]

    def compare(self, requested: JobRecord) -> list[str]:
        """Return a phrase for each difference; [] if the requested job resumes this job."""
        if self.fingerprint == requested.fingerprint:
            return []
        before, after = dict(self.options), dict(requested.options)
        found = []
        if before.get(_MODEL) != after.get(_MODEL):
            found.append("the model has changed")
            for options in (before, after):
                for name in (_MODEL, "limits"):  # the limits belong to the model
                    options.pop(name, None)
        found += describe_differences(before, after)
        changes = []
        for name in {**self.inputs, **requested.inputs}:
            old, new = self.inputs.get(name), requested.inputs.get(name)
            if old is None:
                changes.append(f"the input {name} is new")
            elif old != new:
                changes.append(f"the input {name} {'is missing' if new is None else 'has changed'}")
        found += first_few(changes, noun="inputs")
        return found or ["other inputs, or another version of tt or of its libraries"]


def check_claim(
    output: str,
    *,
    saved: JobRecord | None,
    requested: JobRecord,
    has_work: bool = True,
    foreign: Sequence[str] = (),
    remedy: str,
) -> bool:
    """Check that a job can use an output folder; return whether it resumes the folder's job.

    Args:
      output: The output folder.
      saved: The job that the folder belongs to; None if the folder has no record of a job.
      requested: The job that the user requests.
      has_work: Whether the saved job has written a part of its output.
      foreign: Files in the folder that the requested job must not touch unless it resumes.
      remedy: A phrase that tells the user how to use the folder for the requested job.

    Raises:
      UserError: The folder belongs to another job, or contains other files.
    """
    differences = saved.compare(requested) if saved else []
    if differences and has_work:
        raise UserError(
            f"the output folder {output} belongs to another job: {'; '.join(differences)}. Run "
            f"that job's command, choose another `output`, or {remedy}"
        )
    if saved and not differences:
        return True
    if foreign:
        more = ", ..." if len(foreign) > 1 else ""
        raise UserError(
            f"the output folder {output} contains other files ({foreign[0]}{more}). Choose an "
            "empty or a new folder"
        )
    return False


def output_error(output: str, error: OSError) -> UserError:
    """Return the error for an output folder that cannot be written."""
    return UserError(
        f"{output} cannot be written: {error.strerror or error}. Choose another `output`"
    )


@contextlib.contextmanager
def lock_output(output: str, *, folder: str) -> Iterator[bool]:
    """Lock an output folder against other runs; yield whether the file system supports locks.

    Args:
      output: The output folder.
      folder: The name of the folder with the job's own files, in the output folder.

    Raises:
      UserError: Another run uses the folder, or the folder cannot be written.
    """
    if not is_local(output):
        path = f"{output}/{folder}/{LOCK_FILE}"
        with lock_object(path, folder=f"{output}/{folder}", remedy=_REMEDY) as is_exclusive:
            yield is_exclusive
        return
    with contextlib.ExitStack() as stack:
        lock = lock_folder(f"{output}/{folder}", name=LOCK_FILE, remedy=_REMEDY)
        try:
            is_exclusive = stack.enter_context(lock)
        except OSError as error:
            raise output_error(output, error) from error
        yield is_exclusive
