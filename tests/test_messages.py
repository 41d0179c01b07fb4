"""The messages of the product, listed in one file for reviewers.

`messages.txt` has every error, warning and notice in the code, with `{name}` for inserted values.
After a change of messages, write the file again and read the difference:

    .venv/bin/python tests/test_messages.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tt.cli.flags_of_fields import FIELD
from tt.cli.main import load_command
from tt.cli.shared_options import COMMANDS

ROOT = Path(__file__).parents[1]
SNAPSHOT = Path(__file__).with_name("messages.txt")
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


def test_messages_txt_lists_every_message_of_the_code():
    assert SNAPSHOT.read_text("utf-8") == snapshot(), (
        "run `.venv/bin/python tests/test_messages.py` and read the difference"
    )


FORMATS = {  # their content is YAML and XML, not a sentence for users
    "cli/commands/init.py", "pipelines/memory/tmx.py",
}  # fmt: skip
# The program, a method, a setting of Iceberg, and an argument of a function.
NO_OPTIONS = {"tt", "between", "warehouse", "threads"}
NAME = re.compile(r"(?<![\w./-])([a-z]+(?:_[a-z]+)+)\b|\b([a-z_]+)=\w")


def option_names():
    """Return the names of the fields and parameters that are options of a command."""
    names = set()
    for command in map(load_command, COMMANDS):
        fields = getattr(command.callback, "option_fields", {})
        names |= {field.rpartition(".")[2] for field in fields} | fields.keys()
        names |= {parameter.name for parameter in command.params}
    return names


def test_messages_mark_every_field_so_that_commands_can_write_its_flag():
    names = option_names()
    assert len(names) > 100
    for section in re.split(r"\n(?=\S)", snapshot().strip()):
        path, *lines = section.splitlines()
        for line in () if path in FORMATS else lines:
            text = re.sub(r"\{[^{}]*\}", "{}", line)
            fields = {found[1] for found in FIELD.finditer(text)}
            assert fields <= names | NO_OPTIONS, f"{path}: no option has this name: {line}"
            bare = {first or second for first, second in NAME.findall(FIELD.sub("", text))}
            assert not bare & names, f"{path}: write {bare & names} in backticks: {line}"


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), "utf-8")
