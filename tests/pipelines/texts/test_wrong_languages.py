"""What is said of corpora that seem to be in other languages than was named."""

import pytest

from pipelines.texts.wrong_languages import describe_wrong_languages

ENGLISH = {"en": 90, "": 30, "de": 2}
GERMAN = {"de": 100, "nl": 5, "": 17}
UNKNOWN = {"": 110, "id": 12}  # a language without a row


def describe(source, target, languages):
    codes = dict(zip(("source", "target"), languages, strict=True))
    return describe_wrong_languages("a.tsv", {"source": source, "target": target}, codes=codes)


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        (ENGLISH, GERMAN, ("en", "de")),
        (ENGLISH, GERMAN, ("en-GB", "deu")),
        (ENGLISH, GERMAN, ("", "")),
        (ENGLISH, UNKNOWN, ("en", "sw")),
        ({"en": 19}, {"de": 19}, ("de", "en")),  # too few to tell
        ({"en": 25, "": 100}, GERMAN, ("fr", "de")),  # mostly names
        ({"en": 50, "de": 50}, GERMAN, ("de", "de")),  # mixed
        ({"en": 85, "fr": 15}, GERMAN, ("fr", "de")),  # much quoted
        ({"no": 80, "da": 5}, ENGLISH, ("da", "en")),
        ({"no": 80}, ENGLISH, ("nn", "en")),
        ({"ar": 80}, ENGLISH, ("arz", "en")),
        ({"id": 80}, ENGLISH, ("ms", "en")),
        ({"hr": 80}, {"hr": 80}, ("sr", "hr")),
    ],
)
def test_no_doubt_of_what_may_well_be_right(source, target, languages):
    assert describe(source, target, languages) == ""


def test_sides_the_wrong_way_round_are_told_by_a_language_s_other_names():
    for norwegian in ("no", "nb", "nn"):
        assert "the wrong way round" in describe({"no": 80}, ENGLISH, ("en", norwegian))


def test_sides_the_wrong_way_round_are_told():
    doubt = describe(ENGLISH, GERMAN, ("de", "en-US"))
    assert doubt == (
        "a.tsv seems to have its sides the wrong way round: 90 of 92 source texts that tell their "
        "language are in en and 100 of 105 target texts that tell their language are in de, but "
        "`source_language` is de and `target_language` is en-US. Swap the texts (of TSV, the "
        "columns: FILE:1:0), or the languages, and make the dataset again"
    )


@pytest.mark.parametrize("named", ["source", "target"])
def test_sides_are_the_wrong_way_round_where_one_language_is_named_too(named):
    codes = {"source": "de", "target": "en"}
    doubt = describe(ENGLISH, GERMAN, [codes[side] if side == named else "" for side in codes])
    assert doubt.startswith("a.tsv seems to have its sides the wrong way round: 90 of 92 source")
    assert doubt.endswith(
        f"in de, but `{named}_language` is {codes[named]}. Swap the texts (of TSV, the columns: "
        "FILE:1:0), or name the other language, and make the dataset again"
    )
    right = {"source": ("en", ""), "target": ("", "de")}
    assert describe(ENGLISH, GERMAN, right[named]) == ""


@pytest.mark.parametrize(
    ("source", "target", "languages", "expected"),
    [
        (ENGLISH, GERMAN, ("fr", "de"), "90 of 92 source texts that tell their language are in en, "
         "and `source_language` is fr"),
        (ENGLISH, ENGLISH, ("en", "de"), "90 of 92 target texts that tell their language are in "
         "en, and `target_language` is de"),
        (UNKNOWN, ENGLISH, ("en", "sw"), "90 of 92 target texts that tell their language are in "
         "en, and `target_language` is sw"),
        (ENGLISH, UNKNOWN, ("de", ""), "90 of 92 source texts that tell their language are in en, "
         "and `source_language` is de"),
        (ENGLISH, {"": 9}, ("zh", "en"), "90 of 92 source texts that tell their language are in "
         "en, and `source_language` is zh"),
    ],
)  # fmt: skip
def test_a_side_in_another_language_is_told(source, target, languages, expected):
    doubt = describe(source, target, languages)
    assert doubt == (
        f"a.tsv seems to be in another language: {expected}. Name the language of the texts, "
        "or another corpus, and make the dataset again"
    )
