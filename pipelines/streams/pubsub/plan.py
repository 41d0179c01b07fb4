"""Placeholder."""

from typing import Any


def plan_subscription(*a: Any, **k: Any) -> Any: ...
