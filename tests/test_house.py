"""Rules for the code. Each test reads all files and lists every violation."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from product_messages import snapshot
from slow_tests import LONG, LONGEST, RELEASE

from tt.cli.flags_of_fields import FIELD
from tt.cli.main import load_command
from tt.cli.shared_options import COMMANDS

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path for package in ("cli", "model", "pipelines") for path in (ROOT / package).rglob("*.py")
)
PACKAGES = [path.parent for path in FILES if path.name == "__init__.py"]
MOST_LINES = 500
MOST_CLASS_LINES = 280


def name_of(path):
    return str(path.relative_to(ROOT))


def test_init_docstrings_list_all_modules_of_their_packages():
    wrong = []
    for package in PACKAGES:
        tree = ast.parse((package / "__init__.py").read_text("utf-8"))
        lines = (ast.get_docstring(tree) or "").splitlines()
        named = [line.split()[0] for line in lines[2:] if line and not line.startswith(" ")]
        there = [
            path.stem
            for path in package.iterdir()
            if not path.name.startswith("_")
            and (path.suffix == ".py" or (path.is_dir() and any(path.iterdir())))
        ]
        if sorted(named) != sorted(there) or len(tree.body) != 1:
            wrong.append(f"{name_of(package)}: {sorted({*named} ^ {*there})}, or more than a text")
    assert not wrong, "\n".join(wrong)


def test_files_and_classes_are_short():
    wrong = []
    for file in FILES:
        text = file.read_text("utf-8")
        if len(text.splitlines()) > MOST_LINES:
            wrong.append(f"{name_of(file)} has {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.end_lineno - node.lineno >= MOST_CLASS_LINES:
                wrong.append(f"{name_of(file)}: {node.name} has {node.end_lineno - node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_folders_of_tests_match_folders_of_code():
    own = ("bench", "compare", "engines", "mutants", "support")
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/*/**/test_*.py")
    }
    missing = [each for each in folders if each.parts[0] not in own and not (ROOT / each).is_dir()]
    assert not missing


def test_listed_slow_test_modules_exist():
    listed = (*LONG, *LONGEST, *RELEASE)
    missing = [module for module in listed if not (ROOT / "tests" / module).is_file()]
    assert not missing


def test_pyproject_lists_every_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    assert listed == [".".join(("tt", *package.relative_to(ROOT).parts)) for package in PACKAGES]


def names_in(module):
    """Return the names that a module defines or imports, or the modules of a package."""
    path = ROOT.joinpath(*module.split("."))
    if path.is_dir():
        return {each.stem for each in path.iterdir()}
    names = set()
    for node in ast.parse(path.with_suffix(".py").read_text("utf-8")).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for each in targets for name in ast.walk(each) if hasattr(name, "id")}
        elif hasattr(node, "name"):
            names.add(node.name)
    return names


def test_imports_of_scripts_exist():
    """No other test runs most benchmarks, because they take minutes."""
    wrong = []
    for folder in ("bench", "compare", "engines", "mutants", "support"):
        for script in (ROOT / "tests" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(script.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tt."):
                    names = names_in(node.module.removeprefix("tt."))
                    missing = {each.name for each in node.names} - names
                    wrong += [f"{name_of(script)}: no {node.module}.{each}" for each in missing]
    assert not wrong, "\n".join(wrong)


FORMATS = {  # their content is YAML, XML and examples of spans, not a sentence for users
    "cli/commands/init.py", "model/text/spans.py", "pipelines/memory/tmx.py",
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
    wrong = []
    for section in re.split(r"\n(?=\S)", snapshot().strip()):
        path, *lines = section.splitlines()
        for line in () if path in FORMATS else lines:
            text = re.sub(r"\{[^{}]*\}", "{}", line)
            unknown = {found[1] for found in FIELD.finditer(text)} - names - NO_OPTIONS
            bare = {first or second for first, second in NAME.findall(FIELD.sub("", text))} & names
            if unknown or bare:
                wrong.append(f"{path}: no option {unknown}, or no backticks around {bare}: {line}")
    assert not wrong, "\n".join(wrong)
