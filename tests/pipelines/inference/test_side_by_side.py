"""A call divided among threads gives the same translations in the same order."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from fakes import Reverser
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.inference import side_by_side
from tt.pipelines.inference.side_by_side import SideBySide, divide
from tt.pipelines.streams import connectors
from tt.pipelines.streams.messages import Message

TEXTS = ["a" * (1 + 7 * i % 11) + f" {'bcdefgh'[i % 7]}{'ijklmn'[i // 7]}" for i in range(40)]


def divided(translator, calls=2):
    return SideBySide(translator, calls=calls)


def test_a_divided_call_gives_the_translations_of_a_single_call():
    inputs = Reverser().prepare(TEXTS)
    alone, work = Reverser().translate(inputs)
    found, divided_work = divided(Reverser()).translate(inputs)
    assert found == alone
    assert divided_work.sources == work.sources == 40


class Meeting(Reverser):
    """Translates only while the given number of calls run at the same time."""

    def __init__(self, calls):
        super().__init__()
        self.barrier = threading.Barrier(calls, timeout=10)

    def translate(self, inputs):
        self.barrier.wait()
        return super().translate(inputs)


def test_calls_run_at_the_same_time():
    translator = divided(Meeting(3), calls=3)
    assert len(translator.translate(translator.prepare(TEXTS))[0]) == 40


class Broken(Reverser):
    """Fails with a MemoryError if a text contains the digit 9, otherwise with a ValueError."""

    def translate(self, inputs):
        raise MemoryError if any("9" in each.text for each in inputs) else ValueError("text")


def test_errors_of_the_machine_are_raised_before_errors_of_texts():
    translator = divided(Broken())
    for texts in (["9", *["aaaa"] * 20], ["999999", *["a"] * 20]):
        with pytest.raises(MemoryError):
            translator.translate(translator.prepare(texts))
    with pytest.raises(ValueError, match="text"):
        translator.translate(translator.prepare(["a"] * 20))


@given(
    st.lists(st.integers(2, 100), max_size=60), st.integers(1, 8), st.sampled_from([1, 128, 1024])
)
def test_each_row_is_in_one_share_and_shares_have_similar_lengths(lengths, calls, most_tokens):
    shares = divide(lengths, calls=calls, most_tokens=most_tokens)
    assert sorted(place for share in shares for place in share) == list(range(len(lengths)))
    if len(shares) > 1:
        ordered = [lengths[place] for share in shares for place in share]
        assert ordered == sorted(lengths, reverse=True)
        assert all(shares)
        longest = max(lengths)
        fair = sum(lengths) / (calls * -(-sum(lengths) // (calls * most_tokens)))
        assert all(sum(lengths[i] for i in share) <= fair + 2 * longest for share in shares)


def test_few_rows_are_not_divided():
    translator = Reverser()
    divided(translator).translate(translator.prepare(TEXTS[:5]))
    assert [len(call) for call in translator.calls] == [5]


@pytest.mark.parametrize(("cores", "gpus", "calls"), [(2, 0, 2), (2, 1, 1), (2, 4, 4)])
def test_calls_are_divided_among_cores_or_gpus(cores, gpus, calls, monkeypatch):
    monkeypatch.setattr(side_by_side, "cores", lambda: cores)
    translator = Reverser()
    translator.gpus = gpus
    config = connectors.TranslateMessages(load_translator=lambda: translator, max_batch=100)
    step = connectors._TranslateBatch(config)
    step._model = SimpleNamespace(acquire=lambda: translator)
    step.setup()
    messages = [Message(value=text.encode(), source="t/0/0") for text in TEXTS]
    assert len(list(step.process(messages))) == len(TEXTS)
    assert len(translator.calls) == calls
    step.teardown()
