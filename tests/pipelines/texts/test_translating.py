"""Translations of the cells of a text column, with a translator that reverses texts."""

from __future__ import annotations

import collections
import dataclasses
import math

import pytest
from fakes import UNKNOWN, Reverser, reverse
from hypothesis import given
from hypothesis import strategies as st

from tt.model.engines.translator import Hypothesis, Translation, Work
from tt.model.errors import UserError
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import STATUSES, TranslatedText
from tt.pipelines.texts.translating import translate_texts


def translate(texts, translator=None, **options):
    """Translate cells, given as str, bytes or None."""
    cells = [text.encode() if isinstance(text, str) else text for text in texts]
    return translate_texts(
        cells, translator=translator or Reverser(), options=TextOptions(**options)
    )


def texts_of(result):
    return [cell.translation for cell in result.translations]


def scores_of(result):
    return [cell.score for cell in result.translations]


def without_padding(work):
    """Return the work without the padding, which depends on the batches."""
    return dataclasses.replace(work, padded_tokens=0)


def statuses_of(result):
    return [cell.status for cell in result.translations]


def test_rows_have_a_status_and_distinct_texts_are_translated_once():
    translator = Reverser()
    texts = ["abc", None, "", " \t", "\u200b", "abcde", "abcdef", "abc", "ä", " abc", b"\xe4"]
    result = translate(texts, translator, max_source_tokens=7, on_too_long="skip")
    assert texts_of(result) == ["cba", None, "", "", "", "edcba", None, "cba", "ä", " cba", None]
    assert scores_of(result) == [-3, None, None, None, None, -5, None, -3, -1, -3, None]
    assert statuses_of(result) == [
        *("ok", "null", "empty", "empty", "empty", "ok", "too_long", "ok", "ok", "ok", "failed")
    ]
    assert [cell.error for cell in result.translations] == [
        *[None] * 6, "a sentence has 8 tokens; at most 7 are allowed", *[None] * 3,
        "not UTF-8: unexpected end of data",
    ]  # fmt: skip
    assert translator.translated == ["abc", "abcde", "ä"]
    assert (result.texts, result.distinct_texts) == (5, 3)
    assert result.work == Work(sources=3, source_tokens=15, padded_tokens=3 * 7, target_tokens=15)
    assert set(statuses_of(result)) <= set(STATUSES)


