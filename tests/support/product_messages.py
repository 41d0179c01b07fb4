"""List the messages of the product in one file for reviewers.

`tests/messages.txt` has every error, warning and notice in the code, with `{name}` for inserted
values. `make messages` writes the file, so that a commit shows which messages it changes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = ROOT / "tests/messages.txt"
SQL = re.compile(r"\s*(CREATE|DELETE|INSERT|PRAGMA|SELECT)\b")
LEAST_SPACES = 3  # shorter strings are names, not sentences


def messages_of(source: str) -> Iterator[str]:
    """Yield the sentences of a module, in the order of its lines.

    >>> list(messages_of('raise UserError(f"{path} does not exist. " "Check the path")'))
    ['{path} does not exist. Check the path']
    """
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                skipped.add(first.value)
        if isinstance(node, ast.JoinedStr):
            skipped |= set(ast.walk(node)) - {node}
    found = [
        (node.lineno, node.col_offset, text)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and node not in skipped
        if (text := _text_of(node)).count(" ") >= LEAST_SPACES and not SQL.match(text)
    ]
    for _, _, text in sorted(found):
        yield " ".join(text.split())


def _text_of(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            parts.append(f"{{{ast.unparse(part.value)}}}")
        else:
            parts.append(str(part.value))
    return "".join(parts)


def snapshot() -> str:
    """Return the content of `messages.txt`: the messages below the path of each file."""
    sections = []
    for folder in ("cli", "model", "pipelines"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if lines := list(dict.fromkeys(messages_of(path.read_text("utf-8")))):
                sections.append("\n  ".join([path.relative_to(ROOT).as_posix(), *lines]))
    return "\n".join([*sections, ""])


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), "utf-8")
