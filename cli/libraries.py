"""Libraries imported without their notices."""

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

# The libraries and threads of a small TensorFlow job need more than 4 GiB of addresses. With less,
# threads cannot start, and gRPC then waits forever or ends the process.
_LEAST_ADDRESS_SPACE = 5 << 30


def import_tensorflow(*, uses_onednn: bool | None = None) -> None:
    """Import TensorFlow without the notices of its C++ code about missing GPUs.

    TensorFlow prints these notices before it reads its own log level. Therefore, this function
    redirects the file descriptor of stderr during the import, and prints the notices only if the
    import fails or the user asked for them with `--verbose`.

    With oneDNN a training step is up to 1.4 times faster. A search is slower, because each step has
    a shape of its own. With None, TensorFlow decides: it uses oneDNN only with AVX-512 VNNI. The
    environment variable of a user takes precedence.

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
    from tt.model.engines.machine import let_memory_grow  # imports TensorFlow

    let_memory_grow()  # looks at the devices


def prepare_engine(folder: Path, engine: Engine) -> None:
    """Import TensorFlow without its notices, or convert the model for CTranslate2.

    A worker that loads the model cannot do this, because it would redirect the messages of all
    other threads.

    Raises:
      UserError: The cache for what is converted cannot be written.
    """
    if engine.name == "tensorflow":
        from tt.model.engines.loading import uses_onednn

        import_tensorflow(uses_onednn=uses_onednn(engine))
        warn_of_unused_gpu()
    else:
        from tt.model.engines.loading import convert

        with TimeLine("preparing the model", stream=sys.stderr):
            convert(folder, prepare=import_tensorflow)


def keep_what_is_loaded() -> None:
    """Freeze all loaded objects, once per process.

    Libraries have 200,000 objects that live as long as the process. Otherwise, the garbage
    collector scans them in every collection while all other threads wait.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def warn_of_unused_gpu(*, remedy: str = "") -> None:
    """Warn of a GPU that the imported TensorFlow does not find."""
    from tt.model.engines.machine import explain_missing_gpu

    reason = explain_missing_gpu()
    if reason:
        say(f"tt: warning: {reason}. The CPU computes{remedy}")
