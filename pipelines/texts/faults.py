"""A call over many sources, one of which may be at fault: it alone shall fail."""

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
    """Calls a function of all sources, and where it raises, of each half of them, and so on.

    With k sources at fault among n that is in the order of k log n calls; of nothing it is none.

    Args:
      function: Returns a result for each source, in order.
      sources: What it is called on.
      is_input_error: Says whether an error can be the fault of a source.

    Returns:
      For each source its result, or the error that it raises by itself.

    Raises:
      Exception: An error that is no fault of a source, as it is.
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
    """Raises the first error where all results are errors and a harmless source fails as well.

    Whatever is wrong then, it is no source: the same job can succeed elsewhere.

    Args:
      results: What `call_on_parts` returned.
      probe: Makes the same call of a source that is known to be harmless.
      is_input_error: Says whether an error can be the fault of a source.

    Raises:
      Exception: The first error; or what the probe raised, where that is no fault of a source.
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
