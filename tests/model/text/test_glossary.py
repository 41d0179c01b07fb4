"""Glossaries: matching of terms, and parsing of files."""

from __future__ import annotations

import pytest

from tt.model.errors import UserError
from tt.model.text.glossary import Glossary, read_glossary
from tt.model.text.spans import Span
from tt.model.text.vocabulary import read_local


def find(glossary, text):
    return [(text[term.start : term.end], term.replacement) for term in glossary.find(text)]


def test_longest_terms_match_as_whole_words():
    glossary = Glossary({"tea": "Tee", "tea pot": "Kanne", "C++": "C++"}, {"new york": "NY"})
    assert find(glossary, "A tea pot, a tea, a teapot; New York, NEW YORKER, C++.") == [
        ("tea pot", "Kanne"),
        ("tea", "Tee"),
        ("New York", "NY"),
        ("C++", "C++"),
    ]
    assert find(glossary, "Tea") == []


def test_longest_term_wins_among_exact_and_any_case_terms():
    glossary = Glossary({"white": "weiß", "tea pot": "Kanne"}, {"white house": "WH", "pot": "Topf"})
    assert find(glossary, "the white house and a tea pot") == [
        ("white house", "WH"),
        ("tea pot", "Kanne"),
    ]


def test_matches_that_do_not_case_fold_to_a_term_are_ignored():
    assert find(Glossary({}, {"istanbul": "Istanbul"}), "in İstanbul, ISTANBUL") == [
        ("ISTANBUL", "Istanbul")
    ]


def test_exact_term_wins_over_any_case_term():
    assert find(Glossary({"US": "USA"}, {"us": "uns"}), "US us Us") == [
        ("US", "USA"),
        ("us", "uns"),
        ("Us", "uns"),
    ]


def test_terms_match_inside_words_in_scripts_without_spaces():
    assert find(Glossary({"北京": "Beijing"}, {}), "我在北京大学。") == [("北京", "Beijing")]


def test_terms_are_added_outside_other_spans():
    glossary = Glossary({"tea": "Tee"}, {})
    spans = [Span(4, 7, "{x}")]
    assert glossary.add_terms("tea {x}", spans) == [Span(0, 3, "Tee"), *spans]
    assert glossary.add_terms("abc {x}", spans) == spans
    assert glossary.add_terms("tea", [Span(0, 3, "tea")]) == [Span(0, 3, "tea")]


def write(folder, text):
    path = folder / "terms.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_read_glossary(tmp_path):
    path = write(tmp_path, "\ufefftea\tTee\n\n New York \tNY\tany-case\r\ntea\tTee\texact\n")
    glossary = read_glossary(path, read=read_local)
    assert glossary == Glossary({"tea": "Tee"}, {"new york": "NY"})
    same = Glossary({"tea": "Tee"}, {"new york": "NY"})
    assert glossary.digest == same.digest != Glossary({"tea": "tee"}, {}).digest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\nc\n", r"line 2 of `glossary` .* must contain a term, a tab .* Received: 'c'"),
        ("a\tb\texact\td\n", r"line 1 of .* Received: 'a\\tb\\texact\\td'"),
        ("a\t\n", "line 1 of .* must contain a term, a tab"),
        ("a\tb\tsome\n", "line 1 .* must end in exact or any-case. Received: 'some'"),
        (
            "a\tb\nx\ty\na\tc\n",
            "line 3 .* contradicts an earlier .* 'a' as 'c', the earlier line as 'b'",
        ),
        (
            "A\tb\tany-case\na\tc\tany-case\n",
            "line 2 .* contradicts an earlier .* 'a' as 'c', the earlier line as 'b'",
        ),
        ("\n", "contains no terms. Write one term per line"),
        (b"\xe4\t\xe4\n", "is not UTF-8"),
    ],
)
def test_invalid_files_are_errors(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_glossary(write(tmp_path, content), read=read_local)


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"`glossary` .* cannot be read: No such file or directory"):
        read_glossary(str(tmp_path / "no.tsv"), read=read_local)
