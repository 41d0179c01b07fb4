"""Make Beam remember results that it otherwise computes thousands of times per job.

Beam looks up the parameters and states of the methods of its DoFns, and parses its options again
for each of about a hundred views of the options. A small job spends more than half of its time on
this, with the same results each time.
"""

import argparse
import copy
import functools
import types

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate

_inspect = core.get_function_args_defaults
_find_specs = userstate.get_dofn_specs
_parse = PipelineOptions.__init__
_specs = {}  # states and timers by class of DoFn
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


def _find_specs_once(dofn):
    """Return the states and timers of a DoFn."""
    if any(isinstance(value, types.MethodType) for value in vars(dofn).values()):
        return _find_specs(dofn)  # The methods differ between the instances of the class.
    if type(dofn) not in _specs:
        _specs[type(dofn)] = _find_specs(dofn)
    return tuple(map(set, _specs[type(dofn)]))


def _copied(values):
    return {name: copy.copy(value) for name, value in values.items()}


def _parse_once(self, flags=None, **options):
    """Initialize `PipelineOptions`."""
    if flags is None or isinstance(flags, str):  # the flags of the process, or an error
        _parse(self, flags, **options)
        return
    key = (type(self), tuple(flags))
    if key not in _parsed:
        _parse(self, flags)
        _parsed[key] = _copied(vars(self._visible_options))
    values = _copied(_parsed[key])
    self._flags = flags
    self._visible_options = argparse.Namespace(**values)
    self._all_options = values | options


def remember() -> None:
    """Change Beam in this process, and in processes that it forks."""
    core.get_function_args_defaults = _inspect_once
    userstate.get_dofn_specs = _find_specs_once
    PipelineOptions.__init__ = _parse_once
