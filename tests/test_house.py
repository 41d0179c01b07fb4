"""Every package lists its modules, and files and classes stay short."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
from slow_tests import LONGEST

ROOT = Path(__file__).parents[1]
ROOMS = sorted(
    path.parent.relative_to(ROOT)
    for package in ("cli", "model", "pipelines")
    for path in (ROOT / package).rglob("__init__.py")
)
FILES = sorted(
    path.relative_to(ROOT)
    for package in ("cli", "model", "pipelines")
    for path in (ROOT / package).rglob("*.py")
)
MOST_LINES = 500
MOST_CLASS_LINES = 250


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_an_init_is_one_docstring_that_names_all_that_is_in_its_folder(room):
    tree = ast.parse((ROOT / room / "__init__.py").read_text("utf-8"))
    assert len(tree.body) == 1
    lines = ast.get_docstring(tree).splitlines()
    named = [line.split()[0] for line in lines[2:] if line and not line.startswith(" ")]
    there = {
        path.stem
        for path in (ROOT / room).iterdir()
        if not path.name.startswith("_")
        and (path.suffix == ".py" or (path.is_dir() and any(path.iterdir())))
    }
    assert sorted(named) == sorted(there)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_files_and_classes_are_short(file):
    text = (ROOT / file).read_text("utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno - node.lineno < MOST_CLASS_LINES, node.name


def test_tests_stand_where_the_code_does():
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        if folder.parts and folder.parts[0] not in ("bench", "engines", "mutants", "support"):
            assert (ROOT / folder).is_dir(), path


def test_the_longest_modules_of_tests_are_there():
    for module in LONGEST:
        assert (ROOT / "tests" / module).is_file(), module


SCRIPTS = sorted(
    path.relative_to(ROOT)
    for folder in ("tests/bench", "tests/mutants", "tests/support")
    for path in (ROOT / folder).glob("*.py")
)


def names_in(module):
    """Returns what a module of ours defines or imports at its top, and the modules in it."""
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


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_what_a_script_imports_of_ours_is_there(script):
    """Benches take minutes: no test runs them."""
    for node in ast.walk(ast.parse((ROOT / script).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in (
            "cli", "pipelines", "model",
        ):  # fmt: skip
            missing = {each.name for each in node.names} - names_in(node.module)
            assert not missing, f"{node.module} has no {missing}"


def test_the_build_lists_every_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    assert listed == [".".join(("tt", *room.parts)) for room in ROOMS]