def test_n_best_hypotheses_are_returned():
    [cell, empty] = translate(["ab", ""], Reverser(n_best=3)).translations
    assert cell.n_best == (Hypothesis("ba", -2), Hypothesis("ba'", -3), Hypothesis("ba''", -4))
    assert (cell.translation, cell.score) == ("ba", -2)
    assert empty.n_best == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_source_tokens": 2}, "must be at least 3 .* Received: 2"),
        ({"split": "never", "on_too_long": "split"}, "contradict each other. Remove either option"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        TextOptions(**options)


# --- sentences ------------------------------------------------------------------------------

SENTENCES = " Go on.  Go on.\n\nDr. Ho left.\t"


def test_text_is_translated_by_sentences_and_keeps_its_white_space():
    translator = Reverser()
    result = translate([SENTENCES, "Go on.", "short"], translator)
    [cell, sentence, _] = result.translations
    assert cell.translation == " .no oG  .no oG\n\n.tfel oH .rD\t"
    assert cell.score == -6 - 6 - 12, "the score is the sum over the sentences"
    assert cell.status == "ok"
    assert cell.n_best == (Hypothesis(cell.translation, cell.score),)
    assert (sentence.translation, sentence.status) == (".no oG", "ok")
    assert translator.translated == ["Go on.", "Dr. Ho left.", "short"]
    assert (result.texts, result.distinct_texts) == (3 + 1 + 1, 3)


@pytest.mark.parametrize(
    ("split", "most", "expected"),
    [
        ("sentences", 258, " .no oG  .no oG\n\n.tfel oH .rD\t"),
        ("long", 258, SENTENCES.strip()[::-1]),
        ("long", 15, " .no oG  .no oG\n\n.tfel oH .rD\t"),
        ("never", 258, SENTENCES.strip()[::-1]),
        ("never", 15, None),
    ],
)
def test_which_texts_are_cut_into_sentences(split, most, expected):
    [cell, short] = translate(
        [SENTENCES, "Ab. Cd."], split=split, max_source_tokens=most
    ).translations
    assert cell.translation == expected
    assert cell.status == ("ok" if expected else "too_long")
    assert short.translation == (".bA .dC" if split == "sentences" else ".dC .bA")


def test_hypotheses_of_several_sentences_are_the_most_probable_combinations():
    [cell] = translate(["Ab. Cdef."], Reverser(n_best=3)).translations
    # The score of a sentence is minus its length. The second hypothesis costs 1 more, and the third
    # one costs 2 more.
    best = Hypothesis(".bA .fedC", -3 - 5)
    assert cell.n_best[0] == best
    assert {each.text for each in cell.n_best[1:]} == {".bA' .fedC", ".bA .fedC'"}
    assert [each.score for each in cell.n_best] == [-8, -9, -9]


def test_best_translation_combines_the_best_of_each_sentence():
    class ByLength(Reverser):
        """Returns a second hypothesis that is more probable, but has a lower rank."""

        def translate(self, inputs):
            found, work = super().translate(inputs)
            better = [Translation((a, dataclasses.replace(b, score=-0.5))) for a, b in
                      (each.hypotheses for each in found)]  # fmt: skip
            return better, work

    [cell] = translate(["Ab. Cdef."], ByLength(n_best=2)).translations
    assert [each.score for each in cell.n_best] == [-8, -1.0]
    assert cell.translation == ".bA .fedC"


# --- cells without text to translate, and incomplete translations ------------------------------


@pytest.mark.parametrize("text", ["12345", "♫", "👩‍👩‍👧!", "***\n---"])
def test_text_without_letters_is_copied(text):
    translator = Reverser()
    [cell] = translate([text], translator).translations
    assert cell == TranslatedText(translation=text, score=None, status="copied")
    assert translator.translated == []


class Limited(Reverser):
    """Ends translations after `limit` letters."""

    def __init__(self, limit, **settings):
        super().__init__(**settings)
        self.limit = limit

    def translate(self, inputs):
        found, work = super().translate(inputs)
        cut = [
            Translation(tuple(
                Hypothesis(h.text[: self.limit], h.score, is_complete=len(h.text) < self.limit)
                for h in each.hypotheses
            ))
            for each in found
        ]  # fmt: skip
        return cut, work


def test_translation_at_the_length_limit_is_incomplete():
    translator = Limited(5)
    result = translate(["abcd", "abcdefghi", "abc. abcdefghijk."], translator)
    assert texts_of(result) == ["dcba", "ihgfe", ".cba .kjih"]
    assert statuses_of(result) == ["ok", "incomplete", "incomplete"]
    assert len(translator.calls) == 1


# --- long sentences ---------------------------------------------------------------------------


def test_long_sentence_is_cut_until_all_parts_fit():
    sentence = "one two three, four five six seven" + "ghijklmnopqrstuvwxyzäöüßéèêàâîôû"
    translator = Reverser()
    [cell] = translate([sentence], translator, max_source_tokens=12).translations
    assert cell.status == "split"
    assert all(len(piece) <= 10 for piece in translator.translated)
    assert "".join(translator.translated).replace(" ", "") == sentence.replace(" ", "")
    assert cell.translation.count(" ") == sentence.count(" ")


def test_source_language_determines_the_ends_of_sentences():
    german = "Am 3. Oktober kam er. Sie ging."
    for language, first in (("de", "Am 3. Oktober kam er."), ("en", "Am 3.")):
        translator = Reverser()
        translate([german], translator, max_source_tokens=25, source_language=language)
        assert translator.translated[0] == first


def test_single_character_may_be_too_long():
    class Bytes(Reverser):
        """Has one token per byte."""

        def prepare(self, texts, **options):
            found = super().prepare(texts, **options)
            return [dataclasses.replace(each, length=len(each.text.encode())) for each in found]

    result = translate(["𝄞 no", "no"], Bytes(), max_source_tokens=5)
    assert statuses_of(result) == ["split", "ok"]
    assert texts_of(result) == ["𝄞 on", "on"], "a character that is not a letter is kept"
    result = translate(["𐐀 no", "no"], Bytes(), max_source_tokens=5)
    assert statuses_of(result) == ["too_long", "ok"]
    assert texts_of(result) == [None, "on"]


def test_truncated_cell_has_the_translation_of_its_beginning():
    translator = Reverser(n_best=2)
    result = translate(
        ["abcdefgh", "abcd"], translator, max_source_tokens=6, on_too_long="truncate"
    )
    [cell, whole] = result.translations
    assert (cell.translation, cell.score, cell.status) == ("dcba", -4, "too_long")
    assert len(cell.n_best) == 2
    assert (whole.translation, whole.status) == ("dcba", "ok")
    assert translator.translated == ["abcd", "abcd"]
    assert (result.texts, result.distinct_texts, result.work.source_tokens) == (2, 2, 12)


# --- texts with symbols that the vocabulary does not have --------------------------------------


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (UNKNOWN, "unknown"),
        (UNKNOWN + "a", "ok"),  # exactly half
        (UNKNOWN * 3 + "ab", "unknown"),
    ],
)
def test_text_that_is_mostly_unknown_is_not_translated(text, status):
    translator = Reverser()
    result = translate([text, "known"], translator)
    assert statuses_of(result) == [status, "ok"]
    if status == "unknown":
        error = f"{text.count(UNKNOWN)} of {len(text)} letters and symbols are unknown to the model"
        assert result.translations[0] == TranslatedText(
            translation=None, score=None, status="unknown", error=error
        )
        assert translator.translated == ["known"]
        assert (result.texts, result.distinct_texts) == (1, 1)
    else:
        assert result.translations[0].error is None


