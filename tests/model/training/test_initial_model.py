"""Runs that start from the weights of an initial model, and the models that they refuse."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from toy import DIGITS, write_dataset, write_spelled_vocabularies, write_vocabulary
from trainers import changed, ignore, log_of, one_device, two_replicas, weights_in, weights_of

from tt.model.errors import UserError
from tt.model.formats.model_card import describe_origin
from tt.model.formats.model_folder import load_about, model_fingerprint
from tt.model.formats.weights import load_model
from tt.model.inspection.run import RunSummary
from tt.model.text.vocabulary import SHARED_MODEL, VOCABULARY_FILE
from tt.model.training import initial_model
from tt.model.training.request import TrainRequest

pytestmark = pytest.mark.usefixtures("eager")

SHORT = changed(steps=2, validate_every=2, save_every=2)


@pytest.fixture
def initial(finish_run, tmp_path):
    """A finished run with one layer, which other runs start from."""
    return finish_run(tmp_path / "initial")


def request_from(initial, toy_dataset, run, **fields):
    return TrainRequest(**{
        "dataset": toy_dataset, "run": run, "init_from": initial, "training": SHORT, **fields,
    })  # fmt: skip


def assert_equal(some, others):
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("strategy", [one_device, two_replicas])
def test_new_run_starts_with_architecture_and_weights_of_initial_model(
    initial, toy_dataset, tmp_path, strategy
):
    config = load_model(initial).model.config
    for given in (initial, initial / "model"):
        job = request_from(given, toy_dataset, tmp_path / "run").plan()
        assert job.model == config
        assert job.notes == [
            f"Starting from the weights of {initial / 'model'} with a new optimizer state."
        ]
    assert not (tmp_path / "run").exists()
    trainer = job.start(strategy())
    assert_equal(weights_of(trainer), weights_in(initial))
    assert trainer.state.step == 0
    assert not any(np.any(moment.numpy()) for moment in trainer._step.adam.first_moments)
    trainer.train(ignore)
    assert log_of(tmp_path / "run")[-1]["step"] == 2
    assert load_about(tmp_path / "run").recipe["init_from"] == str(initial / "model")


def test_dataset_chooses_steps_and_user_may_set_dropout(initial, toy_dataset, tmp_path):
    fields = {"model": {"dropout": 0.5}, "training": {"seed": 2}}
    job = request_from(initial, toy_dataset, tmp_path / "run", **fields).plan()
    assert (job.model.dropout, job.model.d_model, job.training.seed) == (0.5, 32, 2)
    begins, chosen = job.notes
    assert begins.startswith("Starting from the weights of ")
    assert chosen.startswith("Defaults chosen for the dataset's size (2,000 pairs, ")
    assert re.findall(r"`(\w+)=", chosen) == [
        "batch_tokens", "steps", "warmup_steps", "peak_learning_rate", "validate_every",
        "save_every",
    ]  # fmt: skip
    assert job.training.steps == int(re.search(r"`steps=(\d+)`", chosen)[1])


def test_model_card_records_the_chain_of_initial_models(initial, toy_dataset, tmp_path):
    second, third = tmp_path / "second", tmp_path / "third"
    request_from(initial, toy_dataset, second).plan().run(ignore)
    request_from(second, toy_dataset, third).plan().run(ignore)
    steps = load_about(initial).steps
    first = {"model": str(initial / "model"), "pairs": 2000, "corpora": ["toy"], "steps": steps}
    origin = {"model": str(second / "model"), "pairs": 2000, "corpora": ["toy"], "steps": 2}
    assert load_about(second).began_with == first
    assert load_about(third).began_with == {**origin, "began_with": first}
    assert load_about(initial).began_with == {}
    again = request_from(None, toy_dataset, third, training=changed(steps=4)).plan()
    assert again.initial.to_json()["began_with"] == first, "a resumed run keeps the chain"
    assert (
        RunSummary(third).began_with
        == describe_origin(load_about(third).began_with)
        == (
            f"{second / 'model'} (2,000 pairs of toy; 2 updates; began with {initial / 'model'} "
            f"(2,000 pairs of toy; {steps} updates))"
        )
    )


def test_initial_model_of_other_languages_causes_a_warning(initial, toy_dataset, tmp_path):
    config = json.loads((initial / "model/config.json").read_text())
    config["about"]["data"] |= {"source_language": "en", "target_language": "de"}
    (initial / "model/config.json").write_text(json.dumps(config))
    dataset = shutil.copytree(toy_dataset, tmp_path / "dataset")
    manifest = json.loads((dataset / "dataset.json").read_text())
    found = {}
    for target in ("de-AT", "es"):
        languages = {"source_language": "eng", "target_language": target}
        (dataset / "dataset.json").write_text(json.dumps(manifest | languages))
        doubts = request_from(initial, dataset, tmp_path / "run").plan().doubts
        found[target] = [doubt for doubt in doubts if "translates from" in doubt]
    assert found["de-AT"] == []
    assert found["es"] == [
        f"{initial / 'model'} translates from en to de, but the dataset is from eng to es: it has "
        "learned little about other languages, and its vocabulary splits their words into many "
        "tokens"
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": {"layers": 3}}, "`layers` was 1 and is now 3. Remove these"),
        ({"model": {"decoder_layers": 2}}, "`encoder_layers` was not set and is now 1"),
        ({"preset": "small"}, "`layers` was 1 and is now 3; `d_model` was 32"),
        ({"init_from": "nowhere"}, "no model folder at nowhere"),
    ],
    ids=str,
)
def test_different_architecture_is_refused_without_writing(
    initial, toy_dataset, tmp_path, fields, message
):
    request = request_from(initial, toy_dataset, tmp_path / "run", **fields)
    for call in (request.check, request.plan):
        with pytest.raises(UserError, match=message):
            call()
    assert not (tmp_path / "run").exists()


def test_different_vocabulary_or_normalization_is_refused(initial, toy_dataset, tmp_path):
    spelled = tmp_path / "spelled"
    write_dataset(spelled, train=5, validation=2, write=write_spelled_vocabularies)
    lower = tmp_path / "lower"
    write_dataset(lower, train=5, validation=2)
    shutil.copy(initial / "model" / SHARED_MODEL, lower)
    beside = json.loads((lower / VOCABULARY_FILE).read_text())
    beside["normalization"]["lowercase"] = True
    (lower / VOCABULARY_FILE).write_text(json.dumps(beside))
    other = tmp_path / "other"
    often_nine = [*DIGITS, DIGITS[-1]]
    write_dataset(
        other, train=5, validation=2, write=lambda folder: write_vocabulary(folder, often_nine)
    )
    for folder in (spelled, lower, other):
        message = f"different vocabularies or text norm.*tt preprocess --vocab-of {initial}"
        with pytest.raises(UserError, match=message):
            request_from(initial, folder, tmp_path / "run").plan()


def test_run_resumes_identically_without_the_initial_model(initial, toy_dataset, tmp_path):
    long = changed(steps=4, validate_every=2, save_every=2)
    request_from(initial, toy_dataset, tmp_path / "whole", training=long).plan().run(ignore)
    run = tmp_path / "parts"
    request_from(initial, toy_dataset, run).plan().run(ignore)
    shutil.rmtree(initial)
    for init_from in (None, initial):  # `init_from` may be omitted when resuming
        again = request_from(init_from, toy_dataset, run, training=long)
        again.plan().run(ignore)
    assert_equal(weights_in(run), weights_in(tmp_path / "whole"))


def test_run_without_checkpoint_restarts_from_the_same_initial_model(
    initial, toy_dataset, tmp_path
):
    run = tmp_path / "run"
    request_from(initial, toy_dataset, run).plan().start(one_device()).close()
    again = request_from(None, toy_dataset, run).plan().start(one_device())
    assert_equal(weights_of(again), weights_in(initial))
    again.close()
    config = json.loads((initial / "model/config.json").read_text())
    del config["digests"]
    config["position_base"] = 500.0
    (initial / "model/config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="has changed since the run began"):
        request_from(None, toy_dataset, run).plan().start(one_device())


def test_resuming_with_a_different_initial_model_is_refused(
    initial, finish_run, toy_dataset, tmp_path
):
    run = tmp_path / "run"
    request_from(initial, toy_dataset, run).plan().run(ignore)
    shutil.copytree(initial, tmp_path / "copy")
    request_from(tmp_path / "copy", toy_dataset, run).plan()  # a copy of the same model is accepted
    request_from(run, toy_dataset, tmp_path / "third").plan().run(ignore)
    with pytest.raises(UserError, match=r"`init_from` was .*/initial/model \(fing"):
        request_from(tmp_path / "third", toy_dataset, run).plan()
    plain = finish_run(tmp_path / "plain")
    with pytest.raises(UserError, match="`init_from` was not set and is now"):
        request_from(initial, toy_dataset, plain, training={}).plan()


def test_remote_initial_model_is_fetched_once_and_keeps_its_url(initial, toy_dataset, tmp_path):
    fetched = []

    def fetch(name):
        fetched.append(name)
        return initial

    url, run = "gs://bucket/run", tmp_path / "run"
    first = request_from(url, toy_dataset, run, fetch_model=fetch).plan()
    assert first.notes == [f"Starting from the weights of {url} with a new optimizer state."]
    first.run(ignore)
    assert fetched == [url]
    config = json.loads((run / "config.json").read_text())["init_from"]
    data = {"pairs": 2000, "corpora": ["toy"], "steps": load_about(initial).steps}
    assert config == {"model": url, "fingerprint": model_fingerprint(initial), **data}
    long = changed(steps=4, validate_every=2, save_every=2)
    request_from(url, toy_dataset, run, training=long, fetch_model=fetch).plan().run(ignore)
    assert fetched == [url]


def test_a_resumed_run_keeps_its_model_of_the_hub_unless_another_is_named(monkeypatch):
    monkeypatch.setattr(initial_model, "pin", lambda address: f"{address}@new")
    saved = {"init_from": {"model": "hf:a/b@1", "fingerprint": "known"}}
    for resumed, given, expected in [
        (saved, "hf:a/b", "hf:a/b@1"),
        (saved, "hf:a/b@1", "hf:a/b@1"),
        (saved, "hf:a/c", "hf:a/c@new"),
        (saved, "hf:a/b@2", "hf:a/b@2@new"),
        (None, "hf:a/b", "hf:a/b@new"),
    ]:
        found = initial_model.InitialModel.find(given, resumed=resumed)
        assert found.name == expected, given
        assert found.known == ("known" if expected == "hf:a/b@1" else ""), given
