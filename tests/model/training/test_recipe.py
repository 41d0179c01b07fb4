"""The complete training recipe: short runs of the real loop are compared with a loop in NumPy.

Each option that changes an update has a value other than its default in some run. The tests
therefore notice an option that is ignored or used in the wrong place.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from models import random_ids
from numpy_training import NumpyModel, numpy_training
from toy import write_dataset, write_spelled_vocabularies
from trainers import ignore, two_replicas

from tt.model.dataset.batches import Position, TokenBatches
from tt.model.dataset.changes import SubwordDropout
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.options import TrainingConfig
from tt.model.training.reports import Progress, Validation
from tt.model.training.request import TrainRequest
from tt.model.training.strategies import make_strategy
from tt.model.transformer.config import TransformerConfig

VALIDATION_PAIRS = 10


@pytest.fixture(scope="module")
def shared_dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared") / "dataset"
    write_dataset(folder, train=28, validation=VALIDATION_PAIRS)
    return folder


@pytest.fixture(scope="module")
def spelled_dataset(tmp_path_factory):
    """A dataset with two vocabularies, whose tokens can be split, and three shards."""
    folder = tmp_path_factory.mktemp("spelled") / "dataset"
    write_dataset(
        folder, train=28, validation=VALIDATION_PAIRS, shards=3, write=write_spelled_vocabularies
    )
    return folder


def make_config(dataset, **fields):
    vocabularies = load_vocabularies(dataset)
    return TransformerConfig(**{
        "source_vocabulary_size": vocabularies.source.size,
        "target_vocabulary_size": vocabularies.target.size,
        "shared_vocabulary": vocabularies.is_shared,
        "layers": 2, "d_model": 8, "heads": 2, "d_ff": 12, **fields,
    })  # fmt: skip


def shuffle_weights(model):
    """Set all weights, including biases and norms, to random values; return them by path."""
    generator = np.random.default_rng(3)
    for variable in model.trainable_variables:
        around = 1.0 if variable.name == "scale" else 0.0
        variable.assign(around + 0.3 * generator.normal(size=variable.shape))
    return weights_by_path(model)


def weights_by_path(model):
    return {variable.path: variable.numpy() for variable in model.trainable_variables}


def batches_of(dataset, training, *, split, replicas):
    """Return the batches of a split, without the product's code that passes on the options."""
    sides = load_vocabularies(dataset)
    is_training = split == "train"
    dropout = None
    if is_training and training.subword_dropout:
        dropout = tuple(
            SubwordDropout(side, training.subword_dropout) for side in (sides.source, sides.target)
        )
    return TokenBatches(
        files=sorted(dataset.glob(f"{split}-*")), max_tokens=training.batch_tokens,
        seed=training.seed, replicas=replicas, shuffle=is_training, subword_dropout=dropout,
    )  # fmt: skip


def run_and_compare(dataset, run, *, config, training, strategy):
    """Train with the real loop and in NumPy, and compare all reports and weights.

    Returns:
      The NumPy updates, and the training batches.
    """
    request = TrainRequest(dataset=dataset, run=run, model=config, training=training)
    trainer = request.plan().start(strategy)
    start, found, reports = shuffle_weights(trainer.model), [], []

    def note(report):
        reports.append(report)
        if isinstance(report, Progress):
            found.append(weights_by_path(trainer.model))

    trainer.train(note)
    replicas = strategy.num_replicas_in_sync
    batches = list(itertools.islice(
        batches_of(dataset, training, split="train", replicas=replicas).forever(Position()), 12
    ))  # fmt: skip
    updates = numpy_training(
        config=config, training=training, weights=start, replicas=replicas,
        batches=[(batch.source, batch.target) for batch in batches],
    )  # fmt: skip
    progress = [report for report in reports if isinstance(report, Progress)]
    assert len(progress) == len(updates) == training.steps
    before = start
    for report, update, weights in zip(progress, updates, found, strict=True):
        assert report.learning_rate == pytest.approx(update.rate, rel=1e-9)
        assert report.loss == pytest.approx(update.loss, rel=1e-5)
        assert report.nll == pytest.approx(update.nll, rel=1e-5)
        assert report.perplexity == pytest.approx(math.exp(update.nll), rel=1e-4)
        assert report.accuracy == pytest.approx(update.accuracy, abs=1e-6)
        assert report.gradient_norm == pytest.approx(update.gradient_norm, rel=1e-4)
        assert weights.keys() == update.weights.keys()
        for path, array in weights.items():
            # Adam moves a weight by about the rate; the error must be below 1/200 of that.
            error = np.abs(array - update.weights[path]).max()
            assert error < update.rate / 200, (path, report.step)
            assert np.abs(array - before[path]).max() > update.rate / 10, (path, report.step)
        before = weights
    check_validation(reports[-1], dataset, config=config, training=training, update=updates[-1])
    return updates, batches


def check_validation(report, dataset, *, config, training, update):
    """Compare a validation with one in NumPy, which has neither dropout nor subword dropout."""
    assert isinstance(report, Validation)
    model = NumpyModel(config, update.weights)
    sums = sum(
        model.losses(batch.source, batch.target, smoothing=training.label_smoothing)[1]
        for batch in batches_of(dataset, training, split="validation", replicas=1).epoch(Position())
    )
    loss, nll, correct, tokens = sums
    assert report.loss == pytest.approx(loss / tokens, rel=1e-3)
    assert report.nll == pytest.approx(nll / tokens, rel=1e-3)
    assert report.perplexity == pytest.approx(math.exp(nll / tokens), rel=1e-2)
    assert report.accuracy == pytest.approx(correct / tokens, abs=1e-6)


