"""What of `tt` will work on this machine, and what to do about the rest."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from model.engines.gpus import describe_missing, find_nvidia, find_nvidia_by_tool
from model.engines.machine import cores
from model.extras import install_extra, install_lock, pip_install
from model.folders.cache import default_cache
from pipelines.summaries import machine, packages, probes
from pipelines.summaries.packages import Package
from pipelines.summaries.probes import Answer

OK, WARNING, MISSING, FAILURE = "ok", "warning", "missing", "failure"
PYTHONS = ((3, 11), (3, 13))  # the first and the last
JAVA = 11  # the oldest that Flink 1.19 takes
_LEAST_MEMORY, _LITTLE_MEMORY = 1 << 30, 3 << 30  # bytes
_LEAST_DISK, _LITTLE_DISK = 100 << 20, 5 << 30  # bytes
_NAMED = 8  # packages, of those that differ
_MAIN = {  # libraries without which the main job does not run
    "tensorflow": "TensorFlow",
    "apache_beam": "Apache Beam",
    "sentencepiece": "SentencePiece",
    "pyarrow": "Arrow",
}
_EXTRAS = {  # what each is for, and a module of it
    "ctranslate2": ("--engine ctranslate2 and models for CTranslate2", "ctranslate2"),
    "kafka": ("tt translate-stream with kafka://", "confluent_kafka"),
    "s3": ("paths of s3://", "boto3"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """A line of what was looked at."""

    group: str
    name: str
    state: str  # "ok", "warning", "missing" (only what `rule` names will not work) or "failure"
    value: str  # what was found
    rule: str  # what is needed, and for what
    remedy: str = ""  # what to do; "" where all is well


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that was looked at."""

    checks: list[Check]

    @property
    def works(self) -> bool:
        """Whether the main job runs: preprocess, train and translate-batch on this machine."""
        return all(check.state != FAILURE for check in self.checks)


def diagnose(*, folder: Path = Path()) -> Diagnosis:
    """Looks at this machine; takes some seconds, writes nothing and uses no network.

    Args:
      folder: Where `tt` is to work.
    """
    names = [*_MAIN, "ctranslate2"]
    asked = [name for name in names if importlib.util.find_spec(name) is not None]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        java = pool.submit(probes.java_version)
        gpus = pool.submit(probes.gpu_memory)
        answers = probes.probe_libraries(asked)
    facts = [
        *_python(),
        *_machine(),
        *_disks(folder),
        *_gpus(answers, gpus.result()),
        *_packages(),
        *_libraries(answers),
    ]
    checks = [*facts, *_extras(answers), *_runners(java.result()), *_storage()]
    return Diagnosis(checks=[*_commands(checks), *checks])


def _python() -> Iterator[Check]:
    first, last = (".".join(map(str, each)) for each in PYTHONS)
    is_right = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
    yield Check(
        group="Machine", name="Python", state=OK if is_right else FAILURE,
        value=f"{platform.python_version()}, {sys.executable}",
        rule=f"{first} to {last}",
        remedy="" if is_right else f"make an environment of Python {first} to {last}",
    )  # fmt: skip


def _packages() -> Iterator[Check]:
    required = packages.required_packages()
    wrong = [each for each in required if not each.suits]
    yield Check(
        group="Packages", name="required", state=FAILURE if wrong else OK,
        value=_differences(wrong) if wrong else f"all {len(required)} are installed and fit",
        rule="the versions that tt requires",
        remedy=pip_install(*(each.name + each.wanted for each in wrong)) if wrong else "",
    )  # fmt: skip
    locked = packages.locked_packages()
    other = [each for each in locked if not each.suits]
    yield Check(
        group="Packages", name="lock", state=WARNING if other or not locked else OK,
        value=_differences(other) if other
        else f"{len(locked)} packages have their locked versions" if locked
        else f"no {packages.LOCK}",
        rule=f"the versions of {packages.LOCK}, with which tt is tested",
        remedy=f"if something fails: {install_lock(packages.LOCK)}"
        if other or not locked else "",
    )  # fmt: skip


def _differences(found: Sequence[Package]) -> str:
    shown = [
        f"{each.name} {each.installed or 'is missing'} ({each.wanted.removeprefix('==')})"
        for each in found[:_NAMED]
    ]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    verb = "differs" if len(found) == 1 else "differ"
    return f"{len(found)} {verb}: {', '.join(shown)}{more}"


