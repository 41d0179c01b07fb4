"""Every public class and function checks the names, types and ranges of its arguments."""

import dataclasses
import importlib
import inspect
import re
import types
import typing
from pathlib import Path

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
    "TranslatedText", "UserError", "Loader", "Translator", "Input",
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


def error_of(called, *values, **arguments):
    """Return the message of the refusal of a call, or "" if the call succeeds."""
    try:
        called(*values, **arguments)
    except UserError as error:
        return str(error)
    return ""


def refusal(called, **values):
    """Return the refusal of these values, with valid values for the other arguments."""
    return error_of(called, **{**REQUIRED.get(called.__name__, {}), **values})


def test_the_page_lists_classes():
    assert len(PUBLIC) >= 20
    assert len(ARGUMENTS) >= 150


def test_unknown_missing_and_superfluous_arguments_are_refused():
    wrong = []
    for called in PUBLIC:
        parameters = inspect.signature(called).parameters
        name = list(parameters)[-1]
        missing = [each.name for each in parameters.values() if each.default is each.empty]
        expected = {
            f"has no argument `{name}z`. Did you mean `{name}`": refusal(called, **{f"{name}z": 1}),
            "too many positional arguments": error_of(called, *[LOAD] * 100),
        }
        if missing:
            expected[rf"{called.__name__}: missing a required.*{missing[0]}"] = error_of(called)
        for text, said in expected.items():
            if not re.search(text, said):
                wrong.append(f"{called.__name__}: {said!r} instead of {text}")
    assert not wrong, "\n".join(wrong)


WRONG = [5, 2.5, True, b"x", object(), {"a": 1}, {"a"}, [1], (None,), ["a"], "5", "x", None, list]
FITS = {  # the values of WRONG that an argument of a type accepts
    str: (str,), int: (int,), float: (int, float), bool: (bool,), tuple: (str, list),
    typing.Literal: (str,),
}  # fmt: skip


def fits(called, name, value):
    """Return whether an argument accepts a value of WRONG."""
    hints = hint_of(called, name)
    kinds = {kind for hint in hints for kind in FITS.get(hint, ())}
    if value is None:
        default = inspect.signature(called).parameters[name].default
        return default is None or types.NoneType in hints
    if value is list:
        return callable in map(callable_of, hints)
    if isinstance(value, tuple):
        return called is translate_texts and name == "cells"
    if isinstance(value, list) and value != [1] and is_list_of_texts(called, name):
        return True
    return type(value) in kinds and value != [1]


def test_values_of_a_wrong_type_are_refused():
    wrong = []
    for called, name in ARGUMENTS:
        refused = [value for value in WRONG if not fits(called, name, value)]
        if len(refused) < 7:
            wrong.append(f"{called.__name__}.{name} accepts too many of the values")
        for value in refused:
            said = refusal(called, **{name: value})
            if f"`{name}` must" not in said or "Received: " not in said or "\n" in said:
                wrong.append(f"{called.__name__}({name}={value!r}): {said!r}")
    assert not wrong, "\n".join(wrong)


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


def test_numbers_out_of_range_are_refused():
    wrong = []
    for called, field in FIELDS:
        if hint_of(called, field.name) & {int, float}:
            for value in (-(10**400), 10**400, float("nan"), float("-inf")):
                said = refusal(called, **{field.name: value})
                if f"`{field.name}`" not in said and "limits" not in said:
                    wrong.append(f"{called.__name__}({field.name}={value}): {said!r}"[:200])
    assert not wrong, "\n".join(wrong)


def test_unknown_choices_are_refused():
    wrong = []
    for called, field in FIELDS:
        if field.metadata.get(CHOICES):
            name = {"name": "engine"}.get(field.name, field.name)
            said = refusal(called, **{field.name: "unknown choice"})
            if f"`{name}` must be one of" not in said:
                wrong.append(f"{called.__name__}.{field.name}: {said!r}")
    assert not wrong, "\n".join(wrong)


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
