"""Find the options that no case uses."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from tt.cli.main import load_command

COMMANDS = ("preprocess", "train", "translate-batch", "translate", "show", "evaluate")


def unused_options(scripts: Iterable[str], options: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the options that no script uses, such as "tt train --steps".

    Args:
      scripts: The scripts of the cases.
      options: The long options of each command.
    """
    used: dict[str, set[str]] = {command: set() for command in options}
    for script in scripts:
        for line in script.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["until"]:
                words = words[2:]
            if words[:1] == ["tt"] and words[1:2] and words[1] in used:
                used[words[1]].update("--verbose" if each == "-v" else each for each in words[2:])
    return [
        f"tt {command} {option}"
        for command, names in options.items()
        for option in names
        if option not in used[command]
    ]


def long_options(command: str) -> list[str]:
    """Return the long options of a command."""
    parameters = load_command(command).params
    names = [name for each in parameters for name in (*each.opts, *each.secondary_opts)]
    return [name for name in names if name.startswith("--")]
