"""Every public class and function checks the names, types and ranges of its arguments."""

import dataclasses
import importlib
import inspect
import re
import types
import typing
from pathlib import Path

import pytest
from fakes import Reverser

from tt.model.engines.translator import Engine
from tt.model.errors import CHOICES, UserError
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_loading import ModelLoader
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.reports.requests import EvaluateRequest
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts
from tt.pipelines.translate.options import TranslateOptions

PAGE = (Path(__file__).parents[1] / "docs/reference/python.md").read_text("utf-8")
# Users do not create these: other objects return them, or users catch them.
RESULTS = {
    "PreprocessJob", "DatasetManifest", "TrainJob", "TranslateJob", "TranslateSummary",
    "TranslatedText", "UserError",
}  # fmt: skip
# TrainRequest.plan() checks these, because it may get a part of the fields.
TRAINING = {"TrainRequest", "TransformerConfig", "TrainingConfig"}
LOAD = ModelLoader("run")
TRANSLATE = TranslateOptions(input="in", output="out")
REQUIRED = {  # valid values of the arguments that have no default
    "PreprocessRequest": {"options": PreprocessOptions(output="dataset")},
    "PreprocessOptions": {"output": "dataset"},
    "AverageRequest": {"run": "run", "output": "average"},
    "ExportRequest": {"model": "run", "output": "exported"},
    "ImportRequest": {"format": "ctranslate2", "model": "foreign", "output": "imported"},
    "TranslateRequest": {"model": "run", "options": TRANSLATE},
    "ModelRequest": {"model": "run"},
    "TranslateOptions": {"input": "in", "output": "out"},
    "CustomModel": {"load": list, "fingerprint": "1"},
    "ModelLoader": {"folder": "run"},
    "TranslateRows": {"load_translator": LOAD, "field": "text"},
    "EvaluateRequest": {"translations": "a.txt", "references": "b.txt", "against": "c.txt"},
    "load_translator": {"folder": "run", "decoding": Decoding(), "engine": Engine()},
    "translate_texts": {"cells": ["text"], "translator": Reverser(), "options": TextOptions()},
}


def public():
    """Yield the classes and functions of the page that have arguments of users."""
    for name in re.findall(r"^::: (\S+)$", PAGE, re.M):
        module, _, last = name.rpartition(".")
        if last not in RESULTS | TRAINING:
            yield getattr(importlib.import_module(module), last)


PUBLIC = list(public())
ARGUMENTS = [(called, name) for called in PUBLIC for name in inspect.signature(called).parameters]


def hint_of(called, name):
    """Return the type of an argument as a set of types without None."""
    is_class = dataclasses.is_dataclass(called) or not isinstance(called, type)
    hint = typing.get_type_hints(called if is_class else called.__init__)[name]
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return {typing.get_origin(part) or part for part in parts}


def call(called, **values):
    """Call a class or a function with valid values for its other arguments."""
    return called(**{**REQUIRED.get(called.__name__, {}), **values})


def test_the_page_lists_classes():
    assert len(PUBLIC) >= 20
    assert len(ARGUMENTS) >= 150


@pytest.mark.parametrize("called", PUBLIC, ids=lambda called: called.__name__)
def test_unknown_names_are_refused(called):
    name = list(inspect.signature(called).parameters)[-1]
    with pytest.raises(UserError, match=f"has no argument `{name}z`. Did you mean `{name}`"):
        call(called, **{f"{name}z": 1})


@pytest.mark.parametrize("called", PUBLIC, ids=lambda called: called.__name__)
def test_missing_arguments_are_refused(called):
    parameters = inspect.signature(called).parameters.values()
    missing = [each.name for each in parameters if each.default is each.empty]
    if missing:
        with pytest.raises(UserError, match=f"{called.__name__}: missing a required.*{missing[0]}"):
            called()
    with pytest.raises(UserError, match="too many positional arguments"):
        called(*[LOAD] * 100)


WRONG = [5, 2.5, True, b"x", object(), {"a": 1}, {"a"}, [1], (None,), ["a"], "5", "x", None, list]
FITS = {  # the values of WRONG that an argument of a type accepts
    str: (str,), int: (int,), float: (int, float), bool: (bool,), tuple: (str, list),
    typing.Literal: (str,),
}  # fmt: skip


@pytest.mark.parametrize(
    ("called", "name"), ARGUMENTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_values_of_a_wrong_type_are_refused(called, name):
    hints = hint_of(called, name)
    allows_none = inspect.signature(called).parameters[name].default is None
    refused = 0
    for value in WRONG:
        kinds = {kind for hint in hints for kind in FITS.get(hint, ())}
        fits = type(value) in kinds and value != [1]
        fits |= value is None and (allows_none or types.NoneType in hints)
        fits |= value is list and type(value) not in kinds and callable in map(callable_of, hints)
        fits |= isinstance(value, list) and value != [1] and is_list_of_texts(called, name)
        fits |= isinstance(value, tuple) and called is translate_texts and name == "cells"
        if fits:
            continue
        refused += 1
        with pytest.raises(UserError) as error:
            call(called, **{name: value})
        message = str(error.value)
        assert f"`{name}` must" in message, message
        assert "Received: " in message, message
        assert "\n" not in message
    assert refused >= 7


def callable_of(hint):
    return callable if getattr(hint, "__name__", "") == "Callable" else hint


def is_list_of_texts(called, name):
    return (called.__name__, name) in {("TranslateRows", "field"), ("translate_texts", "cells")}


FIELDS = [
    (called, field)
    for called in PUBLIC
    if dataclasses.is_dataclass(called)
    for field in dataclasses.fields(called)
]


@pytest.mark.parametrize(
    ("called", "field"),
    [(called, field) for called, field in FIELDS if hint_of(called, field.name) & {int, float}],
    ids=lambda value: getattr(value, "name", None) or getattr(value, "__name__", None),
)
def test_numbers_out_of_range_are_refused(called, field):
    for value in (-(10**400), 10**400, float("nan"), float("-inf")):
        with pytest.raises(UserError, match=rf"`{field.name}`|limits"):
            call(called, **{field.name: value})


@pytest.mark.parametrize(
    ("called", "field"),
    [(called, field) for called, field in FIELDS if field.metadata.get(CHOICES)],
    ids=lambda value: getattr(value, "name", None) or getattr(value, "__name__", None),
)
def test_unknown_choices_are_refused(called, field):
    name = {"name": "engine"}.get(field.name, field.name)
    with pytest.raises(UserError, match=rf"`{name}` must be one of"):
        call(called, **{field.name: "unknown choice"})


def test_texts_may_be_strings():
    texts = ["one two", b"one two", "\udce9", None]
    found = translate_texts(texts, translator=Reverser(), options=TextOptions()).translations
    assert [each.status for each in found] == ["ok", "ok", "failed", "null"]
    assert found[0] == found[1]


def test_a_path_is_a_string():
    assert PreprocessOptions(output=Path("a/b")).output == "a/b"
    assert TranslateOptions(input=[Path("a"), "b"], output=Path("c")).input == ("a", "b")
    assert TranslateOptions(input=Path("a"), output="c").input == ("a",)
    assert EvaluateRequest(translations=Path("a"), references=Path("b")).references == ("b",)
    assert ModelLoader(Path("/run")) == ModelLoader("/run")
