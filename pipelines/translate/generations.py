"""Compare the input of a job with the input of the run before it, and plan the next generation.

A generation is a run of a job on an input that has changed since the last run. The plan of a
generation contains every input file with the generation that translated it, so that a run
translates only the files of its own generation.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tt.model.errors import UserError, counted
from tt.model.json_files import first_few
from tt.pipelines.translate.options import DELETE, REDO, TranslateOptions
from tt.pipelines.translate.plan import (
    InputFile,
    input_identity,
    plan_digest,
    planned_outputs,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputChanges:
    """The differences between the input of a finished plan and the requested input.

    Attributes:
      new: The relative paths of files that the plan does not contain, or that were bad files.
      changed: The relative paths of files with another content.
      removed: The relative paths of files that no longer exist.
      rewritten: The relative paths of Parquet files that were written again, with the same size and
        the same footer. The values of a few rows may have changed nevertheless.
    """

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.removed)

    def counts(self) -> dict[str, int]:
        """Return the numbers of files, as in the manifest."""
        return {
            "new_files": len(self.new),
            "changed_files": len(self.changed),
            "removed_files": len(self.removed),
        }


def find_changes(
    saved: Mapping[str, Any], requested: Mapping[str, Any], *, has_rewritten: bool = False
) -> InputChanges:
    """Compare the input of a saved plan with the input of a requested plan.

    Args:
      saved: The plan in the output folder.
      requested: The plan of the requested job.
      has_rewritten: Whether rewritten files count as changed.

    >>> saved = {"input": {"a": {"size": 1}, "b": {"size": 1}}, "bad_files": {}}
    >>> find_changes(saved, {"input": {"b": {"size": 2}, "c": {"size": 1}}, "bad_files": {}})
    InputChanges(new=('c',), changed=('b',), removed=('a',), rewritten=())
    """
    before, now = input_identity(saved), input_identity(requested)
    kept = {name for name, file in saved["input"].items() if file.get("removed")}
    bad = saved["bad_files"].keys()
    differing = [name for name in now if name not in before or before[name] != now[name]]
    same = [name for name in now if name in saved["input"] and name not in differing]
    rewritten = [
        name
        for name in same
        if (written := saved["input"][name].get("written")) is not None
        and requested["input"].get(name, {}).get("written") not in (None, written)
    ]
    if has_rewritten:
        differing += rewritten
    return InputChanges(
        new=tuple(name for name in differing if name not in before or name in bad),
        changed=tuple(name for name in differing if name in before and name not in bad),
        removed=tuple(name for name in before if name not in now and name not in {*kept, *bad}),
        rewritten=() if has_rewritten else tuple(rewritten),
    )


def is_other_input(
    changes: InputChanges, *, saved: Mapping[str, Any], options: TranslateOptions
) -> bool:
    """Return whether no file of the last run is left, so that the input is another table."""
    kept = [name for name, file in saved["input"].items() if not file.get("removed")]
    return len(changes.removed) == len(kept) and options.removed != DELETE and not options.key


def check_changes(
    changes: InputChanges,
    *,
    saved: Mapping[str, Any],
    existing: Collection[str],
    options: TranslateOptions,
) -> None:
    """Check that the options allow the changes of the input.

    Args:
      changes: The changes of the input.
      saved: The plan in the output folder.
      existing: Paths of the files in the output folder, relative to it.
      options: The options of the job.

    Raises:
      UserError: An input file has changed or disappeared, and the options do not say what to do.
    """
    if options.key:
        return
    if changes.changed and options.changed != REDO:
        names = ", ".join(first_few(changes.changed, noun="files"))
        raise UserError(
            f"{counted(len(changes.changed), 'input file')} changed since the last run: {names}. "
            "Set `changed=redo` to translate changed files again, or choose another `output`"
        )
    if options.removed == DELETE:
        return
    for name in changes.removed:
        outputs = planned_outputs({**saved, "input": {name: saved["input"][name]}}, existing)
        if not set(outputs) <= set(existing):
            raise UserError(
                f"the input file {name} was removed before its translation was finished. Restore "
                "the file, or set `removed=delete`"
            )


def next_plan(
    saved: Mapping[str, Any],
    requested: Mapping[str, Any],
    *,
    changes: InputChanges,
    options: TranslateOptions,
) -> dict[str, Any]:
    """Return the plan of the next generation.

    Args:
      saved: The plan in the output folder.
      requested: The plan of the requested job, as of a first generation.
      changes: The changes of the input.
      options: The options of the job. With `key`, all files belong to the new generation, because
        the job compares rows and writes all output files again.
    """
    plan = copy.deepcopy(dict(requested))
    before = generations(saved)
    number = len(before) + 1
    before[-1]["plan_digest"] = plan_digest(saved)
    plan["generations"] = [*before, changes.counts()]
    for name, file in plan["input"].items():
        known = saved["input"].get(name)
        if known is None or name in changes.changed or options.key:
            file["generation"] = number
        elif "generation" in known:
            file["generation"] = known["generation"]
    if not options.key and options.removed != DELETE:
        gone = {name: file for name, file in saved["input"].items() if name not in plan["input"]}
        gone = {name: file for name, file in gone.items() if name not in plan["bad_files"]}
        plan["input"] |= {name: {**file, "removed": True} for name, file in gone.items()}
    return plan


def generations(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the generations of a plan: numbers of files, and the digests of earlier plans."""
    first = {"new_files": len(plan["input"]), "changed_files": 0, "removed_files": 0}
    return [dict(each) for each in plan.get("generations", [first])]


