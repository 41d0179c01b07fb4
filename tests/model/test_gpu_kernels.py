"""Every node of the training and of the searches has a GPU kernel in the installed TensorFlow.

TensorFlow's wheel for Linux contains the GPU kernels, and their registry can be read without a GPU.
A node without a GPU kernel would run on the CPU, and wait for copies between the devices.
"""

from __future__ import annotations

import functools

import pytest
import tensorflow as tf

# TensorFlow has no public function for its registry.
from graphs import nodes_of
from tensorflow.python.framework.kernels import get_registered_kernels_for_op
from toy import toy_config, write_dataset
from trainers import changed, make_trainer

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.text.vocabulary import load_vocabularies
from tt.model.transformer.search_options import Decoding
from tt.model.transformer.transformer import Transformer, dtype_policy

GPU = ("GPU", "DEFAULT")  # DEFAULT stands for all devices


@pytest.fixture(scope="module", autouse=True)
def gpu_wheel():
    if not any(kernel.device_type == "GPU" for kernel in kernels_of("MatMul")):
        pytest.skip(f"TensorFlow {tf.__version__} was built without GPU kernels")


@pytest.fixture(autouse=True)
def gpu_shapes(monkeypatch):
    """Trace the products as on a machine with GPUs."""
    for module in ("training.loss", "transformer.transformer"):
        monkeypatch.setattr(f"tt.model.{module}.bias_width", lambda: 8)


@functools.cache
def kernels_of(op):
    return get_registered_kernels_for_op(op).kernel


def fits(kernel, node):
    """Return whether a kernel is for GPUs and for the attributes of a node."""
    label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
    return (
        kernel.device_type in GPU
        and kernel.label == label
        and all(
            {node.attr[each.name].type, *node.attr[each.name].list.type} - {0}
            <= {*each.allowed_values.list.type}
            for each in kernel.constraint
        )
    )


def without_kernel(functions):
    """Return the nodes without a GPU kernel, and the number of all nodes.

    Args:
      functions: Traced functions by name.
    """
    found, count = [], 0
    for name, function in functions.items():
        for node in nodes_of(function):
            count += 1
            if not any(fits(kernel, node) for kernel in kernels_of(node.op)):
                types = {k: tf.as_dtype(v.type).name for k, v in node.attr.items() if v.type}
                found.append(f"{name}: {node.name} ({node.op} {types})")
    return found, count


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    write_dataset(folder, train=60, validation=10)
    return folder


@pytest.mark.parametrize(
    ("compute_type", "most_logits"),
    [("float32", 2**27), ("mixed_bfloat16", 2**27), ("mixed_bfloat16", 1)],
    ids=["float32", "bfloat16", "a loss in slices"],
)
def test_each_node_of_a_training_has_a_gpu_kernel(
    dataset, tmp_path, compute_type, most_logits, monkeypatch
):
    monkeypatch.setattr("tt.model.training.step.MOST_LOGITS", most_logits)
    training = changed(
        compute_type=compute_type, clip_norm=1.0, label_smoothing=0.1, effective_batch_size=512
    )
    trainer = make_trainer(dataset, tmp_path / "run", training=training, attention_dropout=0.1)
    step = trainer._step
    (translator,) = trainer._validator._translators
    functions = {
        "update": step._update, "accumulate": step._accumulate, "validate": step._sums,
        "search of the validation": translator._search, "sum over workers": trainer.workers._sum,
    }  # fmt: skip
    traced = {name: each.get_concrete_function() for name, each in functions.items()}
    found, count = without_kernel(traced)
    assert not found, "\n".join(found)
    assert count > 2000


def test_each_node_of_two_replicas_has_a_gpu_kernel(dataset, tmp_path):
    # TensorFlow's own choice is the exchange between GPUs. `make_strategy` replaces it on CPUs,
    # where it may deadlock, but tracing does not run it.
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    step = make_trainer(dataset, tmp_path / "run", strategy)._step
    update = step._update.get_concrete_function()
    assert "CollectiveReduceV2" in {node.op for node in nodes_of(update)}
    found, _ = without_kernel({"update": update, "validate": step._sums.get_concrete_function()})
    assert not found, "\n".join(found)


@pytest.mark.parametrize("compute_type", ["float32", "bfloat16", "float16"])
def test_each_node_of_a_search_has_a_gpu_kernel(dataset, compute_type):
    vocabularies = load_vocabularies(dataset)
    with dtype_policy(compute_type):
        model = Transformer(toy_config(layers=1))
    functions = {}
    for beams in (1, 4):
        decoding = Decoding(beam_size=beams, no_repeat_ngram_size=3)
        translator = TensorFlowTranslator(model, vocabularies, decoding)
        functions[f"search with {beams} beams"] = translator._search.get_concrete_function()
    functions["score"] = translator._score.get_concrete_function()
    found, count = without_kernel(functions)
    assert not found, "\n".join(found)
    assert count > 1000


def test_nodes_without_a_gpu_kernel_are_named():
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def function(values):
        def body(i, values):
            return i + 1, tf.matmul(values, values, name="int32_product")

        once = tf.matmul(tf.cast(values, tf.float32), tf.ones([3, 3]))  # float32 has a kernel
        _, values = tf.while_loop(lambda i, _: i < 3, body, [0, values])
        return once, tf.strings.as_string(values, name="texts")

    found, _ = without_kernel({"example": function.get_concrete_function()})
    assert found == [
        "example: texts (AsString {'T': 'int32'})",
        "example: while/int32_product (MatMul {'T': 'int32'})",  # in the function of the loop
    ]
