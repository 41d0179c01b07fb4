"""Parquet corpora: direct reads and chunks, nested columns, and damaged files."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import open_named
from encryption import write_encrypted
from memory_store import MemoryStore
from unit_reading import read

from tt.model.errors import UserError
from tt.model.text.normalization import MAX_TEXT_BYTES
from tt.pipelines.preprocess import sources as corpora_rows
from tt.pipelines.preprocess.corpora import open_corpora
from tt.pipelines.preprocess.parquet_columns import ParquetColumns, open_columns
from tt.pipelines.preprocess.sources import decode_columns
from tt.pipelines.texts.flags import TRANSLATED
from tt.pipelines.texts.results import STATUSES


def test_null_structs_and_a_column_with_a_dot_in_its_name(tmp_path):
    kind = pa.struct([("en", pa.string()), ("id", pa.int64())])
    table = pa.table(
        {
            "t": pa.array([{"en": "a", "id": 1}, None, {"en": None, "id": 3}], kind),
            "u.de": ["x", "y", "z"],
            "u": pa.array([{"de": "-"}] * 3),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetColumns(str(tmp_path / "a.parquet"), "t.en", "u.de")
    assert read(source, tmp_path) == [("a", "x", None), (None, "y", None), (None, "z", None)]
    assert source.text_bytes() > 0


def test_invalid_utf8_in_parquet_is_a_fault_of_its_row_only(tmp_path):
    broken = pa.array([b"a", b"b\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"s": broken, "t": ["x", "y"]}), tmp_path / "a.parquet")
    source = ParquetColumns(str(tmp_path / "a.parquet"), "s", "t")
    assert read(source, tmp_path) == [("a", "x", None), ("b\ufffd", "y", "invalid_utf8")]


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_cell_above_the_limit_is_a_fault_of_its_row_only(tmp_path, kind):
    long = pa.array(["a", "b" * (MAX_TEXT_BYTES + 1), None]).cast(kind)
    pq.write_table(pa.table({"s": long, "t": ["x", "y", "z"]}), tmp_path / "a.parquet")
    source = ParquetColumns(str(tmp_path / "a.parquet"), "s", "t")
    assert read(source, tmp_path) == [
        ("a", "x", None), (None, "y", "too_many_characters"), (None, "z", None),
    ]  # fmt: skip


def write_numbers(path, rows, *, row_group_size):
    texts = [str(i) for i in range(rows)]
    pq.write_table(pa.table({"s": texts, "t": texts}), path, row_group_size=row_group_size)
    return ParquetColumns(str(path), "s", "t"), [(text, text, None) for text in texts]


@pytest.mark.parametrize(("use_dictionary", "is_typed"), [(False, False), (True, True)])
def test_parquet_slices_have_limited_bytes_for_rows_of_unequal_lengths(
    tmp_path, monkeypatch, use_dictionary, is_typed
):
    texts = [f"row {i}" if i // 100 != 20 else "x" * 3000 for i in range(4000)]
    column = pa.array(texts)
    table = pa.table({"s": column.dictionary_encode() if is_typed else column, "t": texts})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=2500, use_dictionary=use_dictionary)
    monkeypatch.setattr(corpora_rows, "SLICE_BYTES", 40_000)
    decoded = []
    monkeypatch.setattr(
        "tt.pipelines.preprocess.sources.decode_columns",
        lambda *sides, faults: (
            decoded.append(sum(side.nbytes for side in sides))
            or decode_columns(*sides, faults=faults)
        ),
    )
    source = ParquetColumns(str(path), "s", "t")
    assert read(source, tmp_path) == [(text, text, None) for text in texts]
    assert max(decoded) <= 40_000 + 2 * 8 * 2500, "the values and their offsets"


def test_damaged_parquet_is_a_user_error(tmp_path):
    source, _ = write_numbers(tmp_path / "a.parquet", 5000, row_group_size=5000)
    path = tmp_path / "a.parquet"
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[:-20], b"text\n" * 100):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"is not a (readable )?Parquet file.* Fetch") as caught:
            open_columns(str(path), [("s", "t")])
        assert "\n" not in str(caught.value)
    damaged = bytearray(whole)
    damaged[4:40] = bytes(36)
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"cannot be read \(rows 0 to 4,999, ") as caught:
        read(source, tmp_path)
    assert "\n" not in str(caught.value)


def test_languages_are_the_default_column_names_if_such_columns_exist(tmp_path):
    path = str(tmp_path / "a.parquet")
    for names, expected in [
        (["en", "de"], ("en", "de")),
        (["source", "target"], ("source", "target")),
        (["source", "target", "en", "de"], ("en", "de")),
    ]:
        pq.write_table(pa.table({name: ["x"] for name in names}), path)
        [source] = open_named(corpora=[path], source_language="en", target_language="de")
        assert (source.source_column, source.target_column) == expected
    with pytest.raises(UserError, match="has no column 'fr'"):
        open_named(corpora=[path], source_column="fr")


def test_bad_translations_get_faults_with_their_status_or_flag(tmp_path):
    names = [*TRANSLATED, *(status for status in STATUSES if status not in TRANSLATED), None]
    table = pa.table(
        {
            "title": [f"text {i}" for i in range(len(names) + 1)],
            "title_translation": ["x"] * (len(names) + 1),
            "title_translation_score": pa.array([0.0] * (len(names) + 1), pa.float32()),
            "title_translation_status": ["ok", *names],
            "title_translation_error": pa.nulls(len(names) + 1, pa.string()),
            "title_translation_flags": [["repeats", "copy"], *([[]] * len(names))],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetColumns(str(tmp_path / "a.parquet"), "title", "title_translation")
    faults = [fault for _, _, fault in read(source, tmp_path)]
    others = [f"translation_{status}" for status in names[2:-1]]
    assert faults == ["flag_repeats", None, None, *others, "translation_other"]
    assert set(corpora_rows.STATUS_FAULTS) == {*STATUSES} - {*TRANSLATED}
    # The same holds if the translation is the source, as in back-translations.
    back = ParquetColumns(str(tmp_path / "a.parquet"), "title_translation", "title")
    assert [fault for _, _, fault in read(back, tmp_path)] == faults
    # Other programs also write some of these columns.
    for name in ("score", "status", "error"):
        others = table.drop_columns(f"title_translation_{name}")
        pq.write_table(others, tmp_path / "a.parquet")
        assert {fault for _, _, fault in read(source, tmp_path)} == {None}


def test_folder_of_translations_as_a_corpus(tmp_path):
    table = pa.table(
        {"source": ["a"], "translation": ["b"], "translation_score": [0.5],
         "translation_status": ["ok"]}
    )  # fmt: skip
    folder = tmp_path / "translated"
    ignored = ("_tt/rows/three.parquet", "_old/four.parquet", "deep/.five.parquet")
    for name in ("one.parquet", "deep/er/two.parquet", *ignored):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / name)
    name = f"{folder}/:source:translation"
    found = open_named(corpora=[f"mine={name}"])
    assert [source.paths() for source in found] == [
        [f"{folder}/deep/er/two.parquet"], [f"{folder}/one.parquet"],
    ]  # fmt: skip
    assert {source.name for source in found} == {"mine"}
    (folder / "_tt/plan.json").write_text("{}")
    for each in (name, f"{tmp_path}/:source:translation", f"{tmp_path}/t*/:source:translation"):
        with pytest.raises(
            UserError, match=rf"{folder} is incomplete\. Run the command of its job"
        ):
            open_named(corpora=[each])
    (folder / "_tt/manifest.json").write_text("{}")
    assert len(open_named(corpora=[name])) == 2
    with pytest.raises(UserError, match=r"two\.parquet has no column 'target', or has it twice"):
        open_named(corpora=[f"{folder}/"])
    with pytest.raises(UserError, match=r"no Parquet file found in .*/_tt/units/\. Check the path"):
        open_named(corpora=[f"{folder}/_tt/units/:source:translation"])


@pytest.mark.parametrize(("name", "folder_name"), [("", "bt"), ("bt=", "bt[1]"), ("", "b*")])
def test_folder_of_pairs_needs_no_columns(tmp_path, name, folder_name):
    folder = tmp_path / folder_name
    folder.mkdir()
    pq.write_table(pa.table({"source": ["a"], "target": ["b"]}), folder / "x.parquet")
    [found] = open_named(corpora=[f"{name}{folder}/"], source_language="en", target_language="de")
    assert read(found, tmp_path) == [("a", "b", None)]
    assert found.name == (name.rstrip("=") or f"{folder}/x.parquet")
    if not name:
        with pytest.raises(UserError, match=re.escape(f"or {folder}/ for all its Parquet files")):
            open_named(corpora=[str(folder)])


@pytest.mark.parametrize(
    ("column", "is_local"), [("source", True), ("other", True), ("target", False)]
)
def test_encrypted_columns_are_errors(tmp_path, column, is_local):
    """Arrow kills a process that reads the metadata of such a column."""
    table = pa.table({"source": ["a"], "target": ["x"], "other": [1]})
    path = write_encrypted(tmp_path / "corpus.parquet", table, columns=[column])
    name = str(path)
    if not is_local:
        name = "mem://b/corpus.parquet"
        MemoryStore.put(name, path.read_bytes())
    with pytest.raises(UserError, match="has encrypted columns, which tt cannot read"):
        open_corpora([name])
    MemoryStore.clear()
