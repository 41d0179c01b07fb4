"""A model on several devices: placement of weights, and one caller per device at a time."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf
from toy import toy_sentences

from tt.model.engines import loading
from tt.model.engines.loading import TranslatorPool, load_translator
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.engines.translator import Engine, Work, count_used_gpus
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_copies import ModelCopies, plan_copies
from tt.pipelines.inference.side_by_side import SideBySide, use_all_devices
from tt.pipelines.texts.word_links import Pair, find_links

CPUS = ["/device:CPU:0", "/device:CPU:1"]
pytestmark = pytest.mark.usefixtures("eager")

SOURCES = [source for source, _ in toy_sentences(40, seed=7)]


def test_each_device_has_the_model_and_gives_the_same_translations(trained_toy, monkeypatch):
    one = load_translator(str(trained_toy.run), decoding=Decoding(), engine=Engine())
    assert isinstance(one, TensorFlowTranslator)
    monkeypatch.setattr(loading, "gpu_devices", lambda: CPUS)
    pool = load_translator(str(trained_toy.run), decoding=Decoding(), engine=Engine())
    translators = [pool._free.get() for _ in CPUS]
    inputs = pool.prepare(SOURCES)
    expected = one.translate(inputs)
    for device, translator in zip(CPUS, translators, strict=True):
        for variable in translator.model.trainable_variables:
            assert variable.value.device.endswith(device)
        assert translator.translate(inputs) == expected
        result = translator._search(tf.constant([[2, 5, 3]]))
        assert result.scores.backing_device.endswith(device)
    assert pool.is_input_error(ValueError())
    assert not pool.is_input_error(KeyError())
    assert count_used_gpus(pool) == 2
    for translator in translators:
        pool._free.put(translator)
    divided, _ = use_all_devices(pool).translate(inputs)
    assert [each.text for each in divided] == [each.text for each in expected[0]]


@pytest.fixture
def translators(trained_toy, monkeypatch, tmp_path):
    """Each engine, and each wrapper of an engine, by name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def load(name):
        engine = Engine(name=name)
        return load_translator(str(trained_toy.run), decoding=Decoding(), engine=engine)

    found = {name: load(name) for name in ("tensorflow", "ctranslate2")}
    monkeypatch.setattr(loading, "gpu_devices", lambda: CPUS)
    found["pool"] = load("tensorflow")
    return found | {f"side by side {name}": SideBySide(found[name], calls=2) for name in found}


def test_engines_and_wrappers_have_the_same_methods(translators):
    def methods(translator):
        """Return the parameters of each public method by its name."""
        return {
            name: [*inspect.signature(method).parameters]
            for name, method in inspect.getmembers(translator, callable)
            if not name.startswith("_")
        }

    for name, translator in translators.items():
        found = methods(translator)
        if name == "tensorflow":  # for validation, for the Python API, and for attention weights
            for own in ("load", "search_ids", "model"):
                del found[own]
        assert found == {
            "is_input_error": ["error"],
            "prepare": ["texts", "languages", "most_tokens"],
            "score": ["pairs"],
            "translate": ["inputs"],
        }, name


def test_links_of_words_come_from_the_model_on_each_device(translators):
    source = SOURCES[0]
    pair = Pair(source, " ".join(reversed(source.split())), cuts=(source.index(" "),))
    links = {
        name: find_links([pair], translator=each, languages=("", ""))
        for name, each in translators.items()
    }
    expected = links["tensorflow"][pair].links
    for name, found in links.items():
        assert found[pair].is_certain, name
        assert found[pair].links == pytest.approx(expected, abs=0.01), name
    assert expected[-1, 0] > 0.5, "the first word of the source is the last word of the translation"


class Counting:
    """A translator that records the maximum number of simultaneous calls."""

    decoding = prepare = is_input_error = None

    def __init__(self):
        self.scored = 0
        self.running = self.most = self.calls = 0
        self.both_run = threading.Barrier(2)

    def translate(self, inputs):
        self.running += 1
        self.calls += 1
        self.most = max(self.most, self.running)
        if self.calls == 1:  # both devices must be in use at the same time
            self.both_run.wait(30)
        self.running -= 1
        if inputs == [0]:
            raise KeyError("no such source")
        return inputs, Work()

    def score(self, pairs):
        assert self.running == 0, "the device is also translating"
        self.scored += 1
        return pairs


def test_each_device_has_one_caller_at_a_time():
    first, second = Counting(), Counting()
    second.both_run = first.both_run
    pool = TranslatorPool([first, second])
    calls = [[number] for number in range(1, 41)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda inputs: pool.translate(inputs)[0], calls))
    assert found == calls
    assert (first.most, second.most) == (1, 1)
    assert first.calls + second.calls == 40
    # A device is free again after an error.
    for _ in range(3):
        with pytest.raises(KeyError, match="no such source"):
            pool.translate([0])
    assert pool.translate([5])[0] == [5]
    # Scoring takes turns with translating.
    for _ in range(4):
        assert pool.score([(5, "five")]) == [(5, "five")]
    assert (first.scored, second.scored) == (2, 2)


@pytest.mark.parametrize(
    ("copies", "arguments", "gpus", "expected", "line"),
    [
        (None, [], 1, ModelCopies(2, 2, gpus=1), "Translating 2 units in parallel, on 1 GPU"),
        (None, [], 2, ModelCopies(4, 1, gpus=2), "Translating 4 units in parallel, on 2 GPUs"),
        (None, [], 8, ModelCopies(16, 1, gpus=8), "Translating 16 units in parallel, on 8 GPUs"),
        (1, [], 2, ModelCopies(1, 4, gpus=2), "Translating 1 unit in parallel, on 1 GPU"),
        (3, [], 1, ModelCopies(3, 1, gpus=1), "Translating 3 units in parallel, on 1 GPU"),
        (None, ["--direct_num_workers=2"], 1, ModelCopies(2, 2, gpus=1),
         "Translating 2 units in parallel, on 1 GPU"),
        (None, ["--runner=FlinkRunner"], 1, ModelCopies(None, 1),
         "Translating in the workers that the runner starts"),
    ],
)  # fmt: skip
def test_number_of_copies_depends_on_the_gpus(monkeypatch, copies, arguments, gpus, expected, line):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    found = plan_copies(copies, beam_arguments=arguments, gpus=gpus)
    assert found == expected
    assert found.describe() == line
