"""Find the slow tests, which train, run a job, execute a model or start a process.

`make test-fast` leaves them out. `make test` leaves out only the long tests. `make test-long` runs
those that stop or kill programs again and again, or run every command of the documentation.
`make test-release` runs the others.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator

import pytest

MODULES = ("subprocess", "commands", "trainers", "translation_jobs", "preprocess_jobs")
FUNCTIONS = {
    ("corpora", "preprocess"),
    ("corpora", "run_preprocess"),
    ("models", "make_model"),
    ("models", "write_model"),
    ("toy", "write_dataset"),
}
LONGEST = (  # modules in tests/ that take a minute or more
    "model/training/test_faults.py",
    "model/training/test_step.py",
    "pipelines/preprocess/test_faults.py",
    "model/training/test_damaged_runs.py",
    "test_docs.py",
    "model/training/test_multi_worker.py",
)
LONG = (  # modules in tests/
    "model/training/test_faults.py",
    "pipelines/preprocess/test_faults.py",
    "pipelines/translate/test_generation_kills.py",
    "pipelines/translate/test_lakehouse_kills.py",
    "pipelines/translate/test_resume.py",
)
LONG_TESTS = (
    "test_damaged_run_resumes",
    "test_demo_runs_the_three_main_commands",
    "test_killed_command_is_resumed_with_the_same_files",
    "test_kills_lose_no_rows",
    "test_result_does_not_depend_on_the_workers",
    "test_run_killed_with_any_set_of_files_resumes_identically",
    "test_slices_need_no_memory_for_all_logits",
    "test_the_blocks_of_a_document_run_one_after_the_other",
    "test_the_python_blocks_of_a_document_run",
)
RELEASE = (  # modules in tests/
    "cli/commands/test_huggingface.py",
    "model/training/test_multi_worker.py",
    "model/training/test_resume.py",
    "model/training/test_step.py",
    "test_benchmarks.py",
)
RELEASE_TESTS = (
    "test_another_random_history",
    "test_every_line_of_messy_corpora_is_counted",
    "test_gradients_of_the_whole_model_match_finite_differences",
    "test_only_a_limited_part_of_a_unit_is_in_memory",
    "test_run_killed_after_any_change_of_a_file_resumes_identically",
    "test_saved_models_give_the_same_results_with_only_tensorflow",
    "test_two_cpu_devices_replace_gpus",
)
FIXTURES = {"dataset", "finish_run", "random_model", "toy_dataset", "trained_toy"}


def is_long(item: pytest.Item) -> bool:
    """Return whether a test is listed as long."""
    return _is_listed(item, LONG, LONG_TESTS)


def is_for_releases(item: pytest.Item) -> bool:
    """Return whether a test is listed as long, and not valuable enough for each change."""
    return _is_listed(item, RELEASE, RELEASE_TESTS)


def _is_listed(item: pytest.Item, modules: tuple[str, ...], tests: tuple[str, ...]) -> bool:
    return item.nodeid.partition("::")[0].removeprefix("tests/") in modules or (
        isinstance(item, pytest.Function) and item.originalname in tests
    )


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test uses one of the slow names above, directly or through its module."""
    if item.get_closest_marker("slow") or is_long(item) or is_for_releases(item):
        return True
    if not isinstance(item, pytest.Function):
        return False
    found = item._fixtureinfo.name2fixturedefs
    fixtures = [found[name][-1].func for name in item.fixturenames if name in found]
    own = [function for function in fixtures if function.__module__ == item.module.__name__]
    return bool(FIXTURES & set(item.fixturenames)) or any(
        _is_slow_name(value)
        for function in (item.function, *own)
        for value in _used(function, seen=set())
    )


def _used(function: Callable[..., object], *, seen: set[object]) -> Iterator[object]:
    """Yield all objects that a function uses from its module, directly or indirectly."""
    names = list(_names(getattr(function, "__code__", None)))
    for name in names:
        value = getattr(function, "__globals__", {}).get(name)
        if value is None or id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        is_own = getattr(value, "__module__", None) == function.__module__
        if is_own and isinstance(value, type):
            for method in vars(value).values():
                if isinstance(method, types.FunctionType):
                    yield from _used(method, seen=seen)
        elif is_own and isinstance(value, types.FunctionType):
            yield from _used(value, seen=seen)


def _names(code: types.CodeType | None) -> Iterator[str]:
    if code is not None:
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from _names(constant)


def _is_slow_name(value: object) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__ in MODULES
    owner = getattr(value, "__module__", None)
    return owner in MODULES or (owner, getattr(value, "__name__", None)) in FUNCTIONS
