"""Imports of large libraries without their log messages."""

from __future__ import annotations

import gc
import os
import resource
import sys
import tempfile
from pathlib import Path

from tt.cli.errors import SHOWS_NOTICES, say
from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.pipelines.runners.status_line import TimeLine

# The libraries and threads of a small TensorFlow job need more than 4 GiB of address space. With
# less, threads cannot start, and gRPC then waits forever or ends the process.
_LEAST_ADDRESS_SPACE = 5 << 30


def import_tensorflow(*, uses_onednn: bool | None = None) -> None:
    """Import TensorFlow without the messages of its C++ code about missing GPUs.

    TensorFlow prints these messages before it reads its own log level. Therefore, this function
    redirects the file descriptor of stderr during the import, and prints the messages only if the
    import fails or the user has given `--verbose`.

    Args:
      uses_onednn: Whether TensorFlow uses oneDNN, unless the user has set TF_ENABLE_ONEDNN_OPTS.
        oneDNN makes training steps up to 1.4 times faster. It makes searches slower, because the
        steps of a search have different shapes. With None, TensorFlow decides, and uses oneDNN only
        on CPUs with AVX-512 VNNI.

    Raises:
      UserError: The process has too little address space for TensorFlow.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESS_SPACE:
        raise UserError(
            f"this process may use only {limit / 2**30:.1f} GiB of address space, but TensorFlow "
            "needs at least 5 GiB. Run `ulimit -v unlimited` first, or use another shell"
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
        except Exception:  # The messages would not explain an interrupt.
            notices.seek(0)
            os.write(screen, notices.read())
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)


def _let_memory_grow() -> None:
    from tt.model.engines.machine import let_memory_grow  # imports TensorFlow

    let_memory_grow()  # also prints messages, because it lists the devices


def prepare_engine(folder: Path, engine: Engine) -> None:
    """Import TensorFlow without its messages, or convert the model for CTranslate2.

    This must happen before workers load the model, because a worker that redirects stderr would
    also redirect the messages of all other threads.

    Raises:
      UserError: The cache for converted models cannot be written.
    """
    if engine.name == "tensorflow":
        from tt.model.engines.loading import uses_onednn

        import_tensorflow(uses_onednn=uses_onednn(engine))
        warn_of_unused_gpu()
    else:
        from tt.model.engines.loading import convert

        with TimeLine("preparing the model", stream=sys.stderr):
            convert(folder, prepare=import_tensorflow)


def freeze_loaded_objects() -> None:
    """Freeze all loaded objects, once per process.

    Libraries create 200,000 objects that live as long as the process. If these objects are not
    frozen, the garbage collector scans them in every collection while all other threads wait.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def warn_of_unused_gpu(*, remedy: str = "") -> None:
    """Print a warning, with a remedy, if the machine has a GPU that TensorFlow does not find."""
    from tt.model.engines.machine import explain_missing_gpu

    reason = explain_missing_gpu()
    if reason:
        say(f"tt: warning: {reason}. tt uses the CPU{remedy}")
