"""`tt memory`: add, export and show the translations of a memory."""

from __future__ import annotations

import sys
from typing import Annotated

from tt.cli.decorators import command
from tt.cli.errors import say
from tt.cli.flags_of_fields import options_of
from tt.model.errors import counted
from tt.pipelines.memory.options import ADD, EXPORT, MemoryRequest
from tt.pipelines.runners.status_line import TimeLine

_MEMORY = options_of(
    MemoryRequest,
    panels={
        "Add": ("source_column", "target_column"),
        "Export": ("format", "output", "kind", "overwrite"),
    },
    flags={"action": "ACTION", "files": "FILES"},
)


@command()
def memory_command(request: Annotated[MemoryRequest, _MEMORY]) -> None:
    """Add human translations to a translation memory, or export or show it.

    `tt memory add` adds the human translations in tables and TMX files. `tt memory export` writes a
    TMX or Parquet file. `tt memory show` counts the entries.

    Example: tt memory add corrections.tsv --source-language en --target-language de
    """
    from tt.cli.commands.blocks import print_blocks
    from tt.pipelines.memory import actions

    if request.action == ADD:
        with TimeLine("adding", stream=sys.stderr):
            added = actions.add(request)
        if added.skipped:
            rows = counted(added.skipped, "row")
            say(f"tt: warning: skipped {rows} without a text or without a translation")
        if added.conflicts:
            others = counted(added.conflicts, "translation")
            say(f"tt: warning: left out {others} because a later row has the same text")
        say(f"Added: {counted(added.written, 'new translation')} to {request.memory}")
    elif request.action == EXPORT:
        with TimeLine("exporting", stream=sys.stderr):
            exported = actions.export(request, say)
        if exported.skipped:
            entries = counted(exported.skipped, "translation")
            say(f"tt: warning: skipped {entries} with characters that XML cannot contain")
        say(f"Exported: {counted(exported.written, 'translation')} to {request.output}")
    else:
        print_blocks(actions.show(request, say))
