"""Messages: their texts, their answers, and the parts that must not change."""

import dataclasses
import json

import pytest
from fakes import Reverser
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.inference.text_model import TextModel
from tt.pipelines.streams.messages import (
    SMALLEST,
    TOO_LARGE,
    Message,
    MessageError,
    Outputs,
    answer,
    answer_messages,
    fail,
    read_texts,
)
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import FAILED, STATUSES, TextFields, TranslatedText

TITLE = TextFields(fields=("title",))
BOTH = TextFields(fields=("title", "product.text"))
PLAIN = TextFields()


def message(value, **fields):
    return Message(value=value, source="titles/3/17", **fields)


def model_of(translator):
    return TextModel(translator=translator, options=TextOptions())


def translated(text, status="ok", **fields):
    return TranslatedText(translation=text, score=-0.5, status=status, **fields)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
others = st.dictionaries(st.text().filter(lambda k: not k.startswith("t")), json_values, max_size=4)


@given(others=others, title=st.text(), indent=st.sampled_from([None, 1]), new=st.text())
def test_json_keeps_every_byte_before_its_final_brace(others, title, indent, new):
    value = json.dumps({**others, "title": title}, indent=indent).encode() + b" \n"
    made = answer(message(value), [translated(new)], form=TITLE)
    assert made.value.startswith(value.rstrip()[:-1])
    assert json.loads(made.value) == {
        **others, "title": title, "translation": new, "translation_score": -0.5,
        "translation_status": "ok", "translation_error": None, "translation_flags": [],
    }  # fmt: skip


def test_json_that_python_would_rewrite_stays_unchanged():
    value = b'{"n": 1.10, "n": 1E400, "big": ' + b"9" * 5000 + b', "title": "a"}'
    assert read_texts(message(value), form=TITLE) == [b"a"]
    made = answer(message(value), [translated("b")], form=TITLE)
    assert made.value.startswith(value[:-1])


def test_added_fields_of_several_texts_have_prefixes():
    value = b'{"product": {"text": "c d"}, "title": "a"}'
    assert read_texts(message(value), form=BOTH) == [b"a", b"c d"]
    made = json.loads(answer(message(value), [translated("A"), translated("B")], form=BOTH).value)
    assert made["title_translation"] == "A"
    assert made["product.text_translation"] == "B"
    assert made["product"] == {"text": "c d"}


def test_a_field_with_a_dot_in_its_own_name_is_found():
    assert read_texts(message(b'{"a.b": "c"}'), form=TextFields(fields=("a.b",))) == [b"c"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not JSON"),
        (b"title", "not JSON"),
        (b'{"title": "a"', "not JSON"),
        (b'{"title": "a"} {}', "not JSON"),
        (b'{"title": NaN}', "NaN is not a JSON number"),
        (b"[" * 100_000, "not JSON"),
        (b'{"title": "\xff"}', "not UTF-8"),
        (b'"title"', "not a JSON object but str"),
        (b"[1]", "not a JSON object but list"),
        (b"null", "not a JSON object but NoneType"),
        (b"12", "not a JSON object but int"),
        (b"{}", "no field title"),
        (b'{"title": 1}', "must be a text, not int"),
        (b'{"title": true}', "must be a text, not bool"),
        (b'{"title": ["a"]}', "must be a text, not list"),
        (b'{"title": {"a": "b"}}', "must be a text, not dict"),
        (b'{"title": "\\ud800"}', "half of a surrogate pair"),
        (b'{"title": "a", "translation": "b"}', "already has a field translation"),
    ],
)
def test_a_message_without_a_text_gives_the_reason(value, reason):
    with pytest.raises(MessageError, match=reason):
        read_texts(message(value), form=TITLE)


@given(value=st.binary(max_size=40) | json_values.map(lambda each: json.dumps(each).encode()))
def test_any_bytes_give_exactly_one_answer(value):
    for form in (PLAIN, TITLE, BOTH):
        made, found = answer_messages([message(value)], form=form, model=model_of(Reverser()))
        assert len(made) == 1
        assert made[0].status in STATUSES
        assert (made[0].error is None) == (made[0].status != FAILED) or made[0].status == "unknown"
        assert len(found) in (0, 1, 2)


