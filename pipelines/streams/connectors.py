"""Placeholder."""

from typing import Any
from pipelines.runners.beam_options import is_dataflow


def is_elsewhere(arguments: Any) -> bool:
    return is_dataflow(arguments)


def check_runner(*a: Any, **k: Any) -> Any: ...
def with_hints(*a: Any, **k: Any) -> Any: ...
def build(*a: Any, **k: Any) -> Any: ...
