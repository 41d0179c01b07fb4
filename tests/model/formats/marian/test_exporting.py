"""Models written in Marian's files."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import yaml
from marian_models import PIECES, PRE_NORM, SETTINGS, TEXTS, random_arrays, train_pieces, write_npz
from models import random_ids, write_model

from model.errors import UserError
from model.formats.importing import ImportRequest
from model.formats.marian.exporting import export_marian
from model.formats.weights import load_model
from model.text.vocabulary import BOS_ID, EOS_ID, UNK_ID

LIKE_MARIAN = {"zero_start": True, "source_bos": False, "position_scale": "tensor2tensor"}


@pytest.mark.parametrize("fields", [
    {},
    {**PRE_NORM, "tied-embeddings-all": False, "transformer-postprocess-emb": "nd"},
    {"tied-embeddings-all": False, "tied-embeddings": True, "dec-depth": 3},
], ids=["post-norm", "pre-norm, nothing tied", "tied, three layers"])  # fmt: skip
def test_what_was_imported_is_written_as_it_was(tmp_path, fields):
    settings = {**SETTINGS, **fields}
    arrays = random_arrays(settings)
    write_npz(tmp_path / "model.npz", settings, arrays)
    spm = str(train_pieces(tmp_path / "v.spm", TEXTS["source"] + TEXTS["target"]))
    ImportRequest(
        format="marian", model=str(tmp_path / "model.npz"), output=str(tmp_path / "M"),
        source_vocabulary=spm,
    ).write()  # fmt: skip
    export_marian(tmp_path / "M", tmp_path / "out")

    with np.load(tmp_path / "out/model.npz") as archive:
        written = {name: archive[name] for name in archive.files}
    text = written.pop("special:model.yml").tobytes()
    assert text.endswith(b"\0")
    config = yaml.safe_load(text[:-1])
    assert {name: config[name] for name in settings if name != "version"} == {
        name: value for name, value in settings.items() if name != "version"
    }
    if "decoder_ff_logit_out_Wt" in arrays:  # as all versions read it
        arrays["decoder_ff_logit_out_W"] = arrays.pop("decoder_ff_logit_out_Wt").T
    assert written.keys() == arrays.keys()
    for name, values in arrays.items():
        assert written[name].dtype == np.float32
        assert written[name].flags.c_contiguous
        np.testing.assert_array_equal(written[name], values)
    decoder = yaml.safe_load((tmp_path / "out/decoder.yml").read_text())
    assert decoder["models"] == ["model.npz"]
    assert decoder["vocabs"] == ["vocabulary.spm"] * 2
    assert config["dim-vocabs"] == [PIECES] * 2


@pytest.mark.parametrize("fields", [
    LIKE_MARIAN,
    {**LIKE_MARIAN, "shared_vocabulary": False, "tie_embeddings": False, "norm": "pre",
     "activation": "gelu", "decoder_layers": 1},
], ids=["shared", "separate"])  # fmt: skip
def test_what_is_exported_and_imported_is_the_same_model(tmp_path, fields):
    path = write_model(tmp_path / "ours", **fields)
    export_marian(path, tmp_path / "out")
    sides = ("source.spm", "target.spm")
    if fields.get("shared_vocabulary", True):
        sides = ("vocabulary.spm",) * 2
    ImportRequest(
        format="marian", model=str(tmp_path / "out/model.npz"), output=str(tmp_path / "again"),
        source_vocabulary=str(tmp_path / "out" / sides[0]),
        target_vocabulary=str(tmp_path / "out" / sides[1]),
    ).write()  # fmt: skip
    before, after = load_model(path), load_model(tmp_path / "again")
    assert after.model.config.activation == before.model.config.activation
    count = before.vocabularies.target.piece_count
    ids = np.array([UNK_ID, EOS_ID, *range(4, count)])
    source = random_ids([7], size=before.vocabularies.source.piece_count)
    target = random_ids([6], size=count)
    logits = [
        each.model.logits(each.model(tf.constant(source), target=tf.constant(target)))[0].numpy()
        for each in (before, after)
    ]
    np.testing.assert_allclose(logits[1][:, ids], logits[0][:, ids], rtol=0, atol=1e-5)
    texts = ["source0 source1", "vocabulary3 vocabulary0 what", ""]
    assert before.vocabularies.source.encode(texts) == after.vocabularies.source.encode(texts)
    assert before.vocabularies.target.decode([[BOS_ID, 5, 9, EOS_ID]]) == (
        after.vocabularies.target.decode([[BOS_ID, 5, 9, EOS_ID]])
    )


@pytest.mark.parametrize(("fields", "message"), [
    ({}, "this one has `zero_start=False`, `source_bos=True`, `position_scale=paper`"),
    ({**LIKE_MARIAN, "position_base": 100.0}, "this one has `position_base=100.0`"),
])  # fmt: skip
def test_what_marian_cannot_be_is_refused(tmp_path, fields, message):
    path = write_model(tmp_path / "ours", **fields)
    with pytest.raises(UserError, match=message):
        export_marian(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
