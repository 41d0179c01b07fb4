"""Evaluate a condition in DuckDB's SQL on the rows of a table.

A retry of the same rows must have the same result. Therefore, a condition contains no subquery and
no aggregate, and no function whose result depends on the time, on chance or on settings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from tt.model.errors import BadFileError, ColumnsError, UserError
from tt.pipelines.tables.columns import with_valid_texts

_TABLE = "input"
_SETTINGS: dict[str, Any] = {
    "threads": 1,  # one thread keeps the order of the rows
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
# The nodes of DuckDB's syntax trees that a condition may contain.
_ALLOWED = frozenset((
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT",
    "FUNCTION", "LAMBDA", "LAMBDA_REF", "OPERATOR", "TYPE",
))  # fmt: skip
_NAMES = {  # of some other nodes
    "PARAMETER": "a parameter", "STAR": "*", "SUBQUERY": "a subquery", "WINDOW": "a window function"
}  # fmt: skip
_CONSISTENT, _DEPENDS_ON_SETTINGS = "CONSISTENT", "CONSISTENT_WITHIN_QUERY"
_TIMES = ("DATE", "TIME")  # the beginnings of the names of types that depend on the time zone
_DEPENDS_ON_TODAY = ("age",)  # DuckDB calls it consistent, but `age(time)` uses the current date
# DuckDB's errors that a condition or a value can cause.
_ERRORS = (duckdb.DataError, duckdb.NotSupportedError, duckdb.ProgrammingError)


class ConditionError(BadFileError):
    """The columns of a file do not match the condition."""

    remedy = "Correct `where`"


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition that `parse_condition` has parsed.

    Attributes:
      expression: The condition, in DuckDB's SQL.
      names: The names that can be columns, without the names of struct fields.
      parameters: The names that can also be parameters of lambda functions.
    """

    expression: str
    names: tuple[str, ...]
    parameters: frozenset[str]

    def columns(self, names: Sequence[str], *, path: str) -> list[str]:
        """Return the columns of a file that the condition uses.

        Like in DuckDB, upper and lower case are equal, unless a column has exactly the name.

        Args:
          names: The names of all columns of the file.
          path: The path of the file, for messages.

        Raises:
          ConditionError: A column is missing, or several columns have its name.
          UserError: The condition uses no column.
        """
        found: dict[str, str] = {}
        for name in self.names:
            exact = [each for each in names if each == name]
            matches = exact or [each for each in names if each.lower() == name.lower()]
            if not matches and name in self.parameters:
                continue
            if not matches:
                raise ConditionError(
                    f"`where` uses the column {name!r}, but {path} has no such column. Its "
                    f"columns: {', '.join(names) or 'none'}"
                )
            other = found.setdefault(name.lower(), matches[0])
            if len(matches) > 1 or other != matches[0]:
                raise ConditionError(
                    f"`where` uses the column {name!r}, but {path} has several columns with this "
                    "name in upper or lower case"
                )
        if not found:
            raise UserError(
                "`where` must name at least one column of the input, as in 'price > 10'. "
                f"Received: {self.expression}"
            )
        return list(found.values())

    def check(self, schema: pa.Schema, *, path: str) -> None:
        """Check that the condition is true or false for rows with this schema.

        Args:
          schema: The schema of the columns that the condition uses.
          path: The path of the file, for messages.

        Raises:
          ColumnsError: The types of the columns do not match the condition.
        """
        try:
            kind = _find_type(self.expression, schema.remove_metadata())
        except (*_ERRORS, pa.ArrowException) as error:
            raise ColumnsError(
                f"`where` does not match the columns of {path}: {_reason(error)}. Correct `where`"
            ) from error
        # A JSONL column has Arrow's type null if all its values are null.
        if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise ColumnsError(
                f"`where` must be true or false for each row, but its values are {kind} in {path}. "
                f"Add a comparison to the condition. Received: {self.expression}"
            )

    def choose_rows(self, table: pa.Table) -> list[bool]:
        """Return whether the condition is true, for each row of a table.

        Args:
          table: The columns that the condition uses.

        Raises:
          UserError: The condition fails at a value.
        """
        try:
            return [value is True for value in _evaluate(self.expression, table).to_pylist()]
        except _ERRORS as error:
            raise UserError(
                f"`where` fails at a row: {_reason(error)}. Use TRY or TRY_CAST in the condition. "
                f"Received: {self.expression}"
            ) from error


@functools.lru_cache(maxsize=8)
def parse_condition(expression: str) -> Condition:
    """Parse a condition, and check that its result depends only on the columns of a row.

    Raises:
      UserError: The text is not an expression in DuckDB's SQL, or it contains a subquery, an
        aggregate, or a function whose result is not always the same.

    >>> parse_condition("product.price > 10 AND lang = 'de'").names
    ('product', 'lang')
    """
    with _connect() as connection:
        parts = _find_parts(_parse(connection, expression), expression=expression)
        _check_functions(connection, parts.functions, expression=expression)
    return Condition(expression, tuple(parts.names), frozenset(parts.parameters))


