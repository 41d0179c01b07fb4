"""Calls a function on a batch; if it raises, bisects to find the failing items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Source = TypeVar("_Source")
_Result = TypeVar("_Result")


def call_on_parts(
    function: Callable[[list[_Source]], list[_Result]],
    sources: list[_Source],
    *,
    is_input_error: Callable[[Exception], bool],
) -> list[_Result | Exception]:
    """Calls a function on all sources; if it raises, on each half of them, and so on.

    With k failing sources among n, this takes about k log n calls; without sources, none.

    Args:
      function: Returns a result for each source, in order.
      sources: Sources to call it on.
      is_input_error: Tells whether a source can have caused an error.

    Returns:
      For each source its result, or the error that it raises by itself.

    Raises:
      Exception: An error that no source can have caused, as it is.
      RuntimeError: The function returned another number of results.

    >>> def invert(numbers):
    ...     return [1 / number for number in numbers]
    >>> call_on_parts(invert, [1, 2, 0, 4], is_input_error=lambda error: True)
    [1.0, 0.5, ZeroDivisionError('division by zero'), 0.25]
    """
    if not sources:
        return []
    try:
        results = function(sources)
    except Exception as error:
        if not is_input_error(error):
            raise
        if len(sources) == 1:
            return [error]
    else:
        if len(results) != len(sources):
            raise RuntimeError(f"{len(sources)} sources gave {len(results)} results")
        return [*results]
    middle = len(sources) // 2
    return [
        result
        for half in (sources[:middle], sources[middle:])
        for result in call_on_parts(function, half, is_input_error=is_input_error)
    ]


def raise_if_not_at_fault(
    results: Sequence[object],
    *,
    probe: Callable[[], object],
    is_input_error: Callable[[Exception], bool],
) -> None:
    """Raises the first error if all results are errors and even a harmless source fails.

    Then the machine is at fault, and the same job can succeed elsewhere.

    Args:
      results: Results of `call_on_parts`.
      probe: Makes the same call with a source that is known to be harmless.
      is_input_error: Tells whether a source can have caused an error.

    Raises:
      Exception: The first error; or the error of the probe, if no source can have caused it.
    """
    errors = [result for result in results if isinstance(result, Exception)]
    if not errors or len(errors) < len(results):
        return
    try:
        probe()
    except Exception as error:
        if not is_input_error(error):
            raise
        raise errors[0] from error


def one_line(error: Exception) -> str:
    r"""Returns an error's type and the first line of its message.

    >>> one_line(ValueError("bad shape\nat line 1")), one_line(KeyError())
    ('ValueError: bad shape', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
