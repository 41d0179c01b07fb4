"""Run the tests on copies of this checkout with one changed place each, the mutants of the tables.

    make mutants
    python tests/mutants/run.py --only warm-up model/transformer/search.py --jobs 1

A mutant is killed if one of its tests fails, and survives if all pass. Any other result, such as no
collected test or a timeout, means that the table is wrong. All tests must pass on a copy without
changes. The exit code is 1 unless all mutants are killed.

This process imports slow libraries once. Each copy is tested in a fork of this process.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from table import ROOT, Mutant, load_tables

# Only libraries. Modules of the project must be imported from the copy.
_SLOW = (
    "tensorflow", "keras", "pytest", "apache_beam", "hypothesis", "pyarrow", "sacrebleu",
    "sentencepiece",
)  # fmt: skip
_COPIED = ("model", "pipelines", "cli", "tests", "pyproject.toml", "Makefile", "README.md")
_PASSED, _FAILED = 0, 1  # exit codes of pytest
_SECONDS = 900  # timeout for the tests of a mutant, on a busy machine


@dataclasses.dataclass
class _Running:
    mutant: Mutant | None
    folder: Path
    start: float


def main() -> None:
    """Run the mutants and exit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="run only mutants whose name or file contains one of these texts",
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    mutants = [
        mutant
        for mutant in load_tables()
        if any(text in mutant.name or text in mutant.file for text in options.only)
    ]
    if not mutants:
        sys.exit(f"no mutant has a name or file with {', '.join(options.only)}")
    try:
        for mutant in mutants:
            mutant.apply((ROOT / mutant.file).read_text("utf-8"))
    except ValueError as error:
        sys.exit(str(error))
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in _SLOW:
        importlib.import_module(name)
    start = time.monotonic()
    wrong = _run_all(mutants, jobs=options.jobs)
    print(f"{len(mutants)} mutants in {time.monotonic() - start:.0f} s")
    if wrong:
        sys.exit("not killed:\n" + "\n".join(f"  {line}" for line in wrong))
    print("all killed")


def _run_all(mutants: Sequence[Mutant], *, jobs: int) -> list[str]:
    """Run all mutants, `jobs` at a time, and return a line for each mutant that was not killed."""
    left: list[Mutant | None] = [None, *mutants]  # None is a copy without changes
    running: dict[int, _Running] = {}
    wrong = []
    with tempfile.TemporaryDirectory(prefix="mutants.") as scratch:
        while left or running:
            while left and len(running) < jobs:
                folder = Path(scratch) / str(len(left))
                mutant = left.pop(0)
                tests = mutant.tests if mutant else _all_tests(mutants)
                _copy(folder, mutant)
                running[_start(folder, tests)] = _Running(mutant, folder, time.monotonic())
            process, code = _wait(running)
            ended = running.pop(process)
            verdict, line = _judge(ended, code)
            print(line, flush=True)
            if verdict != "killed":
                wrong.append(line)
                print((ended.folder / "output.txt").read_text(errors="replace")[-3000:])
            shutil.rmtree(ended.folder)
    return wrong


def _all_tests(mutants: Sequence[Mutant]) -> list[str]:
    return list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))


def _copy(folder: Path, mutant: Mutant | None) -> None:
    folder.mkdir()
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "bench")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    if mutant:
        path = folder / mutant.file
        path.write_text(mutant.apply(path.read_text("utf-8")), "utf-8")
    names = folder / "names/tt"  # Python imports the copy through these links
    names.mkdir(parents=True)
    for name in ("model", "pipelines", "cli"):
        (names / name).symlink_to(folder / name)


def _start(folder: Path, tests: Sequence[str]) -> int:
    """Start the tests in a new process, and return its process ID."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 3
    try:
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        others = [path for path in sys.path if Path(path) != Path(__file__).parent]
        sys.path[:] = [str(folder / "names"), *others]
        sys.dont_write_bytecode = True
        del sys.modules["__main__"].__file__  # else processes of multiprocessing run this script
        errors = importlib.import_module("tt.model.errors")
        assert Path(errors.__file__).is_relative_to(folder), errors.__file__
        hypothesis = importlib.import_module("hypothesis")
        # Draw the same examples in each run, and do not search for the smallest failing example.
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", derandomize=True, phases=phases)
        hypothesis.settings.load_profile("mutants")  # tests/conftest.py extends this profile
        pytest = importlib.import_module("pytest")
        code = pytest.main(["-x", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", *tests])
    finally:
        sys.stdout.flush()
        os._exit(code)


def _wait(running: dict[int, _Running]) -> tuple[int, int | None]:
    """Wait until a process ends or its time is up, and return its ID and its exit code or None."""
    while True:
        for process, each in running.items():
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return process, os.waitstatus_to_exitcode(status)
            if time.monotonic() - each.start > _SECONDS:
                os.kill(process, 9)
                os.waitpid(process, 0)
                return process, None
        time.sleep(0.05)


def _judge(ended: _Running, code: int | None) -> tuple[str, str]:
    """Return the verdict on a mutant, and the line to print."""
    seconds = time.monotonic() - ended.start
    if ended.mutant is None:
        verdict = "killed" if code == _PASSED else "BROKEN"
        what = f"{'all tests pass' if code == _PASSED else 'tests fail'} without a change"
        return verdict, f"{verdict if code else '':8} {seconds:4.0f} s  {what}"
    names = {_PASSED: "SURVIVED", _FAILED: "killed", None: "TIME UP"}
    verdict = names.get(code, "BROKEN")
    by = _first_failure(ended.folder / "output.txt") if verdict == "killed" else ""
    mutant = ended.mutant
    return verdict, f"{verdict:8} {seconds:4.0f} s  {mutant.file}: {mutant.name}{by}"


def _first_failure(output: Path) -> str:
    for line in output.read_text(errors="replace").splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return f"  [{line.partition(' ')[2].partition(' - ')[0]}]"
    return ""


if __name__ == "__main__":
    main()