def test_run_with_every_option_matches_numpy(spelled_dataset, tmp_path):
    config = make_config(
        spelled_dataset, layers=1, dropout=0.3, attention_dropout=0.2, norm="pre",
        tie_embeddings=False, position_base=100.0,
    )  # fmt: skip
    training = TrainingConfig(
        steps=3, batch_tokens=64, effective_batch_size=250, peak_learning_rate=0.02,
        warmup_steps=2, schedule="constant", label_smoothing=0.2, subword_dropout=0.3,
        clip_norm=0.7, seed=7, validate_every=3, score_every=0, save_every=3, log_every=1,
    )  # fmt: skip
    updates, batches = run_and_compare(
        spelled_dataset, tmp_path / "run", config=config, training=training,
        strategy=two_replicas(),
    )  # fmt: skip
    assert [update.rate for update in updates] == [0.01, 0.02, 0.02]
    norms = [update.gradient_norm for update in updates]
    assert min(norms) < training.clip_norm < max(norms)
    assert {batch.start.epoch for batch in batches[:6]} == {0, 1}, "the run crosses an epoch"


def test_run_with_the_paper_defaults_matches_numpy(shared_dataset, tmp_path):
    config = make_config(shared_dataset)
    training = TrainingConfig(
        steps=4, batch_tokens=64, warmup_steps=2, validate_every=4, score_every=0, save_every=4,
        log_every=1,
    )  # fmt: skip
    updates, _ = run_and_compare(
        shared_dataset, tmp_path / "run", config=config, training=training,
        strategy=make_strategy("one-device"),
    )  # fmt: skip
    # Equation 3: d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), which is 0.25 at step 2.
    expected = [0.125, 0.25, 0.25 * (2 / 3) ** 0.5, 0.25 * 0.5**0.5]
    np.testing.assert_allclose([update.rate for update in updates], expected, rtol=1e-12)


# The sites, rates and seeds of dropout


class Sites:
    """A stand-in for dropout that records each call in a forward pass."""

    def __init__(self):
        self.found = []

    def at(self, rate):
        def note(x):
            self.found.append((rate, tuple(x.shape)))
            return x

        return note


def test_sites_and_rates_of_dropout(shared_dataset):
    from tt.model.transformer.transformer import Transformer

    config = make_config(shared_dataset, dropout=0.3, attention_dropout=0.2)
    sites = Sites()
    source, target = random_ids([6, 4], size=14), random_ids([5, 7], seed=3, size=14)
    Transformer(config)(tf.constant(source), target=tf.constant(target), dropout=sites)
    x, y = (0.3, (2, 6, 8)), (0.3, (2, 7, 8))
    encoder_layer = [(0.2, (2, 2, 6, 6)), x, x]  # attention weights, attention, feed-forward
    decoder_layer = [(0.2, (2, 2, 7, 7)), y, (0.2, (2, 2, 7, 6)), y, y]
    assert sites.found == [x, *encoder_layer * 2, y, *decoder_layer * 2]


def test_all_dropout_masks_of_a_run_have_different_seeds(shared_dataset, tmp_path, monkeypatch):
    config = make_config(shared_dataset, layers=1, dropout=0.3, attention_dropout=0.2)
    training = TrainingConfig(
        steps=3, batch_tokens=64, effective_batch_size=250, validate_every=3, score_every=0,
        save_every=3,
    )  # fmt: skip
    seeds, uniform = [], tf.random.stateless_uniform

    def note(seed):
        seeds.append(tuple(seed.tolist()))
        return seed

    def noting(shape, *, seed, **options):
        seed = tf.ensure_shape(tf.numpy_function(note, [seed], tf.int32), [2])
        return uniform(shape, seed=seed, **options)

    request = TrainRequest(
        dataset=shared_dataset, run=tmp_path / "run", model=config, training=training
    )
    trainer = request.plan().start(two_replicas())
    # Patch only now, because the initialization of the weights uses this function, too.
    monkeypatch.setattr(tf.random, "stateless_uniform", noting)
    trainer.train(ignore)
    # There are 10 sites, 2 replicas and 3 updates of 2 batches. Validation has no dropout.
    assert len(seeds) == len(set(seeds)) == 10 * 2 * 6


def test_seed_determines_the_initial_weights(shared_dataset, tmp_path):
    config = make_config(shared_dataset, layers=1)

    def first_weights(name, seed):
        request = TrainRequest(
            dataset=shared_dataset, run=tmp_path / name, model=config,
            training=TrainingConfig(seed=seed),
        )  # fmt: skip
        return weights_by_path(request.plan().start(make_strategy("one-device")).model)

    start, same, other = first_weights("a", 5), first_weights("b", 5), first_weights("c", 6)
    for path, array in start.items():
        np.testing.assert_array_equal(array, same[path])
        if path.endswith(("kernel", "table")):
            assert (array != other[path]).mean() > 0.99, path
