"""The tables of mutants: single changes to the code that a fast test must detect.

Each `*.toml` in this folder has a table `[tests]`, which names selections of tests, and entries
`[[mutant]]`. An entry has the effect of the change (`name`), the file, a text that occurs in the
file exactly once, its replacement, and the name of the selection that must fail.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """A change that introduces a defect.

    Attributes:
      name: The defect.
      file: Path of the file, relative to the checkout.
      pattern: Text that occurs in the file exactly once.
      replacement: Text that replaces the pattern.
      tests: Arguments for pytest that select tests; at least one of these tests must fail.
    """

    name: str
    file: str
    pattern: str
    replacement: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """Return the text of the file with the change.

        Raises:
          ValueError: The pattern does not occur in the text exactly once.
        """
        found = text.count(self.pattern)
        if found != 1:
            raise ValueError(f"{self.name}: {self.file} has the pattern {found} times, not once")
        return text.replace(self.pattern, self.replacement)


def load_tables(folder: Path = FOLDER) -> list[Mutant]:
    """Return the mutants of all tables."""
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        table = tomllib.loads(path.read_text("utf-8"))
        for fields in table["mutant"]:
            selection = table["tests"][fields["tests"]]
            mutants.append(Mutant(**{**fields, "tests": tuple(selection)}))
    return mutants
