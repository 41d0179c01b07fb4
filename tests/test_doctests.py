"""The examples in docstrings are correct."""

import doctest
import importlib
import pkgutil

import pytest

import tt.model
import tt.pipelines


def modules_with_examples(package):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        text = module.module_finder.find_spec(module.name, None).loader.get_source(module.name)
        if ">>> " in text:
            yield module.name


@pytest.mark.parametrize("package", [tt.model, tt.pipelines], ids=lambda package: package.__name__)
def test_examples_in_docstrings_are_correct(package):
    names = list(modules_with_examples(package))
    wrong = [name for name in names if doctest.testmod(importlib.import_module(name)).failed]
    assert len(names) > 10
    assert not wrong
