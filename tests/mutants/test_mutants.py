"""The tables of mutants match the code. `make mutants` runs the mutants."""

from __future__ import annotations

import ast
import functools

import pytest
from mutants.table import ROOT, load_tables

MUTANTS = load_tables()


def test_there_are_at_least_80_different_mutants():
    assert len(MUTANTS) >= 80
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    changes = {(mutant.file, mutant.pattern, mutant.replacement) for mutant in MUTANTS}
    assert len(changes) == len(MUTANTS)


def test_mutants_change_code_and_select_existing_tests():
    wrong = []
    for mutant in MUTANTS:
        before, tree = file_and_tree(mutant.file)
        try:
            if ast.dump(ast.parse(mutant.apply(before))) == tree:
                wrong.append(f"{mutant.name}: the code does not change")
        except ValueError as error:
            wrong.append(str(error))
        for test in mutant.tests:
            file, _, function = test.partition("::")
            if function and function not in functions_of(file):
                wrong.append(f"{mutant.name}: there is no {test}")
    assert not wrong, "\n".join(wrong)


@functools.cache
def file_and_tree(file):
    text = (ROOT / file).read_text("utf-8")
    return text, ast.dump(ast.parse(text))


@functools.cache
def functions_of(file):
    nodes = ast.parse((ROOT / file).read_text("utf-8")).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_pattern_that_occurs_twice_is_an_error():
    mutant = MUTANTS[0]
    with pytest.raises(ValueError, match=r"has the pattern 2 times, not once$"):
        mutant.apply(2 * mutant.pattern)
