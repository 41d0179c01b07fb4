"""The actions of `tt memory`: add human translations, export and show a memory."""

from __future__ import annotations

import datetime
import gzip
import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from block_reading import facts_of, table_of
from memory_store import MemoryStore
from translation_jobs import write

from tt.model.engines.translator import Hypothesis, Translation
from tt.model.errors import UserError
from tt.pipelines.memory import actions, new_corrections
from tt.pipelines.memory.actions import Changed
from tt.pipelines.memory.entries import learned_table, list_entries, write_unit
from tt.pipelines.memory.options import MemoryRequest
from tt.pipelines.texts.known import Learned

LANGUAGES = {"source_language": "en", "target_language": "de"}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def add(*files, **options):
    request = MemoryRequest(action="add", files=tuple(map(str, files)), **{**LANGUAGES, **options})
    return actions.add(request)


def refused(*files, **options):
    with pytest.raises(UserError) as caught:
        add(*files, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def export(output, **options):
    lines = []
    request = MemoryRequest(action="export", output=str(output), **options)
    return actions.export(request, lines.append), lines


def rows_of(**options):
    """Return the exported (source, target, source_language, target_language, kind)."""
    export("all.parquet", format="parquet", overwrite=True, **options)
    columns = ("source", "target", "source_language", "target_language", "kind")
    return [
        tuple(row[name] for name in columns) for row in pq.read_table("all.parquet").to_pylist()
    ]


def pairs_of(**options):
    return dict(row[:2] for row in rows_of(**options))


PAIRS = {"A dog.": "Ein Hund.", "A <cat> & 'x'": 'Eine <Katze> & "y"'}


def write_pairs(path, pairs):
    """Write a table or a TMX file in the format of its ending."""
    if path.suffix == ".parquet":
        write(path, {"source": list(pairs), "target": list(pairs.values())})
    elif path.suffix == ".jsonl":
        lines = [json.dumps({"source": s, "target": t}) for s, t in pairs.items()]
        path.write_text("\n".join(lines))
    else:
        rows = [("source", "target"), *pairs.items()]
        if path.suffix == ".csv":
            rows = [tuple('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
        path.write_text("\n".join(("," if path.suffix == ".csv" else "\t").join(r) for r in rows))
    return path


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl"])
def test_tables_of_all_formats_are_added(tmp_path, ending):
    path = write_pairs(tmp_path / f"a.{ending}", PAIRS)
    assert add(path) == Changed(2, 0)
    assert pairs_of() == PAIRS
    assert len(list_entries("memory")) == 1


def test_compressed_table_with_other_columns(tmp_path):
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"id\ten\tde\n1\tA\tB\n"))
    assert add("a.tsv.gz", source_column="en", target_column="de") == Changed(1, 0)
    assert pairs_of() == {"A": "B"}


@pytest.mark.parametrize("remote", ["memory", "mem://bucket/memory"])
def test_tmx_round_trip(tmp_path, remote):
    MemoryStore.clear()
    add(write_pairs(tmp_path / "a.parquet", PAIRS), memory=remote)
    assert export("a.tmx", memory=remote) == (Changed(2, 0), [])
    assert add("a.tmx", memory="other") == Changed(2, 0)
    assert pairs_of(memory="other") == PAIRS


def test_rows_without_a_text_or_a_translation_are_counted(tmp_path):
    table = pa.table({"source": ["a", None, " ", "d", "e"], "target": ["A", "B", "C", None, ""]})
    assert add(write(tmp_path / "a.parquet", table)) == Changed(1, 4)
    assert pairs_of() == {"a": "A"}


def test_last_row_and_newest_import_win(tmp_path):
    table = pa.table({"source": ["a", "a"], "target": ["1", "2"]})
    assert add(write(tmp_path / "a.parquet", table)) == Changed(1, 0, conflicts=1)
    assert pairs_of() == {"a": "2"}
    add(write_pairs(tmp_path / "b.parquet", {"a": "3"}))
    assert pairs_of() == {"a": "3"}
    add(write_pairs(tmp_path / "c.parquet", {"a": "4"}), target_language="fr")
    assert sorted(rows_of()) == [("a", "3", "en", "de", "human"), ("a", "4", "en", "fr", "human")]


def test_other_translations_of_a_text_are_conflicts_and_repetitions_are_none(tmp_path):
    table = pa.table({"source": ["a", "b", "a", "a"], "target": ["1", "2", "3", "1"]})
    assert add(write(tmp_path / "a.parquet", table)) == Changed(2, 0, conflicts=1)
    assert pairs_of() == {"a": "1", "b": "2"}


def test_all_variants_of_a_tmx_unit_count(tmp_path):
    variants = [("en", "a"), ("en-GB", "b"), ("de", "x"), ("de-AT", "y"), ("fr", "z")]
    tuvs = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in variants)
    (tmp_path / "a.tmx").write_text(f"<tmx><body><tu>{tuvs}</tu></body></tmx>")
    assert add(tmp_path / "a.tmx") == Changed(2, 0, conflicts=2)
    assert pairs_of() == {"a": "y", "b": "y"}