def test_a_message_that_deletes_its_key_gets_a_null_answer():
    for form in (PLAIN, TITLE):
        found = [TranslatedText(status="null")] * len(read_texts(message(None), form=form))
        made = answer(message(None), found, form=form)
        assert (made.value, made.status) == (None, "null")


def test_a_failed_text_is_empty_and_does_not_delete_its_key():
    text = TranslatedText(status=FAILED, error="too hard")
    made = answer(message(b"a"), [text], form=PLAIN)
    assert (made.value, made.status, made.error) == (b"", FAILED, "too hard")


def test_the_worst_text_determines_the_status():
    found = [translated("A", "split"), TranslatedText(status=FAILED, error="why")]
    made = answer(message(b'{"title": "a", "product": {"text": "b"}}'), found, form=BOTH)
    assert (made.status, made.error) == (FAILED, "why")


def test_headers_are_kept_except_those_of_an_earlier_stream():
    headers = (("a", b"1"), ("tt-source", b"old/0/0"), ("a", None), ("tt-error", b"old"))
    made = answer(message(b"a", headers=headers), [translated("A")], form=PLAIN)
    assert made.headers == (
        ("a", b"1"), ("a", None), ("tt-source", b"titles/3/17"), ("tt-status", b"ok"),
    )  # fmt: skip


def test_failed_json_has_the_reason_in_its_fields():
    made = fail(message(b'{"title": 1, "id": 7}'), "no text", form=TITLE)
    assert json.loads(made.value) == {
        "title": 1, "id": 7, "translation": None, "translation_score": None,
        "translation_status": "failed", "translation_error": "no text", "translation_flags": [],
    }  # fmt: skip
    assert dict(made.headers)["tt-error"] == b"no text"


@pytest.mark.parametrize("value", [b"no json", b'{"title": "a", "translation": "b"}'])
def test_failed_values_stay_unchanged_if_no_fields_can_be_added(value):
    assert fail(message(value), "why", form=TITLE).value == value


# Tests of `Outputs` and of `answer_messages`.


def test_failed_messages_are_dead_letters_with_their_original_value():
    made = fail(message(b'{"title": 1}'), "why", form=TITLE)
    found = Outputs(output="out", dead_letter="dead", form=TITLE).deliver(made, attempt=0)
    assert (found.topic, found.value) == ("dead", b'{"title": 1}')
    assert dict(found.headers) == {
        "tt-source": b"titles/3/17", "tt-status": b"failed", "tt-error": b"why"
    }  # fmt: skip
    found = Outputs(output="out", form=TITLE).deliver(made, attempt=0)
    assert (found.topic, found.value) == ("out", made.value)


@pytest.mark.parametrize("has_dead_letter", [False, True])
def test_each_form_of_a_too_large_answer_is_smaller_and_the_last_has_no_key(has_dead_letter):
    source = dataclasses.replace(message(b"text"), key=b"k", headers=(("own", b"1"),))
    made = answer(source, [translated("a long one")], form=PLAIN)
    outputs = Outputs(output="out", dead_letter="dead" if has_dead_letter else None)
    found = [outputs.deliver(made, attempt=attempt) for attempt in range(SMALLEST + 1)]
    assert [each.topic == "dead" for each in found] == [False, *[has_dead_letter] * 4]
    kept = b"text" if has_dead_letter else b""
    assert [each.value for each in found] == [b"a long one", kept, b"", b"", b""]
    assert ["own" in dict(each.headers) for each in found] == [True, True, True, False, False]
    assert [each.key for each in found] == [b"k", b"k", b"k", b"k", None]
    for each in found[1:]:
        headers = dict(each.headers)
        assert headers["tt-error"] == TOO_LARGE.encode()
        assert headers["tt-source"] == source.source.encode()


def test_messages_are_translated_together_and_each_gets_its_own_answer():
    model = Reverser(poison="!")
    values = [b'{"title": "abc"}', b"no json", b'{"title": "x!"}', b'{"title": null}', None]
    messages = [message(value) for value in values]
    made, found = answer_messages(messages, form=TITLE, model=model_of(model))
    assert [each.status for each in made] == ["ok", "failed", "failed", "null", "null"]
    assert json.loads(made[0].value)["translation"] == "cba"
    assert made[2].error == "ValueError: bad"
    assert [each.status for each in found] == ["ok", "failed", "null", "null"]
