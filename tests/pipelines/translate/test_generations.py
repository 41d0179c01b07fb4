"""Runs of a job on an input that changed since the last run."""

import os
import time

import pyarrow as pa
import pytest
from memory_store import MemoryStore
from translation_jobs import (
    files_below,
    manifest,
    output_bytes,
    outputs,
    read_all,
    refused,
    request,
    translate,
    unit_statistics,
    write,
)

from tt.pipelines.translate.manifest import summary_blocks


def texts(name, rows=5):
    return {"text": [f"{name} {i}" for i in range(rows)]}


SUFFIXES = {"a": "parquet", "b": "csv", "c": "csv", "d": "parquet"}


@pytest.fixture
def source(tmp_path):
    """A folder with the files a and b, and a function that writes a file into it."""
    folder = tmp_path / "in"
    folder.mkdir()

    def put(name, table):
        path = folder / f"{name}.{SUFFIXES[name]}"
        if path.suffix == ".parquet":
            write(path, table)
        else:
            path.write_text("\n".join(["text", *table["text"], ""]))

    put("a", texts("a", 20))
    put("b", texts("b", 3))
    return folder, put


def remove(folder, name):
    [path] = folder.glob(f"{name}.*")
    path.unlink()


def run(source, output, **options):
    return translate(source, output, unit_rows=4, **options)


def stems(folder):
    return sorted({name.partition("-")[0] for name in outputs(folder)})


def test_a_second_run_translates_only_new_files(source, tmp_path):
    folder, put = source
    run(folder, tmp_path / "out")
    before = {
        name: (tmp_path / "out" / name).stat().st_mtime_ns for name in outputs(tmp_path / "out")
    }
    put("c", texts("c", 9))
    job = request(folder, tmp_path / "out", unit_rows=4).plan()
    assert "1 new input file, translated: c.csv" in job.notices
    summary = job.run()
    assert summary.run_rows == 9
    assert summary.rows == 32
    now = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in outputs(tmp_path / "out")}
    assert {name: now[name] for name in before} == before
    run(folder, tmp_path / "fresh")
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "fresh")
    assert manifest(tmp_path / "out")["rows_by_status"]["text"]["ok"] == 32
    assert run(folder, tmp_path / "out").already_finished
    put("d", texts("d"))
    assert "`unit_rows` was 4 and is now 5" in refused(folder, tmp_path / "out", unit_rows=5)
    assert run(folder, tmp_path / "out", overwrite=True).run_rows == 37


def test_a_changed_file_is_refused_or_translated_again(source, tmp_path):
    folder, put = source
    run(folder, tmp_path / "out")
    before = output_bytes(tmp_path / "out")
    put("a", texts("new a", 7))
    put("b", texts("c", 3))  # the same size
    message = refused(folder, tmp_path / "out", unit_rows=4)
    assert message.startswith("2 input files changed since the last run: a.parquet, b.csv.")
    assert "Set `changed=redo` to translate changed files again" in message
    assert output_bytes(tmp_path / "out") == before
    assert run(folder, tmp_path / "out", changed="redo").run_rows == 10
    run(folder, tmp_path / "fresh")
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "fresh")
    assert len(unit_statistics(tmp_path / "out")) == len(outputs(tmp_path / "out"))
    assert run(folder, tmp_path / "out").already_finished


def test_translations_of_removed_files_are_kept_or_deleted(source, tmp_path):
    folder, put = source
    run(folder, tmp_path / "out")
    remove(folder, "a")
    put("c", texts("c"))
    kept = run(folder, tmp_path / "out")
    assert stems(tmp_path / "out") == ["a", "b", "c"]
    assert kept.rows == 28
    assert kept.run_rows == 5
    assert manifest(tmp_path / "out")["files"]["a.parquet"]["removed"] is True
    assert run(folder, tmp_path / "out").already_finished
    put("d", texts("d"))
    assert run(folder, tmp_path / "out").rows == 33
    remove(folder, "b")
    deleted = run(folder, tmp_path / "out", removed="delete")
    assert stems(tmp_path / "out") == ["c", "d"]
    assert deleted.rows == 10
    run(folder, tmp_path / "fresh")
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "fresh")


def test_kept_translations_are_deleted_at_once(source, tmp_path):
    folder, put = source
    run(folder, tmp_path / "out")
    remove(folder, "a")
    put("c", texts("c"))
    assert run(folder, tmp_path / "out").rows == 28
    job = request(folder, tmp_path / "out", unit_rows=4, removed="delete").plan()
    assert [n.rpartition(":")[0] for n in job.notices] == [
        "1 removed input file, translations deleted"
    ]
    assert job.run().rows == 8
    assert stems(tmp_path / "out") == ["b", "c"]
    assert run(folder, tmp_path / "out", removed="delete").already_finished


def test_a_removed_file_that_returns_keeps_its_translation(source, tmp_path):
    folder, _ = source
    run(folder, tmp_path / "out")
    [path] = folder.glob("a.*")
    path.rename(tmp_path / "elsewhere")
    assert run(folder, tmp_path / "out").run_rows == 0
    (tmp_path / "elsewhere").rename(path)
    summary = run(folder, tmp_path / "out")
    assert (summary.rows, summary.run_rows) == (23, 0)
    assert not any("removed" in file for file in manifest(tmp_path / "out")["files"].values())


