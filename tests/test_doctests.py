"""The examples in docstrings are correct."""

import doctest
import importlib
import pkgutil

import pytest

import tt.model
import tt.pipelines


def modules_with_examples():
    for package in (tt.model, tt.pipelines):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            text = module.module_finder.find_spec(module.name, None).loader.get_source(module.name)
            if ">>> " in text:
                yield module.name


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_are_correct(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
