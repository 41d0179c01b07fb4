"""Lets Beam remember what it otherwise finds out anew thousands of times a job.

A small job spends more than half of its time on two things: looking up the parameters of the
methods of its DoFns, and parsing its options, once for each of some hundred views of them. What
both give is the same.
"""

import argparse
import copy
import functools
import types

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core

_inspect = core.get_function_args_defaults
_parse = PipelineOptions.__init__
_parsed = {}  # values of options by class and flags


@functools.cache
def _inspect_method(function, owner):
    return _inspect(types.MethodType(function, owner))


def _inspect_once(function):
    """Returns the parameters of a function and their defaults."""
    if not isinstance(function, types.MethodType):
        return _inspect(function)
    names, defaults = _inspect_method(function.__func__, type(function.__self__))
    return list(names), list(defaults)


def _parse_once(self, flags=None, **options):
    """Initialises `PipelineOptions`."""
    if flags is None or isinstance(flags, str):  # those of the process, or an error
        _parse(self, flags, **options)
        return
    key = (type(self), tuple(flags))
    if key not in _parsed:
        _parse(self, flags)
        _parsed[key] = copy.deepcopy(vars(self._visible_options))
    values = copy.deepcopy(_parsed[key])
    self._flags = flags
    self._visible_options = argparse.Namespace(**values)
    self._all_options = values | options


def remember() -> None:
    """Changes Beam in this process, and in those that it forks."""
    core.get_function_args_defaults = _inspect_once
    PipelineOptions.__init__ = _parse_once