def committed_digests(plan: Mapping[str, Any]) -> frozenset[str]:
    """Return the plan digests of the generations whose output is part of a table."""
    earlier = generations(plan)[: plan.get("committed", 0)]
    return frozenset(each["plan_digest"] for each in earlier)


def with_digests(files: Iterable[InputFile], plan: Mapping[str, Any]) -> list[InputFile]:
    """Return the files to translate with the plan digests of their generations.

    The removed files of a plan follow, because their translations are a part of the output.
    """
    digests = [each.get("plan_digest", "") for each in plan.get("generations", [{}])]
    digests[-1] = plan_digest(plan)
    planned: Mapping[str, dict[str, Any]] = plan["input"]
    found = [
        dataclasses.replace(
            file, plan_digest=digests[planned[file.relative_path].get("generation", 1) - 1]
        )
        for file in files
    ]
    removed = [
        InputFile(
            path=name,
            relative_path=name,
            size=file["size"],
            rows=file["rows"],
            footer_checksum=file["footer_checksum"],
            changed=file.get("changed"),
            fitting_rows=file.get("unit_rows"),
            plan_digest=digests[file.get("generation", 1) - 1],
        )
        for name, file in planned.items()
        if file.get("removed")
    ]
    return [*found, *removed]


def gone_files(saved: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input files of a saved plan whose translations a new plan does not keep."""
    return {
        name: file
        for name, file in saved["input"].items()
        if name not in plan["input"]
        or plan["input"][name].get("generation") != file.get("generation")
    }


def describe_changes(changes: InputChanges, *, options: TranslateOptions) -> list[str]:
    """Return a line for each kind of change, for the user."""
    if options.key and changes:
        return ["the input changed: only rows with a new key or a new text are translated"]
    is_deleted = options.removed == DELETE
    again = "same size and footer, so translations kept unless you set `changed=redo`"
    kinds = (
        (changes.new, "new", "translated"),
        (changes.changed, "changed", "translated again"),
        (changes.removed, "removed", "translations deleted" if is_deleted else "translations kept"),
        (changes.rewritten, "rewritten", again),
    )
    return [
        f"{counted(len(names), f'{kind} input file')}, {result}: "
        f"{', '.join(first_few(names, noun='files'))}"
        for names, kind, result in kinds
        if names
    ]
