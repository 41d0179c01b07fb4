"""Call a model on many sources, and find the sources at which it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_Source = TypeVar("_Source")
_Result = TypeVar("_Result")
PROBE = "a"  # a text that shows whether the machine is at fault if all texts fail


def call_on_parts(
    function: Callable[[list[_Source]], list[_Result]],
    sources: list[_Source],
    *,
    is_input_error: Callable[[Exception], bool],
    probe: Callable[[], object] = lambda: None,
) -> list[_Result | Exception]:
    """Call a function on all sources, and bisect the sources if it raises an error.

    If k of n sources fail, this takes about k log n calls.

    Args:
      function: Returns one result per source, in order.
      sources: The sources.
      is_input_error: Returns whether a source can have caused an error.
      probe: Makes the same call with a harmless source. If all sources fail, and this call fails as
        well, the machine is at fault, and the job can succeed elsewhere.

    Returns:
      For each source, its result, or the error that it causes.

    Raises:
      Exception: An error that no source can have caused, or the first error if the probe fails.
      RuntimeError: The function returned a wrong number of results.

    >>> def invert(numbers):
    ...     return [1 / number for number in numbers]
    >>> call_on_parts(invert, [1, 2, 0, 4], is_input_error=lambda error: True)
    [1.0, 0.5, ZeroDivisionError('division by zero'), 0.25]
    """

    def bisect(some: list[_Source]) -> list[_Result | Exception]:
        if not some:
            return []
        try:
            results = function(some)
        except Exception as error:
            if not is_input_error(error):
                raise
            if len(some) == 1:
                return [error]
            middle = len(some) // 2
            return bisect(some[:middle]) + bisect(some[middle:])
        if len(results) != len(some):
            raise RuntimeError(f"{len(some)} sources gave {len(results)} results")
        return [*results]

    found = bisect(sources)
    errors = [each for each in found if isinstance(each, Exception)]
    if errors and len(errors) == len(found):
        try:
            probe()
        except Exception as error:
            if not is_input_error(error):
                raise
            raise errors[0] from error
    return found


def one_line(error: Exception) -> str:
    r"""Return an error's type and the first line of its message.

    >>> one_line(ValueError("bad shape\nat line 1")), one_line(KeyError())
    ('ValueError: bad shape', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def encode_text(text: str | bytes | None) -> bytes | None:
    """Return the bytes of a text.

    A lone surrogate gives bytes that are not UTF-8, so that only this text fails later.
    """
    return text.encode(errors="surrogatepass") if isinstance(text, str) else text
