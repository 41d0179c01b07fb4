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
    identity_of,
    input_identity,
    output_stem,
    plan_digest,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputChanges:
    """The differences between the input of a finished plan and the requested input.

    Attributes:
      new: The relative paths of files without translations, and of repaired files.
      changed: The relative paths of files with another content, size or modification time.
      removed: The relative paths of files that no longer exist.
      damaged: The relative paths of translated files that have become bad files.
      untranslated: The relative paths of files without translations that no longer exist, or that
        are bad files; and of removed files whose output files another file will replace.
    """

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    untranslated: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def counts(self) -> dict[str, int]:
        """Return the numbers of files, as in the manifest."""
        return {
            "new_files": len(self.new),
            "changed_files": len(self.changed),
            "removed_files": len(self.removed),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedFiles:
    """The input files of a saved plan whose translations the output folder contains.

    Attributes:
      begun: The relative paths of files with at least one output file.
      whole: The relative paths of files whose units are all finished or skipped.
      skipped: The relative paths of files with skipped units.
    """

    begun: Collection[str] = frozenset()
    whole: Collection[str] = frozenset()
    skipped: Collection[str] = frozenset()


def find_changes(
    saved: Mapping[str, Any],
    requested: Mapping[str, Any],
    *,
    translated: TranslatedFiles,
    is_deleting: bool = False,
) -> InputChanges:
    """Compare the input of a saved plan with the input of a requested plan.

    Args:
      saved: The plan in the output folder.
      requested: The plan of the requested job.
      translated: The files of the saved plan with translations.
      is_deleting: Whether to delete the kept translations of files that were removed earlier.

    >>> saved = {"input": {"a": {"size": 1}, "b": {"size": 1}}, "bad_files": {}}
    >>> requested = {"input": {"b": {"size": 2}, "c": {"size": 1}}, "bad_files": {}}
    >>> changes = find_changes(saved, requested, translated=TranslatedFiles(begun={"a", "b"}))
    >>> changes.new, changes.changed, changes.removed
    (('c',), ('b',), ('a',))
    """
    before, now = input_identity(saved), input_identity(requested)
    bad = requested["bad_files"]
    found: dict[str, list[str]] = {field.name: [] for field in dataclasses.fields(InputChanges)}
    for name, identity in now.items():
        if before.get(name) == identity:
            continue
        is_begun = name in translated.begun  # perhaps before the file was removed
        was_skipped = name in saved["bad_files"] or name in translated.skipped
        if name in bad and not is_begun:
            kind = "untranslated"
        elif name in bad and name in translated.whole:
            kind = "damaged"
        elif name in before and is_begun and not was_skipped:
            kind = "changed"
        else:
            kind = "new"
        found[kind].append(name)
    taken = {output_stem(name) for name in requested["input"]}  # as b.csv takes b.parquet's
    for name in {**before, **saved["input"]} if is_deleting else before:
        if name not in now:
            is_kept = name in translated.begun and output_stem(name) not in taken
            found["removed" if is_kept else "untranslated"].append(name)
    return InputChanges(**{kind: tuple(names) for kind, names in found.items()})


def is_other_input(
    saved: Mapping[str, Any], requested: Mapping[str, Any], *, options: TranslateOptions
) -> bool:
    """Return whether no file of the last run is left, so that the input is another table."""
    is_disjoint = input_identity(saved).keys().isdisjoint(input_identity(requested))
    return is_disjoint and options.removed != DELETE and not options.key


def check_changes(
    changes: InputChanges, *, translated: TranslatedFiles, options: TranslateOptions
) -> None:
    """Check that the options allow the changes of the input.

    Args:
      changes: The changes of the input.
      translated: The files of the saved plan with translations.
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
            "tt compares the size, the content and, except in small text files, the modification "
            "time. Set `changed=redo` to translate changed files again, or choose another `output`"
        )
    if options.removed == DELETE:
        return
    for name in changes.removed:
        if name not in translated.whole:
            raise UserError(
                f"the input file {name} was removed before its translation was finished. Restore "
                "the file, or set `removed=delete`"
            )


def check_tables(
    plan: Mapping[str, Any], *, saved: Mapping[str, Any], output: str, is_table: bool
) -> None:
    """Check that the input has the tables of a saved plan.

    Raises:
      UserError: The plan belongs to other tables.
    """
    before, now = (each.get("tables", []) for each in (saved, plan))
    if before and before != now:
        remedy = "Choose another `output`" + ("" if is_table else ", or set `overwrite`")
        raise UserError(
            f"{output} contains the translations of another table, whose ID is "
            f"{', '.join(before)}. The ID of the input is now {', '.join(now) or 'unknown'}. "
            f"{remedy}"
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
        # A removed file may have returned with another content.
        if known is None or options.key or identity_of(known) != identity_of(file):
            file["generation"] = number
        elif "generation" in known:
            file["generation"] = known["generation"]
    # A damaged file may be repaired, so its translations stay even if others are deleted.
    damaged = {*changes.damaged, *(saved["bad_files"].keys() & plan["bad_files"].keys())}
    keeps_all = not options.key and options.removed != DELETE
    dropped = {*changes.untranslated, *plan["bad_files"]}
    taken = {output_stem(name) for name in plan["input"]}
    plan["input"] |= {
        name: {**file, "removed": True}
        for name, file in saved["input"].items()
        if name not in plan["input"]
        and (
            name in damaged
            or (keeps_all and name not in dropped and output_stem(name) not in taken)
        )
    }
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
            is_removed=True,
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
    if options.key and (changes.new or changes.changed or changes.removed):
        return ["the input changed: only rows with a new key or a new text are translated"]
    is_deleted = options.removed == DELETE
    kinds = (
        (changes.new, "new", "translated"),
        (changes.changed, "changed", "translated again"),
        (changes.removed, "removed", "translations deleted" if is_deleted else "translations kept"),
        (changes.damaged, "damaged", "translations kept"),
    )
    return [
        f"{counted(len(names), f'{kind} input file')}, {result}: "
        f"{', '.join(first_few(names, noun='files'))}"
        for names, kind, result in kinds
        if names
    ]
