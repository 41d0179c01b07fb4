"""Datasets with the vocabulary of a model, from which another training can start."""

from __future__ import annotations

import pytest
from corpora import ONE_THREAD, PAIRS, options, preprocess, write_pairs
from models import make_model

from tt.model.dataset.manifest import DatasetManifest
from tt.model.errors import UserError
from tt.model.formats.model_card import About, TrainingData
from tt.model.formats.weights import save_model
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.initial_model import InitialModel
from tt.pipelines.preprocess.request import PreprocessRequest

LOWER = TextNormalization(lowercase=True)
OWN = ("ACME-[0-9]+",)


@pytest.fixture(scope="module", params=[True, False], ids=["shared", "separate"])
def model(request, tmp_path_factory):
    """A model folder. Its dataset has an unusual normalization and pattern."""
    folder = tmp_path_factory.mktemp("first")
    dataset = folder / "dataset"
    manifest = preprocess(
        sources=[write_pairs(folder, PAIRS[:200])],
        options=options(
            dataset, shared_vocabulary=request.param, normalization=LOWER, protect_regex=OWN,
            source_language="en", target_language="de", vocabulary_size=64,
        ),
        beam_arguments=ONE_THREAD,
    )  # fmt: skip
    vocabularies = load_vocabularies(dataset)
    save_model(
        make_model(
            source_vocabulary_size=vocabularies.source.size,
            target_vocabulary_size=vocabularies.target.size, shared_vocabulary=request.param,
        ),
        folder / "run/model", vocabulary_folder=dataset, vocabularies=vocabularies,
        about=About(data=TrainingData.of(manifest)),
    )  # fmt: skip
    return folder / "run"


def request_with(model, folder, **changes):
    texts = [folder / "corpus.en", folder / "corpus.de"]
    if not texts[0].exists():  # Another write would change the identity of the corpus.
        write_pairs(folder, PAIRS[200:])
    asked = options(folder / "dataset", vocabulary_size=None, **changes)
    return PreprocessRequest(
        corpora=("+".join(map(str, texts)),), vocab_of=str(model), options=asked,
        beam_arguments=tuple(ONE_THREAD),
    )  # fmt: skip


def test_dataset_fits_the_model(model, tmp_path):
    for given in (model, model / "model"):
        job = request_with(given, tmp_path).plan()
        found = job.plan.options
        assert (found.normalization, found.protect_regex) == (LOWER, OWN)
        assert (found.source_language, found.target_language) == ("en", "de")
        job.run()  # The second run finds a finished dataset.
    folder = tmp_path / "dataset"
    InitialModel.find(model, resumed=None).check_vocabulary(folder)
    for name in load_vocabularies(folder).files:
        assert (folder / name).read_bytes() == (model / "model" / name).read_bytes()
    assert DatasetManifest.load(folder).splits["train"].records > 150


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_type": "bpe"}, "`vocab_of` cannot be .* Received: `vocabulary_type`. Remove"),
        ({"shared_vocabulary": False}, "Received: `shared_vocabulary`. Remove"),
        ({"vocabulary": ("a.spm",)}, "Received: `vocabulary`. Remove"),
        ({"protect_regex": ("x+",)}, "Received: `protect_regex`. Remove"),
        (
            {"normalization": TextNormalization(unicode_form="NFKC")},
            "requires the normalization of .*'lowercase': True.*Received: .*NFKC",
        ),
    ],
    ids=str,
)
def test_options_that_define_another_vocabulary_are_errors(model, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        request_with(model, tmp_path, **changes).plan()
    assert not (tmp_path / "dataset").exists()
