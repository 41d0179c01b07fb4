"""Make Beam remember results that it otherwise computes thousands of times per job.

Beam looks up the parameters of the methods of its DoFns, and parses its options again for each of
about a hundred views of the options. A small job spends more than half of its time on this, with
the same results each time.
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
    """Return the parameters of a function and their defaults."""
    if not isinstance(function, types.MethodType):
        return _inspect(function)
    names, defaults = _inspect_method(function.__func__, type(function.__self__))
    return list(names), list(defaults)


def _parse_once(self, flags=None, **options):
    """Initialize `PipelineOptions`."""
    if flags is None or isinstance(flags, str):  # the flags of the process, or an error
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
    """Change Beam in this process, and in processes that it forks."""
    core.get_function_args_defaults = _inspect_once
    PipelineOptions.__init__ = _parse_once
