"""Start a tt job when Dataflow launches its Flex Template.

The launcher runs this file with the template's parameters and with Beam's own flags, all as
--name=value. The parameters become flags of tt, and all other arguments become flags of Beam. The
environment variable TT_JOB of the image chooses the job; see deploy/flex/Dockerfile.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tt.cli.main import main

_ARGUMENTS = ("corpora", "input")  # parameters that are arguments of the command, not flags
_REPEATABLE = ("exclude", "text_column", "validation", "vocab")  # flags with several values


def read_parameters(job: str) -> list[str]:
    """Return the names of a template's parameters."""
    metadata = json.loads((Path(__file__).parent / f"{job}.json").read_text("utf-8"))
    return [parameter["name"] for parameter in metadata["parameters"]]


def split_values(text: str) -> list[str]:
    """Split a parameter at spaces, except inside double quotes.

    >>> split_values('gs://b/a.tsv  "gs://b/my folder/b.tsv"')
    ['gs://b/a.tsv', 'gs://b/my folder/b.tsv']
    """
    rows = csv.reader(text.splitlines(), delimiter=" ", skipinitialspace=True)
    return [value for row in rows for value in row if value]


def command_of(job: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of tt for the arguments of the launcher.

    If a parameter is an argument or can be repeated, spaces separate its values. The values of
    flags follow `=`, so that a value never becomes a flag.

    >>> command_of("translate-batch", ["--input=gs://b/in", "--text_column=a b", "--region=r"])
    ['translate-batch', 'gs://b/in', '--text-column=a', '--text-column=b', '--', '--region=r']
    """
    parameters = read_parameters(job)
    first: list[str] = []
    flags: list[str] = []
    beam: list[str] = []
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        if name not in parameters:
            beam.append(argument)
        elif name in _ARGUMENTS:
            first += split_values(value)
        else:
            values = split_values(value) if name in _REPEATABLE else [value] * bool(value)
            flags += [f"--{name.replace('_', '-')}={each}" for each in values]
    return [job, *first, *flags, "--", *beam]


if __name__ == "__main__":
    main(command_of(os.environ["TT_JOB"], sys.argv[1:]))
