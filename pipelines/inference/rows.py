"""Rows with translations beside their texts: dicts, `beam.Row`s and named tuples."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.typehints.row_type import RowTypeConstraint

from model.errors import UserError, require
from pipelines.inference.text_model import encode_text
from pipelines.texts.columns import (
    ERROR,
    N_BEST,
    ROW_FLAGS,
    SCORE,
    STATUS,
    TRANSLATION,
    VALUES,
    added_names,
)
from pipelines.texts.translating import FAILED, TranslatedText

Row = Any  # a mapping, a `beam.Row` or a named tuple
_LISTS = (typehints.ListConstraint, typehints.SequenceTypeConstraint)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowFields:
    """Which fields of a row are texts, and how those are called that are added.

    Attributes:
      fields: The fields to translate, at least one: strings, bytes, None, or lists of them.
      output: What the name of the translation is; those of the others begin with it.
      has_n_best: Whether the n best translations are added.
      lists: Those of the fields that hold lists by the rows' schema, whatever a row holds.
    """

    fields: tuple[str, ...]
    output: str = TRANSLATION
    has_n_best: bool = False
    lists: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        require(bool(self.fields) and all(self.fields), "`field` is empty: name one of the rows'")
        twice = sorted({name for name in self.fields if self.fields.count(name) > 1})
        require(not twice, "each of `field` must be another field", f"{', '.join(twice)} twice")
        require(bool(self.output), "`output` is empty: name the field of the translation")

    def name(self, field: str, added: str) -> str:
        """Returns the name of an added field: with the text's before it if several are translated.

        >>> RowFields(fields=("a", "b"), output="german").name("a", "translation_score")
        'a_german_score'
        """
        name = self.output + added.removeprefix(TRANSLATION)
        return name if len(self.fields) == 1 else f"{field}_{name}"

    def added(self) -> list[tuple[str, str]]:
        """Returns the text's field and the kind of each added one, in their order."""
        kinds = added_names(has_n_best=self.has_n_best)
        return [(field, kind) for field in self.fields for kind in kinds]

    def check_names(self, names: Sequence[str], *, of: str = "the rows") -> None:
        """Checks that what is added has names of its own.

        Raises:
          UserError: A field of such a name is there already.
        """
        for field, kind in self.added():
            name = self.name(field, kind)
            require(
                name not in names,
                f"{of} have a field {name} already: name another `output` than {self.output!r}",
            )


def row_values(row: Row) -> dict[str, Any]:
    """Returns the fields of a row.

    Raises:
      UserError: It is no row.
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
    """The texts of a field of a row."""

    cells: list[bytes | None]
    is_list: bool = False
    error: str = ""  # why there are none

    @classmethod
    def of(cls, values: Mapping[str, Any], field: str, *, is_list: bool = False) -> FieldTexts:
        """Takes the texts of a field; in place of a list that is None, one text that is None."""
        if field not in values:
            known = ", ".join(values) or "none"
            return cls([], is_list=is_list, error=f"the row has no field {field}, but {known}")
        value = values[field]
        texts = value if isinstance(value, list | tuple) else [value]
        for text in texts:
            if text is not None and not isinstance(text, str | bytes):
                kind = type(text).__name__
                error = f"{field} must be a text or a list of texts: it is {kind}"
                return cls([], is_list=is_list, error=error)
        return cls([encode_text(text) for text in texts], is_list=is_list or texts is value)


@dataclasses.dataclass(frozen=True)
class OpenRow:
    """A row whose texts are translated."""

    values: dict[str, Any]
    is_dict: bool
    texts: dict[str, FieldTexts]
    fields: RowFields

    @classmethod
    def of(cls, row: Row, *, fields: RowFields) -> OpenRow:
        """Opens a row.

        Raises:
          UserError: It is no row, or has fields of the names that are added.
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

    def take(self, found: Iterator[TranslatedText]) -> list[TranslatedText]:
        """Takes a translation for each text; a field that holds no text gets its failure."""
        taken = []
        for texts in self.texts.values():
            if texts.error:
                taken.append(TranslatedText(status=FAILED, error=texts.error))
            else:
                taken += itertools.islice(found, len(texts.cells))
        return taken

    def with_translations(self, taken: Sequence[TranslatedText]) -> Row:
        """Returns the row with what is added: a dict for a mapping, else a `beam.Row`.

        Args:
          taken: What `take` returned.
        """
        rest = iter(taken)
        of_field = {
            field: list(itertools.islice(rest, 1 if texts.error else len(texts.cells)))
            for field, texts in self.texts.items()
        }
        added: dict[str, Any] = {}
        for field, kind in self.fields.added():
            values = [VALUES[kind](each) for each in of_field[field]]
            if kind == N_BEST and not self.is_dict:
                values = [each and [beam.Row(**best) for best in each] for each in values]
            is_list = self.texts[field].is_list
            added[self.fields.name(field, kind)] = values if is_list else values[0]
        return {**self.values, **added} if self.is_dict else beam.Row(**self.values, **added)


_HYPOTHESIS: Any = RowTypeConstraint.from_fields([("text", str), ("score", float)])
# What is added for a text, as the field of a schema.
_TYPES: dict[str, Any] = {
    TRANSLATION: str | None,
    SCORE: float | None,
    STATUS: str,
    ERROR: str | None,
    ROW_FLAGS: Sequence[str],
    N_BEST: Sequence[_HYPOTHESIS] | None,
}


def find_lists(kind: Any, *, fields: RowFields) -> frozenset[str]:
    """Returns those of the fields that hold lists, or None, by the type of the rows."""
    types = dict(schema._fields) if (schema := _schema_of(kind)) else {}
    return frozenset(field for field in fields.fields if _is_list(types.get(field, Any)))


def _schema_of(kind: Any) -> RowTypeConstraint | None:
    return kind if isinstance(kind, RowTypeConstraint) else RowTypeConstraint.from_user_type(kind)


def _is_list(kind: Any) -> bool:
    found = convert_to_beam_type(kind)
    if typehints.is_nullable(found):
        found = typehints.get_concrete_type_from_nullable(found)
    return isinstance(found, _LISTS)


def translated_type(kind: Any, *, fields: RowFields) -> Any:
    """Returns the type of rows with what is added, by the type of the rows.

    What is added to a list that may be None are lists that may not: see `FieldTexts`.

    Raises:
      UserError: Its schema lacks a field, or has one of a name that is added.
    """
    schema = _schema_of(kind)
    if schema is None:
        is_dict = isinstance(kind, typehints.DictConstraint) or kind is dict
        return dict[str, Any] if is_dict else Any
    types = dict(schema._fields)
    for field in fields.fields:
        known = ", ".join(types)
        require(field in types, f"the rows have no field {field}: `field` must be one of {known}")
    fields.check_names(list(types))
    added = []
    for field, each in fields.added():
        is_list = _is_list(types[field])
        of_text: Any = _TYPES[each]
        added.append((fields.name(field, each), Sequence[of_text] if is_list else of_text))
    return RowTypeConstraint.from_fields([*types.items(), *added])
