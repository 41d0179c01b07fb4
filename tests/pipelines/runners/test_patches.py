"""Attributes that are others while blocks run."""

import types

import pytest

from pipelines.runners.patches import Patch


def test_the_last_of_blocks_that_overlap_puts_the_attribute_back():
    owner = types.SimpleNamespace(name="beam")
    patch = Patch(owner, "name", lambda before: f"not {before}")
    first, second = patch(), patch()
    first.__enter__()
    second.__enter__()
    assert owner.name == "not beam"
    first.__exit__(None, None, None)
    assert owner.name == "not beam"
    second.__exit__(None, None, None)
    assert owner.name == "beam"
    with patch():
        assert owner.name == "not beam"
    assert owner.name == "beam"


def test_a_block_that_fails_puts_it_back():
    owner = types.SimpleNamespace(name="beam")
    with pytest.raises(KeyError), Patch(owner, "name", str.upper)():
        raise KeyError
    assert owner.name == "beam"
