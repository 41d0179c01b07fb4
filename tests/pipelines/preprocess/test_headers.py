"""The line with the column names of a TSV file is rejected, and no pair of a corpus is."""

import gzip
import itertools

import pytest
from corpora import open_named, options, preprocess, rejected

from tt.pipelines.preprocess.headers import is_header

HEADERS = [
    ("source", "target"), ("Source", "Target"), ("src", "tgt"), ("target_text", "source_text"),
    ("English", "German"), ("german", "English"), ("en", "de"), ("text_en", "text_de"),
    ("sentence_eng_Latn", "sentence_deu_Latn"), ('"source"', '"translation"'), ("EN", "de-DE"),
    ("English sentence", "German sentence"), ("source (en)", "target (de)"), ("text", "reference"),
    ("English", "Deutsch"), ("中文", "English"),
]  # fmt: skip
PAIRS = [
    ("German", "Deutsch"), ("Deutsch", "German"), ("English", "Englisch"), ("Source", "Quelle"),
    ("Target", "Ziel"), ("text", "text"), ("Text", "Text"), ("source", "source"), ("", "target"),
    ("Source: Reuters", "target"), ("The source", "The target"), ("no", "nein"), ("so", "also"),
    ("Translation", "Übersetzung"), ("Original", "Original"), ("a", "de"), ("the", "der"),
    ("I speak English.", "Ich spreche Deutsch."), ("-", "-"), ("Norwegian", "Norsk"), ("en", "nl"),
]  # fmt: skip


@pytest.mark.parametrize("cells", HEADERS)
def test_names_of_columns_are_a_header(cells):
    assert is_header(*cells, languages=("en", "de", "zh"))


@pytest.mark.parametrize("cells", PAIRS)
def test_pairs_of_texts_are_no_header(cells):
    assert not is_header(*cells, languages=("en", "de"))


def test_codes_of_two_letters_are_a_header_unless_both_languages_are_given():
    assert is_header("en", "de")
    assert not is_header("eng", "deu")  # "the" and "war" are codes, too
    assert not is_header("no", "nb")  # one language


def test_no_pair_of_real_corpora_is_a_header(shared_data):
    """Each line is tested as if it were the first one."""
    tested = 0
    for folder, source, target in (
        ("tatoeba_de_en/train", "de", "en"), ("news_zh_en/train", "zh", "en"),
    ):  # fmt: skip
        sides = [
            gzip.decompress((shared_data / f"{folder}.{code}.gz").read_bytes()).decode().split("\n")
            for code in (source, target)
        ]
        for cells in itertools.islice(zip(*sides, strict=True), 20_000):
            tested += 1
            for languages in ((source, target), ()):
                assert not is_header(*cells, languages=languages), cells
    assert tested > 20_000


def test_header_is_rejected_with_its_place(tmp_path):
    lines = ["id\tEnglish\tGerman", *(f"{i}\tdog {i}\tHund {i}" for i in range(40))]
    header, first = (tmp_path / name for name in ("header.tsv", "first.tsv"))
    header.write_text("".join(f"{line}\n" for line in lines))
    # A line of names that is not the first one is a pair.
    first.write_text("".join(f"{line}\n" for line in [*lines[1:3], lines[0]]))
    sources = open_named(
        corpora=[f"a={header}:1:2", f"b={first}:1:2"], source_language="en", target_language="de"
    )
    found = preprocess(
        sources=sources, options=options(tmp_path / "out", vocabulary_type="char", shards=1)
    )
    assert [source["rejected"] for source in found.sources] == [
        {"header": 1},
        {"duplicate_pair": 2},
    ]
    [row] = [row for row in rejected(tmp_path / "out") if row["reason"] == "header"]
    assert (row["file"], row["line"]) == (str(header), 1)
    assert (row["source"], row["target"]) == ("English", "German")


def test_first_pair_is_not_the_header(tmp_path):
    (tmp_path / "a.tsv").write_text("\ufeffen\tde\nThe dog.\tDer Hund.\n", "utf-8")
    name = str(tmp_path / "a.tsv")
    [source] = open_named(corpora=[name], source_language="en", target_language="fr")
    assert source.first_pair() == ["en", "de"]  # "de" is not a given language
    [source] = open_named(corpora=[name], source_language="en")
    assert source.first_pair() == ["The dog.", "Der Hund."]
