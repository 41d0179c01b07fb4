"""Choose the input columns that the output contains."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tt.model.errors import BadFileError, require


class ChoiceError(BadFileError):
    """A file lacks a column that the user chose."""

    remedy = "Correct `keep_columns` or `drop_columns`"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnChoice:
    """A choice of input columns.

    Attributes:
      keep: The columns that the output contains; empty for all columns.
      drop: The columns that the output does not contain.
    """

    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    @classmethod
    def of(cls, *, keep: Sequence[str], drop: Sequence[str]) -> ColumnChoice:
        """Create a choice from the lists of a user, whose names can be separated by commas.

        Raises:
          UserError: A name is empty, or both lists contain names.

        >>> ColumnChoice.of(keep=["id,text", "lang"], drop=[])
        ColumnChoice(keep=('id', 'lang', 'text'), drop=())
        """
        lists = {"keep_columns": keep, "drop_columns": drop}
        found = {
            name: sorted({part.strip() for each in values for part in each.split(",")})
            for name, values in lists.items()
        }
        for name, values in found.items():
            received = ",".join(lists[name])
            require("" not in values, f"`{name}` must be a list of column names", repr(received))
        require(
            not (keep and drop),
            "`keep_columns` and `drop_columns` contradict each other. Remove either option",
        )
        return cls(keep=tuple(found["keep_columns"]), drop=tuple(found["drop_columns"]))

    def __bool__(self) -> bool:
        """Whether the user chose columns."""
        return bool(self.keep or self.drop)

    def keeps(self, name: str) -> bool:
        """Return whether the output contains an input column."""
        return name in self.keep if self.keep else name not in self.drop

    def check(self, names: Sequence[str], *, path: str) -> None:
        """Check that a file has the chosen columns.

        Args:
          names: The names of all columns of the file.
          path: The path of the file, for messages.

        Raises:
          ChoiceError: A column is missing.
        """
        for name in (*self.keep, *self.drop):
            if name not in names:
                option = "keep_columns" if self.keep else "drop_columns"
                raise ChoiceError(
                    f"`{option}` names the column {name!r}, but {path} has no such column. Its "
                    f"columns: {', '.join(names) or 'none'}"
                )