def test_the_same_file_adds_nothing_on_the_next_day(tmp_path):
    file = write_pairs(tmp_path / "a.tsv", {"a": "1", "b": "2", "\0": "3"})
    assert add(file) == Changed(3, 0)
    before = sorted((tmp_path / "memory/entries").iterdir())
    assert add(file) == Changed(0, 0)
    assert sorted((tmp_path / "memory/entries").iterdir()) == before
    assert add(file, target_language="fr") == Changed(3, 0), "of another language"
    write_pairs(file, {"a": "1", "b": "3", "c": "4"})
    assert add(file) == Changed(2, 0)
    write_pairs(file, {"b": "2"})
    assert add(file) == Changed(1, 0), "an earlier translation that was replaced meanwhile"
    expected = {"a": "1", "b": "2", "c": "4", "\0": "3"}
    assert pairs_of(target_language="de") == expected


def python_bytes(tmp_path, units: int) -> int:
    """Return the largest size of all Python objects while `tt memory add` reads a TMX file."""
    tuv = (
        '<tu><tuv xml:lang="en"><seg>{0} a</seg></tuv><tuv xml:lang="de"><seg>{0}</seg></tuv></tu>'
    )
    rows = "".join(tuv.format(f"{n} {'text ' * 20}") for n in range(units))
    (tmp_path / f"{units}.tmx").write_text(f"<tmx><body>{rows}</body></tmx>")
    del rows
    tracemalloc.start()
    try:
        assert add(tmp_path / f"{units}.tmx", memory=f"memory-{units}") == Changed(units, 0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_large_tmx_file_is_not_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(new_corrections, "_AT_ONCE", 500)
    assert python_bytes(tmp_path, 6000) < 2 * python_bytes(tmp_path, 1500)


def learn(*texts, job="job"):
    learned = [Learned(t, ("", ""), Translation((Hypothesis(t[::-1], -1.0),)), ()) for t in texts]
    created = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
    table = learned_table(learned, context="c" * 32, created=created, languages=("en", "de"))
    write_unit(table, folder="memory", job=job)


def test_export_chooses_kinds_and_languages_and_leaves_out_repetitions(tmp_path):
    learn("abc", "no")
    learn("abc", "four", job="other")
    add(write_pairs(tmp_path / "a.parquet", {"x": "X"}), target_language="de-AT")
    human, model = {"x": "X"}, {"abc": "cba", "no": "on", "four": "ruof"}
    assert len(rows_of()) == 4
    assert pairs_of() == {**human, **model}
    assert pairs_of(kind="human") == human
    assert pairs_of(kind="model") == model
    assert len(pairs_of(target_language="deu")) == 4
    assert pairs_of(target_language="fr") == pairs_of(source_language="de") == {}
    assert export("m.tmx", kind="model")[0] == Changed(3, 0)


def test_texts_that_xml_cannot_contain_are_counted(tmp_path):
    add(write_pairs(tmp_path / "a.parquet", {"a\x01": "b", "c": "d"}))
    assert export("a.tmx")[0] == Changed(1, 1)
    assert pairs_of() == {"a\x01": "b", "c": "d"}


def test_show_counts_entries_by_kind_language_and_model(tmp_path):
    learn("abc", "no")
    add(write_pairs(tmp_path / "a.parquet", PAIRS))
    blocks = actions.show(MemoryRequest(action="show"), pytest.fail)
    facts = facts_of(blocks)
    assert (facts["memory"], facts["files"]) == ("memory", 2)
    assert (facts["human translations"], facts["translations of models"]) == ("2", "2")
    rows = table_of(blocks, "model and options")
    assert rows == [["human", "en", "de", None, 2], ["model", "en", "de", "c" * 16, 2]]


def test_damaged_file_is_reported_once_and_skipped(tmp_path):
    learn("abc")
    [file] = list_entries("memory").values()
    add(write_pairs(tmp_path / "a.parquet", PAIRS))
    (tmp_path / file.path).write_bytes(b"PAR1")
    changed, lines = export("a.tmx")
    assert changed == Changed(2, 0)
    assert len(lines) == 1
    assert lines[0].startswith("tt: warning: ")
    assert lines[0].endswith("is skipped")
    lines = []
    actions.show(MemoryRequest(action="show"), lines.append)
    assert len(lines) == 1


def test_invalid_files_are_refused_and_nothing_is_written(tmp_path):
    good = write_pairs(tmp_path / "good.parquet", PAIRS)
    assert "there is no file nowhere.tsv" in refused(good, "nowhere.tsv")
    assert "must end in .tmx, .jsonl" in refused(good, "a.doc")
    numbers = write(tmp_path / "numbers.parquet", {"source": [1], "target": ["a"]})
    assert "must contain strings. It contains int64. Set `source_column`" in refused(numbers)
    other = write(tmp_path / "other.parquet", {"source": ["a"], "de": ["a"]})
    assert "has no column 'target'. Its columns are source, de. Set `target_c" in refused(other)
    empty = write(tmp_path / "empty.parquet", pa.table({"source": [""][:0], "target": [""][:0]}))
    assert "empty.parquet contains no translations" in refused(empty)
    (tmp_path / "empty.tsv").touch()
    assert "empty.tsv" in refused("empty.tsv")
    (tmp_path / "empty.tmx").write_text("<tmx><body/></tmx>")
    assert "empty.tmx contains no translations" in refused("empty.tmx")
    (tmp_path / "a.tmx").write_text("<tmx")
    assert "a.tmx is not well-formed XML" in refused(good, "a.tmx")
    (tmp_path / "damaged.parquet").write_bytes(good.read_bytes()[:-9])
    assert "damaged.parquet" in refused("damaged.parquet")
    bytes_ = pa.array([b"a", b"\xe4"], pa.binary()).view(pa.string())
    write(tmp_path / "latin.parquet", pa.table({"source": bytes_, "target": ["a", "b"]}))
    assert "row 2 of" in refused("latin.parquet")
    assert not (tmp_path / "memory").exists()


def test_tmx_without_the_languages_is_refused(tmp_path):
    add(write_pairs(tmp_path / "a.parquet", PAIRS))
    export("a.tmx")
    assert "has no translation from en into fr. Its languages are de, en. Change" in refused(
        "a.tmx", target_language="fr"
    )


def test_memories_and_outputs_that_cannot_be_used_are_refused(tmp_path):
    path = write_pairs(tmp_path / "a.parquet", PAIRS)
    assert "`memory` must be a folder. Received the file a.parquet" in refused(
        path, memory="a.parquet"
    )
    with pytest.raises(UserError, match=r"there is no memory at memory. Check the path"):
        export("a.tmx")
    with pytest.raises(UserError, match=r"there is no memory at memory. Check the path"):
        actions.show(MemoryRequest(action="show"), pytest.fail)
    add(path)
    export("a.tmx")
    with pytest.raises(UserError, match=r"a.tmx already exists. Choose another file or set"):
        export("a.tmx")
    with pytest.raises(
        UserError, match=r"a.tmx/b.tmx cannot be written: .*Choose another `output`"
    ):
        export("a.tmx/b.tmx")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action": "add", **LANGUAGES}, "`files` is empty"),
        ({"action": "add", "files": ("a",), "target_language": "de"}, "needs the languages"),
        ({"action": "add", "files": ("a",), **LANGUAGES, "kind": "human"}, "`kind` has no effect"),
        ({"action": "export"}, "Set `output`"),
        ({"action": "export", "output": "a", "files": ("b",)}, "`files` has no effect"),
        ({"action": "export", "output": "a", "format": "csv"}, "must be one of tmx, parquet"),
        ({"action": "show", "target_language": "de"}, "`target_language` has no effect"),
        ({"action": "add", "files": ("a",), **LANGUAGES, "source_language": "English"}, "must be"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        MemoryRequest(**options)
