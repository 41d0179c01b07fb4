"""The lock of an output folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from model.errors import UserError
from model.folders.lock import lock_folder
from pipelines.storage.paths import is_local

LOCK_FILE = "lock"


def output_error(output: str, error: OSError) -> UserError:
    """Return the error of an output folder that cannot be written."""
    return UserError(
        f"{output} cannot be written: {error.strerror or error}. Choose another `output`"
    )


@contextlib.contextmanager
def lock_output(output: str, *, folder: str) -> Iterator[bool]:
    """Keep other runs on this machine out of an output folder; yield whether that is certain.

    Object stores have no locks.

    Args:
      output: The output folder.
      folder: The folder of the job's own files, in the output folder.

    Raises:
      UserError: Another run works in the folder, or the folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        is_alone = False
        if is_local(output):
            try:
                is_alone = stack.enter_context(
                    lock_folder(
                        f"{output}/{folder}", name=LOCK_FILE, remedy="choose another `output`"
                    )
                )
            except OSError as error:
                raise output_error(output, error) from error
        yield is_alone