@pytest.mark.parametrize("on_too_long", ["split", "truncate", "skip"])
def test_share_of_unknown_symbols_covers_the_whole_text(on_too_long):
    options = {"max_source_tokens": 8, "on_too_long": on_too_long}
    translator = Reverser()
    result = translate([f"{UNKNOWN * 5}. Abcd.", f"{UNKNOWN * 5}. Abcde."], translator, **options)
    assert statuses_of(result) == ["unknown", "ok"]
    assert result.translations[0].error == "5 of 9 letters and symbols are unknown to the model"


# --- failing sources ------------------------------------------------------------------------


@pytest.mark.parametrize("places", [[0, 999], [333, 334]])
def test_failing_source_does_not_affect_a_thousand_others(places):
    texts = [f"row {i}" for i in range(1000)]
    for i in places:
        texts[i] += "!"
    translator = Reverser(poison="!")
    result = translate(texts, translator)
    assert [i for i, cell in enumerate(result.translations) if cell.status == "failed"] == places
    assert texts_of(result) == [None if "!" in text else reverse(text) for text in texts]
    assert {cell.error for cell in result.translations} == {None, "ValueError: bad"}
    assert (result.texts, result.distinct_texts) == (1000 - len(places),) * 2
    assert result.work.sources == 1000 - len(places), "failed calls do not count"
    # Each failing source is on a path of the bisection tree, and each node has two children.
    assert len(translator.calls) <= 1 + 2 * len(places) * math.ceil(math.log2(1000))


@pytest.mark.parametrize("places", [[0], [7, 40]])
def test_text_that_cannot_be_encoded_does_not_affect_others(places):
    texts = [f"row {i}" + "!" * (i in places) for i in range(64)]
    result = translate(texts, Reverser(encode_poison="!"))
    assert [i for i, cell in enumerate(result.translations) if cell.status == "failed"] == places
    assert result.texts == 64 - len(places)


