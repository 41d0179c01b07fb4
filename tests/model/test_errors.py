"""Library messages inside the messages of `tt`."""

import ast
from pathlib import Path

import pytest
import tensorflow as tf

from tt.model.errors import first_line, no_access
from tt.model.remote_files import plain_reason

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("message", ["", "\n", " \n\t\n"])
def test_errors_without_a_message_show_their_type(message):
    assert first_line(MemoryError(message)) == "MemoryError"
    assert plain_reason(ValueError(message)) == "ValueError"
    assert plain_reason(tf.errors.InternalError(None, None, message or "{{node a}}"))
    assert "(permission denied)" in str(no_access("run", reason=message))


def test_no_code_indexes_splitlines():
    """`"".splitlines()[0]` raises an IndexError, so code must call `first_line` instead."""
    found = []
    for folder in ("cli", "model", "pipelines"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
                    called = node.value.func
                    is_split = isinstance(called, ast.Attribute) and called.attr == "splitlines"
                    if is_split and ast.unparse(node.slice) == "0":
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
