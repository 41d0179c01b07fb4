"""Libraries imported without their notices."""

from __future__ import annotations

import gc
import os
import resource
import sys
import tempfile
from pathlib import Path

from cli.errors import SHOWS_NOTICES, say
from model.engines.translator import Engine
from model.errors import UserError
from pipelines.runners.status_line import TimeLine

# The libraries and threads of a small TensorFlow job need more than 4 GiB of addresses. With less,
# threads cannot start, and gRPC then waits forever or ends the process.
_LEAST_ADDRESS_SPACE = 5 << 30


def import_tensorflow(*, uses_onednn: bool | None = None) -> None:
    """Imports TensorFlow without what its C++ prints about missing GPUs; errors are printed.

    Those notices come before TensorFlow's own log level holds, so the file descriptor itself is
    turned away from the screen for the while.

    With oneDNN a training step is up to 1.4 times faster; a search, in which each step has a shape
    of its own, is slower. None leaves it to TensorFlow, which leaves it off without AVX-512 VNNI.
    The user's own choice stands, and with `--verbose` all of it is shown.

    Raises:
      UserError: The process may not use enough memory to load TensorFlow.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESS_SPACE:
        raise UserError(
            f"this process may use {limit / 2**30:.1f} GiB of address space, and TensorFlow needs "
            "at least 5 GiB: run `ulimit -v unlimited` first, or start tt in another shell"
        )
    if uses_onednn is not None:
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(uses_onednn)))
    if SHOWS_NOTICES.get():
        _let_memory_grow()
        return
    sys.stderr.flush()
    screen = os.dup(2)
    with tempfile.TemporaryFile() as notices:
        os.dup2(notices.fileno(), 2)
        try:
            _let_memory_grow()
        except Exception:  # not an interrupt: there the notices are no help
            notices.seek(0)
            os.write(screen, notices.read())
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)


def _let_memory_grow() -> None:
    from model.engines.gpus import let_memory_grow  # imports TensorFlow

    let_memory_grow()  # looks at the devices


def prepare_engine(folder: Path, engine: Engine) -> None:
    """Imports TensorFlow without its notices, if need be, and converts the model for CTranslate2.

    Here and not where it is loaded: that may be in a worker, whose thread would turn all others'
    messages away.

    Raises:
      UserError: The cache for what is converted cannot be written.
    """
    if engine.name == "tensorflow":
        from model.engines.loading import uses_onednn

        import_tensorflow(uses_onednn=uses_onednn(engine))
        warn_of_unused_gpu()
    else:
        from model.engines.loading import convert

        with TimeLine("preparing the model", stream=sys.stderr):
            convert(folder, prepare=import_tensorflow)


def keep_what_is_loaded() -> None:
    """Has the garbage collector leave alone what is loaded by now, once in a process.

    Libraries have 200,000 objects that live as long as it. A job would have them looked through
    again and again, by one thread for which all others wait.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def warn_of_unused_gpu(*, remedy: str = "") -> None:
    """Warns of a GPU that TensorFlow, which is imported, does not find: the CPU computes."""
    from model.engines.gpus import explain_missing_gpu

    reason = explain_missing_gpu()
    if reason:
        say(f"tt: warning: {reason}. The CPU computes{remedy}")
