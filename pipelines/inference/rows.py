"""Rows with added translations: dicts, `beam.Row`s and named tuples."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.typehints.row_type import RowTypeConstraint

from tt.model.errors import UserError, require
from tt.pipelines.texts.calling import encode_text
from tt.pipelines.texts.options import TRANSLATION
from tt.pipelines.texts.results import (
    ERROR,
    FAILED,
    N_BEST,
    ROW_FLAGS,
    SCORE,
    SOURCE_LANGUAGE,
    STATUS,
    VALUES,
    TextFields,
    TranslatedText,
)

Row = Any  # a mapping, a `beam.Row` or a named tuple
_LISTS = (typehints.ListConstraint, typehints.SequenceTypeConstraint)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFields(TextFields):
    """The fields of a row to translate, and the names of the added fields.

    Attributes:
      lists: Fields that contain lists according to the rows' schema.
    """

    lists: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        require(bool(self.fields) and all(self.fields), "`field` must name a field of the rows")
        twice = sorted({name for name in self.fields if self.fields.count(name) > 1})
        require(not twice, "`field` must name each field only once", f"{', '.join(twice)} twice")
        require(bool(self.output), "`output` must be the name of a field for the translations")

    def check_names(self, names: Sequence[str]) -> None:
        """Check that the added fields have new names.

        Raises:
          UserError: The rows already have a field with the name of an added one.
        """
        for field, kind in self.added():
            name = self.name(field, kind)
            require(
                name not in names,
                f"the rows already have a field {name}. Choose another `output` than "
                f"{self.output!r}",
            )


def row_values(row: Row) -> dict[str, Any]:
    """Return the fields of a row.

    Raises:
      UserError: The value is not a row.
    """
    if isinstance(row, Mapping):
        return dict(row)
    if isinstance(row, beam.Row) or (isinstance(row, tuple) and hasattr(row, "_asdict")):
        return dict(row._asdict())
    raise UserError(
        f"a row must be a dict, a beam.Row or a named tuple. Received: {type(row).__name__}"
    )


@dataclasses.dataclass(frozen=True)
class FieldTexts:
    """The texts in one field of a row."""

    cells: list[bytes | None]
    is_list: bool = False  # whether the field contains a list of texts
    error: str = ""  # the reason if the field contains no texts

    @classmethod
    def of(cls, values: Mapping[str, Any], field: str, *, is_list: bool = False) -> FieldTexts:
        """Return the texts of a field; if a list is None, return one text that is None."""
        if field not in values:
            known = ", ".join(values) or "none"
            return cls([], is_list=is_list, error=f"the row has no field {field}; it has {known}")
        value = values[field]
        texts = value if isinstance(value, list | tuple) else [value]
        for text in texts:
            if text is not None and not isinstance(text, str | bytes):
                kind = type(text).__name__
                error = f"{field} must be a text or a list of texts. Received: {kind}"
                return cls([], is_list=is_list, error=error)
        return cls([encode_text(text) for text in texts], is_list=is_list or texts is value)


@dataclasses.dataclass(frozen=True)
class OpenRow:
    """A row, with the texts of the fields to translate."""

    values: dict[str, Any]
    is_dict: bool
    texts: dict[str, FieldTexts]
    fields: RowFields

    @classmethod
    def of(cls, row: Row, *, fields: RowFields) -> OpenRow:
        """Open a row.

        Raises:
          UserError: The value is not a row, or already has a field with the name of an added one.
        """
        values = row_values(row)
        fields.check_names(list(values))
        texts = {
            field: FieldTexts.of(values, field, is_list=field in fields.lists)
            for field in fields.fields
        }
        return cls(values, isinstance(row, Mapping), texts, fields)

    @property
    def cells(self) -> list[bytes | None]:
        """The texts of all fields."""
        return [cell for texts in self.texts.values() for cell in texts.cells]

    def take(self, found: Iterator[TranslatedText]) -> dict[str, list[TranslatedText]]:
        """Return the translations of each field; a field without texts gets one failed text."""
        return {
            field: [TranslatedText(status=FAILED, error=texts.error)]
            if texts.error
            else list(itertools.islice(found, len(texts.cells)))
            for field, texts in self.texts.items()
        }

    def with_translations(self, taken: Mapping[str, Sequence[TranslatedText]]) -> Row:
        """Return the row with the added fields, as a dict if it was a mapping, else a `beam.Row`.

        Args:
          taken: The result of `take`.
        """
        added: dict[str, Any] = {}
        for field, kind in self.fields.added():
            values = [VALUES[kind](each) for each in taken[field]]
            if kind == N_BEST and not self.is_dict:
                values = [each and [beam.Row(**best) for best in each] for each in values]
            is_list = self.texts[field].is_list
            added[self.fields.name(field, kind)] = values if is_list else values[0]
        return {**self.values, **added} if self.is_dict else beam.Row(**self.values, **added)


_HYPOTHESIS: Any = RowTypeConstraint.from_fields([("text", str), ("score", float)])
# The types of the added fields in a schema.
_TYPES: dict[str, Any] = {
    TRANSLATION: str | None,
    SCORE: float | None,
    STATUS: str,
    ERROR: str | None,
    ROW_FLAGS: Sequence[str],
    N_BEST: Sequence[_HYPOTHESIS] | None,
    SOURCE_LANGUAGE: str | None,
}


def _is_list(kind: Any) -> bool:
    found = convert_to_beam_type(kind)
    if typehints.is_nullable(found):
        found = typehints.get_concrete_type_from_nullable(found)
    return isinstance(found, _LISTS)


def translated_type(kind: Any, *, fields: RowFields) -> tuple[Any, frozenset[str]]:
    """Return the type of the rows with the added fields, and the fields that contain lists.

    The added lists are never None, even if the list of texts may be None; see `FieldTexts`.

    Args:
      kind: Type of the rows.
      fields: The fields to translate, and the names of the added fields.

    Raises:
      UserError: The schema lacks a field, or already has a field with the name of an added one.
    """
    is_schema = isinstance(kind, RowTypeConstraint)
    schema = kind if is_schema else RowTypeConstraint.from_user_type(kind)
    if schema is None:
        is_dict = isinstance(kind, typehints.DictConstraint) or kind is dict
        return dict[str, Any] if is_dict else Any, frozenset()
    types = dict(schema._fields)
    for field in fields.fields:
        known = ", ".join(types)
        require(field in types, f"the rows have no field {field}. Choose a `field` from: {known}")
    fields.check_names(list(types))
    lists = frozenset(field for field in fields.fields if _is_list(types[field]))
    added = []
    for field, each in fields.added():
        of_text: Any = _TYPES[each]
        added.append((fields.name(field, each), Sequence[of_text] if field in lists else of_text))
    return RowTypeConstraint.from_fields([*types.items(), *added]), lists
