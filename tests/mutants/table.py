"""The tables of single changes to the code that some fast test must notice.

Each `*.toml` beside this file has `[tests]`, names for selections of tests, and `[[mutant]]`s:
what the change means, the file, the text that stands in it exactly once, what takes its place,
and the selection that notices.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """A change that makes the product wrong.

    Attributes:
      name: What is wrong then.
      file: Relative to the checkout.
      pattern: Text that stands in the file exactly once.
      replacement: What takes its place.
      tests: Arguments of pytest: one of these tests at least must fail.
    """

    name: str
    file: str
    pattern: str
    replacement: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """Returns the file's text with the change.

        Raises:
          ValueError: The pattern does not stand in it exactly once.
        """
        found = text.count(self.pattern)
        if found != 1:
            raise ValueError(f"{self.name}: {self.file} has the pattern {found} times, not once")
        return text.replace(self.pattern, self.replacement)


def load_tables(folder: Path = FOLDER) -> list[Mutant]:
    """Returns the mutants of all tables."""
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        table = tomllib.loads(path.read_text("utf-8"))
        for fields in table["mutant"]:
            selection = table["tests"][fields["tests"]]
            mutants.append(Mutant(**{**fields, "tests": tuple(selection)}))
    return mutants
