"""What a folder seems to hold, by the names and schemas of its files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.summaries import project
from pipelines.summaries.project import TEST, TRAIN, VALIDATION, look_around, pair_columns


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.en", "a.de"], ("a.en", "a.de", "en", "de", TRAIN)),
        (["a.fr", "a.de"], ("a.de", "a.fr", "de", "fr", TRAIN)),
        (["europarl.fr-en.en", "europarl.fr-en.fr"],
         ("europarl.fr-en.fr", "europarl.fr-en.en", "fr", "en", TRAIN)),
        (["dev.en.gz", "dev.zh"], ("dev.en.gz", "dev.zh", "en", "zh", VALIDATION)),
        (["newstest2019.en", "newstest2019.zh-Hant"],
         ("newstest2019.en", "newstest2019.zh-Hant", "en", "zh-Hant", TEST)),
        (["contest.en", "contest.de"], ("contest.en", "contest.de", "en", "de", TRAIN)),
    ],
)  # fmt: skip
def test_texts_are_paired_by_the_languages_that_they_end_in(names, expected):
    [found] = project.pair_texts(names)
    values = (found.source, found.target, found.source_language, found.target_language, found.use)
    assert values == expected


@pytest.mark.parametrize(
    "names", [["a.en"], ["a.en", "b.de"], ["a.txt", "a.csv"], ["en", "de"], [".en", ".de"], []]
)
def test_other_files_are_no_pair(names):
    assert not list(project.pair_texts(names))


def test_a_third_language_is_named():
    [found] = project.pair_texts(["a.fr", "a.en", "a.de"])
    assert (found.source, found.target, found.others) == ("a.en", "a.de", ("a.fr",))


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (["de", "en"], ("en", "de")),
        (["tgt", "src"], ("src", "tgt")),
        (["id", "en", "de"], ("en", "de")),
        (["text.ru", "text.uk"], ("text.ru", "text.uk")),
        (["id", "body"], None),
        (["en", "de", "fr"], None),
        (["title_en", "body_de"], None),
        ([], None),
    ],
)
def test_columns_of_a_corpus(names, pair):
    assert pair_columns(names) == pair


def test_a_table_has_its_longest_texts_first(tmp_path):
    table = pa.table({"n": [1, 2], "id": ["a", "b"], "body": ["long text", None]})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"no Parquet")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "numbers.parquet")
    pq.write_table(pa.table({"en": pa.array([], pa.string()), "de": pa.array([], pa.string())}),
                   tmp_path / "empty.parquet")  # fmt: skip
    found = look_around(tmp_path)
    assert [(each.path, each.rows, each.text_columns) for each in found.tables] == [
        ("a.parquet", 2, ("body", "id")), ("empty.parquet", 0, ("en", "de")),
    ]  # fmt: skip
    assert found.tables[1].languages == ("en", "de")
    assert found.unreadable == ["broken.parquet"]


def test_folders_are_known_by_what_lies_in_them(tmp_path, dataset, trained_toy):
    (tmp_path / "older-data").symlink_to(dataset)
    (tmp_path / "dataset").symlink_to(dataset)
    (tmp_path / "best").symlink_to(trained_toy.run / "model")
    (tmp_path / "run").symlink_to(trained_toy.run)
    (tmp_path / "other").mkdir()
    found = look_around(tmp_path)
    assert found.datasets == ["dataset", "older-data"]
    assert found.models == ["run", "best"]