def _libraries(answers: dict[str, Answer]) -> Iterator[Check]:
    for module, name in _MAIN.items():
        answer = answers.get(module, Answer(found={}, error="not installed"))
        yield Check(
            group="Packages", name=name, state=OK if answer.found else FAILURE,
            value=str(answer.found.get("version") or answer.error),
            rule="it is imported and computes",
            remedy="" if answer.found else _repair(module),
        )  # fmt: skip


def _repair(module: str) -> str:
    name = {"apache_beam": "apache-beam"}.get(module, module)
    for each in packages.required_packages():
        if each.name == name:
            return f"{pip_install(f'{name}{each.wanted}')} --force-reinstall"
    return f"{pip_install(name)} --force-reinstall"


def _gpus(answers: dict[str, Answer], memory: list[tuple[str, int, int]]) -> Iterator[Check]:
    answer = answers.get("tensorflow", Answer(found={}))
    there = [f"{name}, {free:,} of {total:,} MiB free" for name, total, free in memory]
    used = answer.found.get("gpus", [])
    rule = "an NVIDIA GPU that TensorFlow finds, to train models of more than some hours on a CPU"
    if used:
        value = "; ".join(there) or ", ".join(used)
        yield Check(group="Machine", name="GPU", state=OK, value=value, rule=rule)
        return
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = there or find_nvidia() or find_nvidia_by_tool()
    if found and hidden is not None and hidden.split(",")[0] in ("", "-1"):
        yield Check(
            group="Machine", name="GPU", state=WARNING,
            value=f"{', '.join(found)}, hidden by CUDA_VISIBLE_DEVICES={hidden!r}", rule=rule,
            remedy="unset CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    elif found:
        yield Check(
            group="Machine", name="GPU", state=WARNING,
            value=describe_missing(found, words=answer.log), rule=rule,
            remedy=f"the CPU computes until TensorFlow finds it; often it is enough to run "
            f"{install_extra('gpu')}",
        )  # fmt: skip
    else:
        yield Check(
            group="Machine", name="GPU", state=MISSING, value="none: the CPU computes", rule=rule,
            remedy="train on a machine that has one; preprocessing and translating run on CPUs",
        )  # fmt: skip


def _machine() -> Iterator[Check]:
    quota = machine.core_quota()
    is_less = quota is not None and quota < cores()
    yield Check(
        group="Machine", name="cores", state=WARNING if is_less else OK,
        value=f"{cores()}" + (f", of whose time a container may use {quota:g}" if is_less else ""),
        rule="one or more; all of them are used",
        remedy="give the container more, or fewer threads: --threads 1" if is_less else "",
    )  # fmt: skip
    total, free = machine.memory()
    state = OK if not total or free >= _LITTLE_MEMORY else WARNING
    if total and total < _LEAST_MEMORY:
        state = FAILURE
    yield Check(
        group="Machine", name="memory", state=state,
        value=f"{_gigabytes(free)} of {_gigabytes(total)} free" if total else "unknown",
        rule=f"{_gigabytes(_LITTLE_MEMORY)} free; the more, the larger models and batches may be",
        remedy="" if state == OK else "end other programs, or lower --batch-tokens",
    )  # fmt: skip


def _disks(folder: Path) -> Iterator[Check]:
    for name, place, use, remedy in (
        ("this folder", folder.absolute(), "datasets, runs and translations", "work in another"),
        ("cache", default_cache(), "copies of remote and converted models",
         "set XDG_CACHE_HOME to a folder with room"),
    ):  # fmt: skip
        try:
            disk = machine.disk_of(place)
        except OSError as error:
            yield Check(
                group="Machine", name=name, state=FAILURE, value=f"{place}: {error.strerror}",
                rule=f"room for {use}", remedy=remedy,
            )  # fmt: skip
            continue
        is_main = name == "this folder"
        state = OK if disk.free >= _LITTLE_DISK else WARNING
        if not disk.is_writable or disk.free < _LEAST_DISK:
            state = FAILURE if is_main else WARNING
        denied = "" if disk.is_writable else ", and may not be written"
        yield Check(
            group="Machine", name=name, state=state,
            value=f"{_gigabytes(disk.free)} of {_gigabytes(disk.total)} free in {place}{denied}",
            rule=f"{_gigabytes(_LITTLE_DISK)} and more, for {use}",
            remedy="" if state == OK else remedy,
        )  # fmt: skip


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _extras(answers: dict[str, Answer]) -> Iterator[Check]:
    for extra, (use, module) in _EXTRAS.items():
        answer = answers.get(module)
        wrong = [each for each in packages.required_packages(extra) if not each.suits]
        is_there = importlib.util.find_spec(module) is not None
        if is_there and not wrong and (answer is None or answer.found):
            versions = [f"{e.name} {e.installed}" for e in packages.required_packages(extra)]
            yield Check(
                group="Extras", name=extra, state=OK, value=", ".join(versions) or "installed",
                rule=f"the extra {extra}, for {use}",
            )  # fmt: skip
            continue
        error = answer.error if answer is not None and not answer.found else ""
        yield Check(
            group="Extras", name=extra, state=MISSING,
            value=error or (_differences(wrong) if is_there else "not installed"),
            rule=f"the extra {extra}, for {use}", remedy=install_extra(extra),
        )  # fmt: skip


def _runners(java: str) -> Iterator[Check]:
    yield Check(
        group="Runners", name="this machine", state=OK, value=f"{cores()} workers, as threads",
        rule="Apache Beam; the default",
    )  # fmt: skip
    has_google = _has("google.cloud.storage")
    google = machine.google_credentials()
    yield Check(
        group="Runners", name="dataflow", state=OK if has_google and google else MISSING,
        value=f"credentials: {google}" if google else "no credentials",
        rule="a project of Google Cloud, credentials for it, and Beam's extra gcp",
        remedy="" if has_google and google
        else "gcloud auth application-default login" if has_google
        else pip_install("apache-beam[gcp]"),
    )  # fmt: skip
    number = java.removeprefix("1.").partition(".")[0]
    has_java = number.isdigit() and int(number) >= JAVA
    yield Check(
        group="Runners", name="flink", state=OK if has_java else MISSING,
        value=f"Java {java}" if java else "no Java",
        rule=f"a cluster, and Java {JAVA} or newer here, by which Beam talks to it",
        remedy="" if has_java else "install a Java runtime, such as openjdk-17-jre-headless",
    )  # fmt: skip
    maven = probes.find_program("mvn")
    yield Check(
        group="Runners", name="flink, in tests", state=OK if maven else MISSING,
        value=maven or "not installed",
        rule="it fetches Flink and Apache Kafka for the tests on them; nothing else",
        remedy="" if maven else "install Maven, if you want to run `make test-flink`",
    )  # fmt: skip


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of what it lies in
        return False


def _storage() -> Iterator[Check]:
    google, amazon = machine.google_credentials(), machine.amazon_credentials()
    yield Check(
        group="Storage", name="gs://", state=OK if google else MISSING,
        value=google or "no credentials",
        rule="credentials of Google; machines of Google's have their own",
        remedy="" if google else "gcloud auth application-default login",
    )  # fmt: skip
    has_client = _has("boto3")
    yield Check(
        group="Storage", name="s3://", state=OK if amazon and has_client else MISSING,
        value=(amazon or "no credentials") + ("" if has_client else ", and no boto3"),
        rule="the extra s3, and credentials; machines of Amazon's have their own",
        remedy="" if amazon and has_client
        else "aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" if has_client
        else install_extra("s3"),
    )  # fmt: skip


def _commands(checks: Sequence[Check]) -> Iterator[Check]:
    """Yields what each command and engine can do, by what was found."""
    broken = [check.name for check in checks if check.state == FAILURE]
    lacking = f"not before this is mended: {', '.join(broken)}"
    for name, rule in (
        ("preprocess", "Python, all required packages, memory and disk"),
        ("train", "the same; what takes hours on a GPU takes days on a CPU"),
        ("translate-batch, translate", "the same, for the engine TensorFlow"),
        ("the others", "the same"),
    ):
        yield Check(
            group="Commands", name=name, state=FAILURE if broken else OK,
            value=lacking if broken else "works", rule=rule,
            remedy="mend the lines marked FAIL" if broken else "",
        )  # fmt: skip
    states = {(check.group, check.name): check.state for check in checks}
    for name, extra in (
        ("--engine ctranslate2", "ctranslate2"), ("translate-stream kafka://", "kafka"),
    ):  # fmt: skip
        works = states["Extras", extra] == OK and not broken
        yield Check(
            group="Commands", name=name, state=OK if works else MISSING,
            value="works" if works else lacking if broken else "not yet",
            rule=f"the same, and the extra {extra}",
            remedy="" if works or broken else install_extra(extra),
        )  # fmt: skip
