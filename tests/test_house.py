"""The tree tells the story: rooms of few files, each named by its folder."""

from __future__ import annotations

import ast
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
DATA = ("pipelines/english_spanish/lexicon.py",)
MOST_LINES = 450
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


@pytest.mark.parametrize("room", [room for room in ROOMS if len(room.parts) > 1], ids=str)
def test_a_room_has_4_to_10_files(room):
    assert 4 <= len([file for file in FILES if file.parent == room]) - 1 <= 10


@pytest.mark.parametrize("file", FILES, ids=str)
def test_files_and_classes_are_short(file):
    text = (ROOT / file).read_text("utf-8")
    if str(file) in DATA:
        return
    assert len(text.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno - node.lineno < MOST_CLASS_LINES, node.name


def test_tests_stand_where_the_code_does():
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        if folder.parts and folder.parts[0] not in ("bench", "mutants", "support"):
            assert (ROOT / folder).is_dir(), path


def test_the_longest_modules_of_tests_are_there():
    for module in LONGEST:
        assert (ROOT / "tests" / module).is_file(), module