def test_cell_with_a_failing_piece_fails():
    for translator in (Reverser(poison="!"), Reverser(encode_poison="!")):
        result = translate(["One.", "Two! One."], translator, max_source_tokens=8)
        assert statuses_of(result) == ["ok", "failed"]
    result = translate(["Two! One. Six."], Reverser(poison="!"), max_source_tokens=8)
    assert statuses_of(result) == ["failed"]
    assert (result.texts, result.distinct_texts) == (2, 2), "its other pieces were translated"


def test_error_that_no_source_has_caused_is_raised():
    fault = OSError("no route to host")
    for translator in (Reverser(poison="!", fault=fault), Reverser(encode_poison="!", fault=fault)):
        with pytest.raises(OSError, match="no route") as raised:
            translate(["a", "b!", "c"], translator)
        assert raised.value is fault
        assert len(translator.calls) <= 1, "the call is not repeated"


@pytest.mark.parametrize("poison", ["poison", "encode_poison"])
def test_all_texts_may_fail_if_the_probe_succeeds(poison):
    for texts in (["a!", "b!", "c!", None, ""], ["a!", None, ""]):
        result = translate(texts, Reverser(**{poison: "!"}))
        assert statuses_of(result) == ["failed"] * (len(texts) - 2) + ["null", "empty"]
        assert {cell.error for cell in result.translations} == {"ValueError: bad", None}
        assert (result.texts, result.work) == (0, Work()), "the probe does not count"


@pytest.mark.parametrize("poison", ["poison", "encode_poison"])
def test_first_error_is_raised_if_the_probe_fails(poison):
    class First(Reverser):
        """Adds the sources of a failed call to the message of its error."""

        def prepare(self, texts, **options):
            try:
                return super().prepare(texts, **options)
            except ValueError as error:
                raise ValueError(f"of the machine, with {texts}") from error

        def translate(self, inputs):
            try:
                return super().translate(inputs)
            except ValueError as error:
                texts = [each.text for each in inputs]
                raise ValueError(f"of the machine, with {texts}") from error

    for texts, first in ((["b!", "c!", None], "b!"), (["b!", None], "b!")):
        with pytest.raises(ValueError, match="of the machine") as raised:
            translate(texts, First(**{poison: "!a"}))
        assert str(raised.value).endswith(f"with {[first]}")


# --- independence of rows -------------------------------------------------------------------

CELLS = st.lists(
    st.one_of(
        st.none(),
        st.binary(max_size=3),
        st.lists(
            st.sampled_from(["Go. ", "Stop! ", "one, two", " ", "我。", "ab"]), max_size=8
        ).map(lambda parts: "".join(parts).encode()),
    ),
    max_size=25,
)


@given(
    cells=CELLS,
    data=st.data(),
    on_too_long=st.sampled_from(["split", "truncate", "skip"]),
    poison=st.sampled_from(["", "!", "我"]),
)
def test_result_of_a_row_does_not_depend_on_other_rows_or_their_order(
    cells, data, on_too_long, poison
):
    order = data.draw(st.permutations(range(len(cells))))
    options = {"max_source_tokens": 9, "on_too_long": on_too_long}
    together = translate(cells, Reverser(poison=poison), **options)
    shuffled = translate([cells[i] for i in order], Reverser(poison=poison), **options)
    assert shuffled.translations == [together.translations[i] for i in order]
    assert (shuffled.texts, shuffled.distinct_texts, without_padding(shuffled.work)) == (
        together.texts,
        together.distinct_texts,
        without_padding(together.work),
    )
    for i in order[:3]:
        [alone] = translate([cells[i]], Reverser(poison=poison), **options).translations
        assert alone == together.translations[i]


@given(cells=CELLS)
def test_each_source_is_translated_once_and_has_a_limited_length(cells):
    translator = Reverser()
    result = translate(cells, translator, max_source_tokens=9)
    assert len(translator.translated) == len(set(translator.translated)) == result.distinct_texts
    assert all(len(text) + 2 <= 9 for text in translator.translated)
    assert len(result.translations) == len(cells)
    for cell, found in zip(cells, result.translations, strict=True):
        if found.status == "split":
            missing = collections.Counter(cell.decode()) - collections.Counter(found.translation)
            assert not missing, "no letter of a long cell is missing"
