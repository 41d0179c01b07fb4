"""What a folder seems to hold, by the names and schemas of its files."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from permissions import with_mode
from pyarrow import feather

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
        (["dev_en.txt", "dev_de.txt.gz"], ("dev_en.txt", "dev_de.txt.gz", "en", "de", VALIDATION)),
        (["en.txt", "pt-BR.txt"], ("en.txt", "pt-BR.txt", "en", "pt-BR", TRAIN)),
        (["en.txt", "no.txt"], ("en.txt", "no.txt", "en", "no", TRAIN)),
        (["id.txt", "de.txt"], ("de.txt", "id.txt", "de", "id", TRAIN)),
        (["a.id", "a.no"], ("a.id", "a.no", "id", "no", TRAIN)),
        (["test.tgt", "test.src.gz"], ("test.src.gz", "test.tgt", "", "", TEST)),
        (["a.fr-en.source", "a.fr-en.target"],
         ("a.fr-en.source", "a.fr-en.target", "fr", "en", TRAIN)),
    ],
)  # fmt: skip
def test_texts_are_paired_by_the_languages_that_they_end_in(names, expected):
    [found] = project.pair_texts(names)
    values = (found.source, found.target, found.source_language, found.target_language, found.use)
    assert values == expected


@pytest.mark.parametrize(
    "names",
    [
        ["a.en"],
        ["a.en", "b.de"],
        ["a.txt", "a.csv"],
        ["en", "de"],
        [".en", ".de"],
        [],
        ["a.src", "a.en"],
        ["notes.txt", "readme.txt"],
        ["train_en.txt", "dev_de.txt"],
        ["id.txt", "my.txt", "no.txt"],
        ["order_id.txt", "order_no.txt"],
        ["all.txt", "map.txt"],
    ],
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


ENGLISH = [f"The {word} dog sees a house." for word in ("big", "red", "old", "new", "small")]
GERMAN = [f"Der Hund sieht ein Haus, {word}." for word in ("groß", "rot", "alt", "neu", "klein")]


def tabs(*columns, headings=()):
    rows = ([headings] if headings else []) + list(zip(*columns, strict=True))
    return "".join("\t".join(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "text", "pair", "languages"),
    [
        ("a.tsv", tabs(ENGLISH, GERMAN), ("0", "1"), ("", "")),
        ("fra.txt", tabs(ENGLISH, GERMAN, ["x"] * 5), ("0", "1"), ("", "")),
        ("a.de-en.tsv", tabs("12345", GERMAN, ENGLISH), ("1", "2"), ("de", "en")),
        ("a.tsv", tabs(GERMAN, ENGLISH, headings=("de", "en")), ("1", "0"), ("en", "de")),
        ("a.tsv", tabs(ENGLISH, GERMAN, headings=("target", "source")), ("1", "0"), ("", "")),
    ],
)  # fmt: skip
def test_tsv_with_pairs(tmp_path, name, text, pair, languages):
    (tmp_path / name).write_text(text, "utf-8")
    [found] = look_around(tmp_path).tables
    assert (found.pair, found.languages) == (pair, languages)
    assert found.corpus == f"{name}:{pair[0]}:{pair[1]}"
    assert bool(found.headings) == (text[:2] in ("de", "ta"))


def test_tsv_with_three_languages_in_its_first_line(tmp_path):
    text = tabs(GERMAN, ["Le chien."] * 5, ENGLISH, headings=("de", "fr", "en"))
    (tmp_path / "a.tsv").write_text(text, "utf-8")
    [found] = look_around(tmp_path).tables
    assert (found.pair, found.languages) == (("2", "0"), ("en", "de"))
    assert found.headings == ("de", "fr", "en")


def test_tsv_with_named_columns_is_a_table(tmp_path):
    (tmp_path / "a.tsv").write_text(tabs("12345", ENGLISH, headings=("id", "body")))
    [found] = look_around(tmp_path).tables
    assert (found.text_columns, found.pair) == (("body", "id"), None)


def test_what_tsv_holds_is_not_guessed_without_a_sign(tmp_path):
    (tmp_path / "a.tsv").write_text(tabs("12345", ENGLISH))
    (tmp_path / "b.tsv").write_text("one column\n")
    (tmp_path / "notes.txt").write_text("a text\nwithout tabs\n")
    (tmp_path / "empty.tsv").write_text("")
    found = look_around(tmp_path)
    assert (found.tables, found.undecided) == ([], ["a.tsv", "b.tsv"])


@pytest.mark.parametrize(
    "text", ["1\t0.5\n", "1\t2\n", "step\tloss\n1\t0.5\n2\t1e-05\n", "\t\n", "1\t\n2\t\n"]
)
@pytest.mark.parametrize("name", ["scores.tsv", "counts.txt"])
def test_numbers_are_no_corpus(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = look_around(tmp_path)
    assert (found.tables, found.undecided, found.unreadable) == ([], [], [])


def test_mostly_empty_cells_are_no_side_of_a_corpus(tmp_path):
    (tmp_path / "a.tsv").write_text(tabs(ENGLISH, ["", "", "", *GERMAN[:2]]), "utf-8")
    found = look_around(tmp_path)
    assert (found.tables, found.undecided) == ([], ["a.tsv"])


def test_tables_of_other_formats(tmp_path):
    (tmp_path / "a.csv").write_text("id,body\n" + "".join(f"7,{text}\n" for text in ENGLISH))
    lines = [{"translation": {"en": a, "de": b}} for a, b in zip(ENGLISH, GERMAN, strict=True)]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "empty.jsonl").write_text("")
    feather.write_feather(pa.table({"n": [1], "text": ["a"]}), tmp_path / "c.arrow", "uncompressed")
    (tmp_path / "pairs.csv").write_text("en,de\na b,c d\n")
    (tmp_path / "parts").mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"en": ENGLISH, "de": GERMAN}), tmp_path / f"parts/{name}.parquet")
    found = {each.path: each for each in look_around(tmp_path).tables}
    assert {path: (each.text_columns, each.pair) for path, each in found.items()} == {
        "a.csv": (("body", "id"), None),
        "c.arrow": (("text",), None),
        "dev.jsonl": (("translation.de", "translation.en"), ("translation.en", "translation.de")),
        "pairs.csv": (("en", "de"), None),
        "parts/*.parquet": (("de", "en"), ("en", "de")),
    }  # fmt: skip
    assert found["dev.jsonl"].use == VALIDATION


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_times_that_python_has_not_are_no_harm(tmp_path, unit):
    times = pa.array([2**60 + 1], pa.timestamp(unit))
    days = pa.array([2**30], pa.int32()).cast(pa.date32())
    inner = pa.StructArray.from_arrays([times, pa.array(["b"])], ["when", "text"])
    table = pa.table({"when": times, "day": days, "body": ["long"], "of": inner})
    feather.write_feather(table, tmp_path / "a.feather", "uncompressed")
    found = look_around(tmp_path)
    assert [(each.path, each.text_columns) for each in found.tables] == [
        ("a.feather", ("body", "of.text"))
    ]
    assert found.unreadable == []


def test_two_columns_of_one_name_are_no_harm(tmp_path):
    arrays = [pa.array(["a"]), pa.array(["b"]), pa.array(["long"])]
    pq.write_table(pa.Table.from_arrays(arrays, ["x", "x", "body"]), tmp_path / "a.parquet")
    [found] = look_around(tmp_path).tables
    assert found.text_columns == ("body", "x")


@pytest.mark.parametrize("error", [pa.ArrowTypeError, pa.ArrowKeyError, pa.ArrowCapacityError])
def test_every_error_of_arrow_is_a_file_that_cannot_be_read(tmp_path, monkeypatch, error):
    def fail(path):
        raise error("odd")

    (tmp_path / "a.parquet").touch()
    monkeypatch.setattr(project, "_read_parquet", fail)
    assert look_around(tmp_path).unreadable == ["a.parquet"]


@pytest.mark.parametrize(
    ("folder", "names", "expected"),
    [
        ("data", ["a1.tsv", "a2.tsv"], {TRAIN: ["data/*.tsv"]}),
        ("dev", ["a1.tsv", "a2.tsv"], {VALIDATION: ["dev/*.tsv"]}),
        ("dev", ["a.tsv", "test.tsv"], {VALIDATION: ["dev/a.tsv"], TEST: ["dev/test.tsv"]}),
        ("data", ["a.tsv", "b1.tsv", "b2.tsv", "dev.tsv"],
         {TRAIN: ["data/a.tsv", "data/b*.tsv"], VALIDATION: ["data/dev.tsv"]}),
        ("data", ["a-dev.tsv", "a-x.tsv", "a-y.tsv"],
         {TRAIN: ["data/a-x.tsv", "data/a-y.tsv"], VALIDATION: ["data/a-dev.tsv"]}),
        ("data", ["1-dev.tsv", "2.tsv", "3.tsv"],
         {TRAIN: ["data/2.tsv", "data/3.tsv"], VALIDATION: ["data/1-dev.tsv"]}),
        ("data", [".dev.tsv", "a.tsv"], {TRAIN: ["data/*.tsv"]}),
    ],
)  # fmt: skip
def test_parts_by_the_uses_that_their_names_say(tmp_path, folder, names, expected):
    (tmp_path / folder).mkdir()
    for name in names:
        (tmp_path / folder / name).write_text(tabs(ENGLISH, GERMAN), "utf-8")
    found = look_around(tmp_path).tables
    uses = dict.fromkeys(each.use for each in found)
    assert {use: [each.path for each in found if each.use == use] for use in uses} == expected


def test_parts_of_a_table_to_translate_stay_one(tmp_path):
    (tmp_path / "articles").mkdir()
    for name in ("test", "train"):
        pq.write_table(pa.table({"body": ENGLISH}), tmp_path / f"articles/{name}.parquet")
    assert [each.path for each in look_around(tmp_path).tables] == ["articles/*.parquet"]


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_folder_that_may_not_be_looked_into_is_passed_by(tmp_path, mode):
    (tmp_path / "private").mkdir()
    for name in ("a.tsv", "private/b.tsv"):
        (tmp_path / name).write_text(tabs(ENGLISH, GERMAN), "utf-8")
    with with_mode(tmp_path / "private", mode):
        assert [each.path for each in look_around(tmp_path).tables] == ["a.tsv"]


@pytest.mark.parametrize("own", ["_work", "_tt"])
def test_an_unfinished_folder_of_a_command_is_no_table(tmp_path, own):
    (tmp_path / "dataset" / own).mkdir(parents=True)
    texts = pa.table({"source": ENGLISH, "target": GERMAN})
    pq.write_table(texts, tmp_path / "dataset/rejected-00000.parquet")
    assert look_around(tmp_path).tables == []


def test_folders_are_known_by_what_lies_in_them(tmp_path, dataset, trained_toy):
    (tmp_path / "older-data").symlink_to(dataset)
    (tmp_path / "dataset").symlink_to(dataset)
    (tmp_path / "best").symlink_to(trained_toy.run / "model")
    (tmp_path / "run").symlink_to(trained_toy.run)
    (tmp_path / "other").mkdir()
    (tmp_path / "en_es.argosmodel").touch()
    (tmp_path / "old/_tt").mkdir(parents=True)
    (tmp_path / "old/_tt/plan.json").touch()
    found = look_around(tmp_path)
    assert found.datasets == ["dataset", "older-data"]
    assert found.models == ["run", "best", "en_es.argosmodel"]
    assert found.translated == ["old"]