def test_a_parquet_file_with_another_time_is_a_changed_file(tmp_path):
    """The footers of both versions are equal, although a text differs."""
    plain = {"compression": "none", "use_dictionary": False}
    path = write(tmp_path / "in/a.parquet", {"text": ["a", "one", "z"]}, **plain)
    translate(tmp_path / "in", tmp_path / "out")
    os.utime(write(path, {"text": ["a", "two", "z"]}, **plain), (1e9, 1e9))
    message = refused(tmp_path / "in", tmp_path / "out")
    assert message.startswith("1 input file changed since the last run: a.parquet. tt compares")
    again = translate(tmp_path / "in", tmp_path / "out", changed="redo")
    assert again.run_rows == 3
    assert read_all(tmp_path / "out")["translation"].to_pylist() == ["a", "owt", "z"]
    assert translate(tmp_path / "in", tmp_path / "out").already_finished
    os.utime(path, (1e9, 1e9 + 1e-3))
    assert "a.parquet" in refused(tmp_path / "in", tmp_path / "out")


def test_a_small_text_file_with_another_time_is_unchanged(source, tmp_path):
    folder, put = source
    run(folder, tmp_path / "out")
    put("b", texts("b", 3))
    os.utime(folder / "b.csv", (1e9, 1e9))
    assert run(folder, tmp_path / "out").already_finished


def test_the_time_of_an_object_counts(tmp_path):
    name = "mem://in"

    def put(word):
        plain = {"compression": "none", "use_dictionary": False}
        write(tmp_path / "a", {"text": ["a", word, "z"]}, **plain)  # with the same statistics
        MemoryStore.put("mem://in/a.parquet", (tmp_path / "a").read_bytes())

    MemoryStore.clear()
    put("one")
    translate(name, tmp_path / "out")
    time.sleep(1)  # the times of objects are whole seconds
    put("two")
    assert "changed since the last run" in refused(name, tmp_path / "out")
    assert translate(name, tmp_path / "out", changed="redo").run_rows == 3
    assert translate(name, tmp_path / "out").already_finished


def test_a_file_that_changes_before_its_last_unit_is_a_changed_file(tmp_path):
    plain = {"compression": "none", "use_dictionary": False}
    path = write(tmp_path / "in/a.parquet", {"text": ["a", "one", "z", "last"]}, **plain)
    translate(tmp_path / "in", tmp_path / "out", unit_rows=2)
    (tmp_path / "out/_tt/manifest.json").unlink()
    (tmp_path / "out" / outputs(tmp_path / "out")[1]).unlink()
    os.utime(write(path, {"text": ["a", "two", "z", "last"]}, **plain), (1e9, 1e9))
    assert "1 input file changed" in refused(tmp_path / "in", tmp_path / "out", unit_rows=2)
    assert translate(tmp_path / "in", tmp_path / "out", unit_rows=2, changed="redo").run_rows == 4
    assert read_all(tmp_path / "out")["text"].to_pylist() == ["a", "two", "z", "last"]


def test_with_a_limit_the_input_must_not_change(source, tmp_path):
    folder, put = source
    run(folder, tmp_path / "out", limit=6)
    message = refused(folder, tmp_path / "out", unit_rows=4, limit=7)
    assert "belongs to another job: `limit` was 6 and is now 7. Run" in message
    put("a", texts("new a", 21))
    assert "belongs to another job" in refused(folder, tmp_path / "out", unit_rows=4, limit=6)


def test_a_file_that_disappears_from_an_unfinished_job_is_an_error(source, tmp_path):
    folder, _ = source
    run(folder, tmp_path / "out")
    (tmp_path / "out/_tt/manifest.json").unlink()
    (tmp_path / "out" / outputs(tmp_path / "out")[0]).unlink()
    remove(folder, "a")
    message = refused(folder, tmp_path / "out", unit_rows=4)
    assert "was removed before its translation was finished" in message
    run(folder, tmp_path / "out", removed="delete")
    assert stems(tmp_path / "out") == ["b"]


def test_a_dry_run_shows_the_changes_and_writes_nothing(source, tmp_path):
    folder, put = source
    run(folder, tmp_path / "out")
    put("c", texts("c"))
    names = files_below(tmp_path / "out")
    before = {name: (tmp_path / "out" / name).read_bytes() for name in names}
    job = request(folder, tmp_path / "out", unit_rows=4).plan()
    assert any("1 new input file" in line for line in job.notices)
    names = files_below(tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in names} == before