@contextlib.contextmanager
def _connect() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config=_SETTINGS) as connection:
        connection.execute("SET TimeZone = 'UTC'")  # the default is the time zone of the machine
        connection.execute("SET lock_configuration = true")
        yield connection


@functools.lru_cache(maxsize=64)  # most files of a job have the same schema
def _find_type(expression: str, schema: pa.Schema) -> pa.DataType:
    return _evaluate(expression, schema.empty_table()).type


def _evaluate(expression: str, table: pa.Table) -> pa.ChunkedArray:
    for index, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        # Some of DuckDB's functions fail if a text is not UTF-8.
        table = table.set_column(index, name, with_valid_texts(column, is_nullable=False))
    with _connect() as connection:
        connection.register(_TABLE, table)
        query = connection.sql(f"SELECT {_in_parentheses(expression)} FROM {_TABLE}")
        return query.to_arrow_table().column(0)


def _in_parentheses(expression: str) -> str:
    return f"(\n{expression}\n)"  # the last line may end with a comment


def _parse(connection: duckdb.DuckDBPyConnection, expression: str) -> Any:
    """Return the syntax tree of an expression."""
    # Parentheses exclude further clauses. Parse the expression without parentheses first, so that
    # no message is about a parenthesis of this module.
    for sql in (expression, _in_parentheses(expression)):
        query = "SELECT json_serialize_sql(?::VARCHAR)"
        [[content]] = connection.execute(query, [f"SELECT {sql}"]).fetchall()
        found = json.loads(content)
        if found["error"]:
            raise UserError(
                "`where` must be a condition in DuckDB's SQL, but DuckDB cannot parse it: "
                f"{found['error_message']}. Correct `where`. Received: {expression}"
            )
    [statement] = found["statements"]
    return statement["node"]["select_list"]


class _Parts(NamedTuple):
    names: dict[str, None]  # of columns and parameters, in their order
    parameters: set[str]  # of lambda functions
    functions: set[str]


def _find_parts(tree: Any, *, expression: str) -> _Parts:
    """Return the names in a syntax tree.

    Raises:
      UserError: The tree contains more than an expression about one row.
    """
    found = _Parts({}, set(), set())
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            kind = node.get("class")
            if kind not in _ALLOWED and kind is not None:
                raise _not_about_a_row(_NAMES.get(str(kind), str(kind)), expression=expression)
            if kind == "COLUMN_REF":
                found.names[node["column_names"][0]] = None
            elif kind == "FUNCTION":
                found.functions.add(node["function_name"].lower())
            elif kind == "LAMBDA":
                found.parameters.update(_find_parts(node["lhs"], expression=expression).names)
            node = list(node.values())
        if isinstance(node, list):
            nodes.extend(reversed(node))
    return found


def _check_functions(
    connection: duckdb.DuckDBPyConnection, names: Iterable[str], *, expression: str
) -> None:
    """Check that functions always have the same result for the same row.

    DuckDB itself reports functions that do not exist.

    Raises:
      UserError: A function is an aggregate, or depends on the time, on chance or on settings.
    """
    pending, seen = [*names], set[str]()
    while pending:
        name = pending.pop()
        seen.add(name)
        for kind, stability, types, parameters, definition in connection.execute(
            "SELECT function_type, stability, parameter_types, parameters, macro_definition "
            "FROM duckdb_functions() WHERE function_name = ? AND function_type <> 'pragma'",
            [name],
        ).fetchall():
            if kind == "macro":
                inside = _find_parts(_parse(connection, definition), expression=expression)
                # Names such as current_timestamp are functions without parentheses.
                if inside.names.keys() - inside.parameters - set(parameters):
                    raise _not_about_a_row(f"{name}()", expression=expression)
                pending += inside.functions - seen
            elif not _is_deterministic(name, kind=kind, stability=stability, types=types):
                raise _not_about_a_row(f"{name}()", expression=expression)


def _is_deterministic(name: str, *, kind: str, stability: str, types: Sequence[str]) -> bool:
    if kind != "scalar" or name in _DEPENDS_ON_TODAY:
        return False
    has_time = any(each.startswith(_TIMES) for each in types)
    return stability == _CONSISTENT or (stability == _DEPENDS_ON_SETTINGS and has_time)


def _not_about_a_row(what: str, *, expression: str) -> UserError:
    return UserError(
        "`where` must depend only on the values of one row, so it cannot contain "
        f"{what}. Remove it from the condition. Received: {expression}"
    )


def _reason(error: Exception) -> str:
    """Return the message of a DuckDB error, without candidates and the quoted query."""
    text = re.split(r"\n\n|\n\tCandidate", str(error))[0]
    return " ".join(text.split()).removesuffix(".").partition("Error: ")[2] or text
