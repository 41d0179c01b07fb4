"""Conditions in SQL: which rows they choose, and which conditions are refused."""

import datetime as dt
import os
import time

import pyarrow as pa
import pytest

from tt.model.errors import ColumnsError, UserError
from tt.pipelines.tables.conditions import ConditionError, parse_condition

MOMENTS = [dt.datetime(2024, 1, 1, 23, 30, tzinfo=dt.UTC), dt.datetime(1999, 5, 6, tzinfo=dt.UTC)]
ROWS = pa.table(
    {
        "id": [1, 2, None],
        "Lang": pa.array(["de", "en", None]).dictionary_encode(),
        "tags": [["a", "b"], [], None],
        "product": [{"price": 5}, {"price": 20}, None],
        "moment": pa.array([*MOMENTS, None], pa.timestamp("us", "Asia/Tokyo")),
        "raw": pa.array([b"caf\xe9", b"ok", None]).view(pa.string()),
        "nothing": pa.nulls(3),
        "half": pa.array([1, 2, 3], pa.float16()),
        "a.b": ["x", "y", "z"],
    }
)


def choose(expression, table=ROWS):
    condition = parse_condition(expression)
    chosen = table.select(condition.columns(table.column_names, path="in.parquet"))
    condition.check(chosen.schema, path="in.parquet")
    return condition.choose_rows(chosen)


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("id > 1", [1]),
        ("NOT id > 1", [0]),  # null is neither true nor false
        ("id IS NULL OR id = 1", [0, 2]),
        ("lang = 'de'", [0]),
        ("\"a.b\" = 'y'", [1]),
        ("lang IN ('de', 'fr') AND id BETWEEN 1 AND 5 -- a comment", [0]),
        ("product.price > 10", [1]),
        ("list_contains(tags, 'b')", [0]),
        ("len(list_filter(tags, lambda tag: tag > 'a')) > 0", [0]),
        ("year(moment) = 2024", [0]),
        ("moment > '2024-01-01'", [0]),
        ("upper(raw) = 'OK'", [1]),
        ("raw = 'caf\ufffd'", [0]),
        ("length(nothing) > 0", []),
        ("nothing", []),
        ("TRY_CAST(raw AS INTEGER) > 0", []),
        ("if(id > 1, true, false)", [1]),
        ("regexp_matches(lang, '^d')", [0]),
    ],
)
def test_only_rows_for_which_the_condition_is_true_are_chosen(expression, rows):
    assert [row for row, is_chosen in enumerate(choose(expression)) if is_chosen] == rows


def test_rows_of_a_large_table_keep_their_order():
    numbers = pa.table({"id": range(300_000)})
    assert choose("id % 7 = 3", numbers) == [number % 7 == 3 for number in range(300_000)]


def test_the_time_zone_of_the_machine_has_no_influence(monkeypatch):
    found = []
    for zone in ("Asia/Tokyo", "America/New_York"):
        monkeypatch.setitem(os.environ, "TZ", zone)
        time.tzset()
        found.append(choose("hour(moment) = 23"))
    monkeypatch.undo()
    time.tzset()
    assert found == [[True, False, False]] * 2


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("id >", "must be a condition in DuckDB's SQL, but DuckDB cannot parse it: syntax error"),
        ("", "must be a condition in DuckDB's SQL"),
        ("id > 1; SELECT 2", "must be a condition in DuckDB's SQL"),
        ("id > 1) OR (true", "must be a condition in DuckDB's SQL"),
        ("id > 1 FROM other", "must be a condition in DuckDB's SQL"),
        ("true", "must name at least one column"),
        ("len(list_filter([1], lambda v: v > 0)) > 0", "must name at least one column"),
        ("id IN (SELECT 1)", "cannot contain a subquery"),
        ("sum(id) > 1", r"cannot contain sum\(\)"),
        ("geomean(id) > 1", r"cannot contain avg\(\)"),  # a macro
        ("row_number() OVER () > id", "cannot contain a window function"),
        ("unnest(tags) = 'a'", r"cannot contain unnest\(\)"),
        ("id > random()", r"cannot contain random\(\)"),
        ("moment < NOW()", r"cannot contain now\(\)"),
        ("moment < ago(INTERVAL 1 DAY)", r"cannot contain ago\(\)"),
        ("age(moment) > INTERVAL 1 DAY", r"cannot contain age\(\)"),
        ("read_text('/etc/hostname') = raw", r"cannot contain read_text\(\)"),
        ("id = ?", "cannot contain a parameter"),
        ("COLUMNS(*) = 1", r"cannot contain \*"),
    ],
)
def test_conditions_that_are_not_about_one_row_are_refused(expression, message):
    with pytest.raises(UserError, match=message) as caught:
        choose(expression)
    assert f"Received: {expression}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("id", "`where` must be true or false for each row, but its values are int64 in "
         "in.parquet. Add a comparison to the condition. Received: id"),
        ("lenght(raw) > 1", "`where` does not match the columns of in.parquet: Scalar Function "
         'with name lenght does not exist! Did you mean "length"?. Correct `where`'),
        ("length(id) > 1", "`where` does not match the columns of in.parquet: No function matches "
         "the given name and argument types 'length(BIGINT)'. You might need to add explicit type "
         "casts. Correct `where`"),
    ],
)  # fmt: skip
def test_conditions_that_do_not_match_the_columns_are_refused(expression, message):
    with pytest.raises(ColumnsError) as caught:
        choose(expression)
    assert str(caught.value) == message


def test_columns_of_types_that_duckdb_lacks_are_refused_only_if_they_are_used():
    kinds = pa.schema([("union", pa.dense_union([pa.field("a", pa.int8())])), ("id", pa.int8())])
    condition = parse_condition('"union" IS NULL')
    with pytest.raises(ColumnsError, match=r"does not match the columns of a\.arrow"):
        condition.check(pa.schema([kinds.field("union")]), path="a.arrow")
    assert parse_condition("id = 1").columns(kinds.names, path="a.arrow") == ["id"]
    with pytest.raises(ColumnsError, match="Unsupported"):
        choose("half > 1")


def test_missing_and_ambiguous_columns_are_refused():
    with pytest.raises(ConditionError) as caught:
        parse_condition("langs = 'de'").columns(["id", "lang"], path="in.parquet")
    assert str(caught.value) == (
        "`where` uses the column 'langs', but in.parquet has no such column. Its columns: id, lang"
    )
    condition = parse_condition("list_filter(tags, x -> x > 'a') = langs")
    with pytest.raises(ConditionError, match="uses the column 'langs'"):  # after a parameter
        condition.columns(["tags", "lang"], path="in.parquet")
    condition = parse_condition("A = 1")
    assert condition.columns(["a", "A"], path="in.parquet") == ["A"]
    for expression, names in (("A = 1", ["a", "a"]), ("A = 1 OR a = 2", ["A", "a"])):
        with pytest.raises(ConditionError, match="several columns with this name"):
            parse_condition(expression).columns(names, path="in.parquet")


def test_a_value_at_which_the_condition_fails_is_a_user_error():
    with pytest.raises(UserError) as caught:
        choose("CAST(raw AS INTEGER) > 0")
    assert str(caught.value).startswith("`where` fails at a row: Could not convert string 'caf")
    assert str(caught.value).endswith(
        "Use TRY or TRY_CAST in the condition. Received: CAST(raw AS INTEGER) > 0"
    )
