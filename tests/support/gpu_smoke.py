"""Train and translate on the devices of a machine; test_gpu_smoke.py starts this script.

    python tests/support/gpu_smoke.py GPU FOLDER float32 mixed_bfloat16

It writes the results of each device to FOLDER/found.json. With CPU instead of GPU, two logical CPU
devices replace GPUs.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from pathlib import Path

BATCHES = 6  # two per update


def train(dataset, run, *, devices, compute_type):
    """Train on a few batches; return the loss per token of each batch."""
    from trainers import changed, make_trainer

    from tt.model.dataset.batches import Position
    from tt.model.training.strategies import make_strategy

    training = changed(
        compute_type=compute_type, peak_learning_rate=0.001, effective_batch_size=4096
    )
    trainer = make_trainer(dataset, run, make_strategy("auto", devices=devices), training=training)
    trainer._batches_an_update = 2  # for any number of replicas
    batches = dataclasses.replace(trainer.data.batches("train"), replicas=2)
    losses = []
    for batch in itertools.islice(batches.epoch(Position()), BATCHES):
        trainer._train_on(batch)
        result = trainer._step.read(trainer._unread[-1][1])
        losses.append(result.sums.loss / result.sums.tokens)
    trainer._read_results()
    assert trainer.state.step == BATCHES // 2
    trainer._saver.export_final(trainer.state)
    trainer.close()
    return losses


def translate(run, *, device, compute_type):
    """Return the translations of some sentences, and their scores."""
    from toy import toy_sentences

    from tt.model.engines.tensorflow_engine import TensorFlowTranslator
    from tt.model.transformer.search_options import Decoding

    decoding = Decoding(max_extra_tokens=5)
    translator = TensorFlowTranslator.load(
        run, decoding=decoding, compute_type=compute_type, device=device
    )
    texts = [source for source, _ in toy_sentences(20, seed=5)]
    return [(found.text, found.score) for found in translator.translate(texts)]


def main(kind, folder, *compute_types):
    """Measure each compute type on the CPU, on one device and on all devices."""
    import tensorflow as tf
    from toy import write_dataset

    from tt.model.engines.machine import let_memory_grow
    from tt.model.engines.translator import ENGINES

    if kind == "CPU":
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
    let_memory_grow()
    devices = [f"{kind}:{i}" for i in range(len(tf.config.list_logical_devices(kind)))]
    folder = Path(folder)
    write_dataset(folder / "dataset", train=1000, validation=20)
    places = {"cpu": ["CPU:0"], "one": devices[-1:], "all": devices}
    losses = {
        compute_type: {
            place: train(
                folder / "dataset",
                folder / f"{compute_type}-{place}",
                devices=chosen,
                compute_type=compute_type,
            )
            for place, chosen in places.items()
        }
        for compute_type in compute_types
    }
    run = folder / f"{compute_types[0]}-cpu"
    translations = {
        compute_type: {
            device: translate(run, device=device, compute_type=compute_type)
            for device in dict.fromkeys(["CPU:0", devices[-1]])
        }
        for compute_type in ENGINES["tensorflow"]
    }
    found = {"devices": devices, "losses": losses, "translations": translations}
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