def test_rows_with_a_known_key_and_an_unchanged_text_keep_their_translation(tmp_path):
    rows = {"id": list(range(20)), "text": [f"text {i}" for i in range(20)]}
    write(tmp_path / "in/a.parquet", rows)
    translate(tmp_path / "in", tmp_path / "out", unit_rows=6, key=("id",))
    rows["text"][3] = "another text"
    rows = {name: values[:10] + values[15:] for name, values in rows.items()}
    rows["id"].insert(2, 100)
    rows["text"].insert(2, "text 0")
    write(tmp_path / "in/a.parquet", rows)
    summary = translate(tmp_path / "in", tmp_path / "out", unit_rows=6, key=("id",))
    assert summary.manifest["kept_rows"] == 14
    assert summary.manifest["distinct_texts"] == summary.run_rows == 2
    assert read_all(tmp_path / "out")["id"].to_pylist() == rows["id"]
    translate(tmp_path / "in", tmp_path / "fresh", unit_rows=6, key=("id",))
    assert read_all(tmp_path / "out") == read_all(tmp_path / "fresh")
    assert outputs(tmp_path / "out") == outputs(tmp_path / "fresh")
    assert translate(tmp_path / "in", tmp_path / "out", unit_rows=6, key=("id",)).already_finished


def day(tmp_path, table, **options):
    """Translate a table with a key; return the summary and the rows of the output."""
    write(tmp_path / "in/a.parquet", table)
    options = {"key": ("id",), "text_columns": ("text",), "unit_rows": 4, **options}
    summary = translate(tmp_path / "in", tmp_path / "out", **options)
    return summary, read_all(tmp_path / "out")


def test_rows_with_null_keys_are_translated_again_and_counted(tmp_path):
    day(tmp_path, {"id": ["a", None, "b"], "text": ["1", "2", "3"]})
    summary, _ = day(tmp_path, {"id": ["a", None, None, "b"], "text": ["1", "2", "3", "3"]})
    assert (summary.manifest["kept_rows"], summary.manifest["null_keys"]) == (2, 2)
    assert ["rows without a key", "2"] in facts(summary)


def test_the_first_of_several_rows_with_a_key_counts(tmp_path):
    rows = {"id": [1, 1, 1, 2], "text": ["a", "a", "b", "c"]}
    day(tmp_path, rows)
    again = {name: [*reversed(values), values[0]] for name, values in rows.items()}
    summary, found = day(tmp_path, again)
    assert summary.manifest["kept_rows"] == 5
    assert found["translation"].to_pylist() == ["c", "b", "a", "a", "a"]


def test_keys_of_several_columns_and_several_text_columns(tmp_path):
    table = pa.table(
        {
            "shop": pa.array(["x", "x", "y"]).dictionary_encode(),
            "id": [1, 2, 1],
            "product": [{"title": "a", "price": 1}, {"title": "b", "price": 1}, None],
            "tags": [["r", "s"], [], None],
        }
    )
    options = {"key": ("shop", "id"), "text_columns": ("product.title", "tags")}
    _, first = day(tmp_path, table, **options)
    products = [{"title": "a", "price": 2}, {"title": "B", "price": 1}, None]
    changed = table.set_column(2, "product", pa.array(products))
    summary, found = day(tmp_path, changed, **options)
    assert summary.manifest["kept_rows"] == 2  # only the price of the first row has changed
    assert found["product"].to_pylist() == products
    assert found["product.title_translation"].to_pylist() == ["a", "B", None]
    assert found["tags_translation"] == first["tags_translation"]
    assert found.schema == first.schema
    changed = changed.set_column(3, "tags", pa.array([["r", "t"], [], None]))
    assert day(tmp_path, changed, **options)[0].manifest["kept_rows"] == 2


def test_a_key_needs_its_columns_and_parquet(tmp_path):
    write(tmp_path / "in/a.parquet", {"id": [1], "text": ["a"]})
    source, output = tmp_path / "in", tmp_path / "out"
    assert "has no column 'sku' for `key`" in refused(source, output, key=("sku",))
    assert "`key` needs the format parquet" in refused(source, output, key=("id",), format="csv")
    assert "Remove `limit`" in refused(source, output, key=("id",), limit=1)
    assert "`key` must name each column once" in refused(source, output, key=("id", "id"))
    translate(source, output, key=("id",))
    write(tmp_path / "in/a.parquet", {"text": ["a"]})
    before = output_bytes(output)
    assert "has no column 'id' for `key`. Its columns: text" in refused(source, output, key=("id",))
    assert output_bytes(output) == before
    assert (output / "_tt/manifest.json").exists()


def test_a_condition_applies_to_known_rows_too(tmp_path):
    rows = {"id": [1, 2, 3, 4], "text": ["a", "b", "c", "d"], "stock": [1, 0, 1, 0]}
    first, _ = day(tmp_path, rows, where="stock > 0")
    assert first.manifest["rows_by_status"]["text"]["skipped"] == 2
    summary, found = day(tmp_path, {**rows, "stock": [1, 1, 0, 0]}, where="stock > 0")
    assert summary.manifest["kept_rows"] == 1
    assert found["translation_status"].to_pylist() == ["ok", "ok", "skipped", "skipped"]
    assert found["translation"].to_pylist() == ["a", "b", None, None]


def facts(summary):
    [found, *_] = summary_blocks(summary)
    return [[name, str(value)] for name, value in found.rows]
