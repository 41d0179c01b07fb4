"""Rules for the code: packages list their modules, and files and classes are short."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest
from slow_tests import LONGEST

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(
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
MOST_CLASS_LINES = 280


@pytest.mark.parametrize("package", PACKAGES, ids=str)
def test_init_docstring_lists_all_modules_of_the_package(package):
    tree = ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))
    assert len(tree.body) == 1
    lines = ast.get_docstring(tree).splitlines()
    named = [line.split()[0] for line in lines[2:] if line and not line.startswith(" ")]
    there = {
        path.stem
        for path in (ROOT / package).iterdir()
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


def test_folders_of_tests_match_folders_of_code():
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        if folder.parts and folder.parts[0] not in ("bench", "engines", "mutants", "support"):
            assert (ROOT / folder).is_dir(), path


def test_longest_test_modules_exist():
    for module in LONGEST:
        assert (ROOT / "tests" / module).is_file(), module


SCRIPTS = sorted(
    path.relative_to(ROOT)
    for folder in ("tests/bench", "tests/mutants", "tests/support")
    for path in (ROOT / folder).glob("*.py")
)


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


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_imports_of_scripts_exist(script):
    """No test runs the benchmarks, because they take minutes."""
    for node in ast.walk(ast.parse((ROOT / script).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tt."):
            names = names_in(node.module.removeprefix("tt."))
            missing = {each.name for each in node.names} - names
            assert not missing, f"{node.module} has no {missing}"


def test_pyproject_lists_every_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    assert listed == [".".join(("tt", *package.parts)) for package in PACKAGES]
