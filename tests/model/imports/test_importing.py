"""Imported Marian models compute the same probabilities, and invalid files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from marian_models import (
    END,
    PIECES,
    PRE_NORM,
    SETTINGS,
    TEXTS,
    UNKNOWN,
    WIDTH,
    NumpyMarian,
    random_arrays,
    train_pieces,
    write_npz,
)

from tt.model.errors import UserError
from tt.model.formats.model_folder import load_about
from tt.model.formats.weights import load_model
from tt.model.imports.importing import ImportRequest
from tt.model.text.vocabulary import BOS_ID, EOS_ID, UNK_ID


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """SentencePiece models for both languages together, and for each language."""
    folder = tmp_path_factory.mktemp("pieces")
    return {
        "both": train_pieces(folder / "both.spm", TEXTS["source"] + TEXTS["target"]),
        "source": train_pieces(folder / "source.spm", TEXTS["source"], size=PIECES - 8),
        "target": train_pieces(folder / "target.spm", TEXTS["target"], model_type="bpe"),
    }


def request(tmp_path, pieces, *, sides=("both", "both"), **fields):
    return ImportRequest(
        **{
            "format": "marian", "model": str(tmp_path / "model.npz"),
            "output": str(tmp_path / "M"), "source_vocabulary": str(pieces[sides[0]]),
            "target_vocabulary": str(pieces[sides[1]]), **fields,
        }
    )  # fmt: skip


def our_ids(vocabulary, names):
    """Return our ids for the names of Marian's tokens."""
    ids = {vocabulary.piece(i): i for i in range(vocabulary.piece_count)}
    return np.array([ids[name] for name in names])


def names_of(path):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def our_log_probabilities(model, source, target):
    """Return log-probabilities [T + 1, V] for a source with BOS and EOS and a target without.

    V are our ids.
    """
    rows = tf.constant([[BOS_ID, *target]], tf.int32)
    logits = model.logits(model(tf.constant([source], tf.int32), target=rows))[0]
    return tf.nn.log_softmax(logits).numpy()


VARIANTS = {
    "post-norm, all tied": {},
    "pre-norm, GELU": {**PRE_NORM, "transformer-ffn-activation": "gelu"},
    "normalized embeddings, ReLU, nothing tied": {
        "tied-embeddings-all": False, "transformer-postprocess-emb": "nd",
        "transformer-ffn-activation": "relu", "enc-depth": 1, "dec-depth": 2,
        "dim-vocabs": [PIECES - 8, PIECES],
    },
    "target and output tied": {
        "tied-embeddings-all": False, "tied-embeddings": True,
        "dim-vocabs": [PIECES - 8, PIECES],
    },
    "source and target tied, no bias": {
        "tied-embeddings-all": False, "tied-embeddings-src": True, "output-omit-bias": True,
        **PRE_NORM,
    },
}  # fmt: skip


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_probabilities_equal_marian(tmp_path, pieces, fields):
    settings = {**SETTINGS, **fields}
    arrays = random_arrays(settings)
    write_npz(tmp_path / "model.npz", settings, arrays, padding=7)
    sides = ("both", "both") if settings["dim-vocabs"][0] == PIECES else ("source", "target")
    request(tmp_path, pieces, sides=sides, source_language="en").write()

    model, vocabularies = load_model(tmp_path / "M")
    assert vocabularies.is_shared == (sides[0] == sides[1])
    assert load_about(tmp_path / "M").data.source_language == "en"
    oracle = NumpyMarian(settings, arrays)
    names = [names_of(pieces[side]) for side in sides]
    of_target = our_ids(vocabularies.target, names[1])
    assert (of_target[END], of_target[UNKNOWN]) == (EOS_ID, UNK_ID)
    source_pieces = sentencepiece.SentencePieceProcessor(model_file=str(pieces[sides[0]]))
    generator = np.random.default_rng(1)
    for text in [*TEXTS["source"][:3], "  An  apple \u00e4\u5b57. "]:
        source = source_pieces.encode(text)
        [encoded] = vocabularies.source.encode([text])
        expected_ids = our_ids(vocabularies.source, names[0])[source]
        assert encoded == [BOS_ID, *expected_ids, EOS_ID]
        target = generator.integers(2, PIECES, 5)
        found = our_log_probabilities(model, encoded, of_target[target])
        expected = oracle.log_probabilities(source, target)
        np.testing.assert_allclose(found[:, of_target], expected, rtol=0, atol=2e-5)
        others = np.setdiff1d(np.arange(found.shape[1]), of_target)
        assert np.exp(found[:, others]).max() < 1e-15, "ids that Marian lacks are probable"


def test_transposed_output_table_of_older_versions_is_supported(tmp_path, pieces):
    settings = {**SETTINGS, "tied-embeddings-all": False}
    arrays = random_arrays(settings)
    table = arrays.pop("decoder_ff_logit_out_Wt")
    write_npz(tmp_path / "model.npz", settings, {**arrays, "decoder_ff_logit_out_W": table.T})
    request(tmp_path, pieces).write()
    model, vocabularies = load_model(tmp_path / "M")
    ids = our_ids(vocabularies.target, names_of(pieces["both"]))
    np.testing.assert_array_equal(model.output_embedding.table.numpy()[ids], table)


@pytest.mark.parametrize("suffix", [".yml", ".json", ".txt"])
def test_token_list_determines_the_order_of_tokens(tmp_path, pieces, suffix):
    """OPUS-MT has SentencePiece models and a token list, which lacks a tenth of the pieces."""
    of_pieces = names_of(pieces["both"])
    generator = np.random.default_rng(2)
    known = [str(name) for name in generator.permutation(of_pieces[2 : PIECES - 20])]
    others = {"no", "12", "=", "\u2581elsewhere", "<pad>", "<s>", "~"}.difference(known)
    names = ["</s>", "<unk>", *known, *sorted(others)]
    path = tmp_path / f"vocab{suffix}"
    if suffix == ".txt":
        path.write_text("\n".join(names) + "\n", "utf-8")
    else:  # JSON is YAML
        ids = {name: i for i, name in enumerate(names)}
        path.write_text(json.dumps(ids, ensure_ascii=False, indent=1), "utf-8")
    settings = {**SETTINGS, "dim-vocabs": [len(names)] * 2}
    arrays = random_arrays(settings)
    write_npz(tmp_path / "model.npz", settings, arrays)
    request(tmp_path, pieces, vocab=(str(path),)).write()

    model, vocabularies = load_model(tmp_path / "M")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(pieces["both"]))
    oracle = NumpyMarian(settings, arrays)
    ids = our_ids(vocabularies.target, names)
    unknown = 0
    for text in TEXTS["source"][:20]:
        cut = processor.encode(text, out_type=str)
        source = [names.index(piece) if piece in names else UNKNOWN for piece in cut]
        unknown += source.count(UNKNOWN)
        [encoded] = vocabularies.source.encode([text])
        assert [vocabularies.source.piece(i) for i in encoded[1:-1]] == cut
        found = our_log_probabilities(model, encoded, ids[[3, 4]])
        expected = oracle.log_probabilities(source, [3, 4])
        np.testing.assert_allclose(found[:, ids], expected, rtol=0, atol=2e-5)
    assert unknown, "the list contains the pieces of all texts"


REFUSED = {
    "rnn": ({"type": "s2s"}, "type: 's2s'.*only 'transformer'"),
    "SSRU": ({"transformer-decoder-autoreg": "rnn"}, "autoreg: 'rnn'.*only 'self-attention'"),
    "AAN": ({"transformer-decoder-autoreg": "average-attention"}, "average-attention"),
    "positions": ({"transformer-train-position-embeddings": True}, "embeddings: True.*only False"),
    "ALiBi": ({"transformer-attention-mask": "alibi"}, "mask: 'alibi'.*only 'default'"),
    "deep": ({"transformer-ffn-depth": 3}, "ffn-depth: 3.*only 2"),
    "decoder's": ({"transformer-decoder-dim-ffn": 9}, "decoder-dim-ffn: 9.*only 0 or 24"),
    "tied layers": ({"transformer-tied-layers": [1, 1]}, r"tied-layers: \[1, 1\]"),
    "factors": ({"lemma-dim-emb": 8}, "lemma-dim-emb: 8.*only 0"),
    "backwards": ({"right-left": True}, "right-left: True.*only False"),
    "activation": ({"transformer-ffn-activation": "tanh"}, "only 'swish' or 'relu' or 'gelu'"),
    "mixed norms": ({"transformer-preprocess": "n"}, "preprocess: 'n', .*postprocess: 'dan'"),
    "highway": ({"transformer-postprocess": "dhn"}, "postprocess: 'dhn'"),
    "no end": ({**PRE_NORM, "transformer-postprocess-top": ""}, "postprocess-top: ''"),
    "embeddings": ({"transformer-postprocess-emb": "a"}, "postprocess-emb: 'a'"),
    "heads": ({"transformer-heads": 3}, "`d_model` must be a multiple of twice `heads`.*16 and 3"),
    "three sides": ({"dim-vocabs": [PIECES] * 3}, "only two vocabularies"),
    "depth": ({"enc-depth": 0}, "enc-depth: 0"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED)
def test_unsupported_architectures_are_refused(tmp_path, pieces, fields, message):
    write_npz(tmp_path / "model.npz", {**SETTINGS, **fields}, {})
    refused(request(tmp_path, pieces), message)


def refused(asked, message):
    with pytest.raises(UserError, match=message) as raised:
        asked.write()
    assert "\n" not in str(raised.value)
    assert {path.name for path in Path(asked.output).parent.iterdir()} <= {
        "model.npz", "other.spm", "vocab.yml",
    }, "something was written"  # fmt: skip


def test_damaged_and_foreign_files_are_refused(tmp_path, pieces):
    asked, path = request(tmp_path, pieces), tmp_path / "model.npz"
    refused(asked, "no model at .*model.npz")
    arrays = random_arrays(SETTINGS)
    content = write_npz(path, SETTINGS, arrays).read_bytes()
    for end in (0, 10, len(content) // 2, len(content) - 30):
        path.write_bytes(content[:end])
        refused(asked, "is truncated, or not the .npz file")
    middle = len(content) // 2
    path.write_bytes(content[:middle] + b"\xff" * 64 + content[middle + 64 :])
    refused(asked, "is truncated, or not the .npz file|must contain finite floats")
    np.savez(path, weights=np.zeros(3))
    refused(asked, "not the .npz file of a Marian model.*KeyError: .special:model.yml")
    np.save(path.open("wb"), np.zeros(3))
    refused(asked, "not the .npz file of a Marian model")
    np.savez(path, **{"special:model.yml": np.frombuffer(b"a: [1\0", np.int8)})
    refused(asked, "not the .npz file of a Marian model.*ParserError")
    write_npz(path, SETTINGS, {**arrays, "Wemb": arrays["Wemb"].astype(np.int8)})
    refused(asked, "the array Wemb .int8. does not.*quantized")
    write_npz(path, SETTINGS, {**arrays, "Wemb": arrays["Wemb"] * np.inf})
    refused(asked, "finite floats, but the array Wemb .float32.")
    write_npz(path, SETTINGS, {k: v for k, v in arrays.items() if k != "decoder_l1_self_Wk"})
    refused(asked, "0/attention/query_key_value/kernel needs the shape .16, 48.*self_Wk': None")
    write_npz(path, SETTINGS, {**arrays, "decoder_l1_self_bk": arrays["decoder_l1_ffn_b1"]})
    refused(asked, "query_key_value/bias needs the shape .48,.*self_bk': .1, 24")
    write_npz(path, SETTINGS, {**arrays, "decoder_l2_rnn_W": arrays["decoder_l1_self_Wk"]})
    refused(asked, "has an array decoder_l2_rnn_W that its configuration does not need")


def test_vocabularies_of_another_model_are_refused(tmp_path, pieces):
    write_npz(tmp_path / "model.npz", SETTINGS, random_arrays(SETTINGS))
    refused(
        request(tmp_path, pieces, sides=("source", "source")),
        "source.spm has 192 tokens, but .* has 200 source embeddings",
    )
    refused(
        request(tmp_path, pieces, sides=("both", "target")),
        "Choose one vocabulary for both",
    )
    gone = {"source_vocabulary": str(tmp_path / "gone.spm")}
    refused(request(tmp_path, pieces, **gone), "no SentencePiece model at")
    damaged = tmp_path / "other.spm"
    damaged.write_bytes(b"nothing")
    refused(request(tmp_path, pieces, source_vocabulary=str(damaged)), "is not a SentencePiece mo")
    refused(request(tmp_path, pieces, source_vocabulary=None), "needs `source_vocabulary`")
    refused(
        request(tmp_path, pieces, source_vocabulary=None, target_vocabulary=None),
        "no SentencePiece model at .*source.spm. Check the path, or set `source_voc",
    )
    path = tmp_path / "vocab.yml"
    listed = {"vocab": (str(path),)}
    for text, message in {
        "- a\n": "is not a list of tokens",
        "a: b\n": "is not a list of tokens",
        "</s>: 0\n<unk>: 2\n": "not numbered from 0",
        "</s>: 0\nx: 1\n": "'<unk>' is not in list",
        "</s>: 0\n</s>: 1\n<unk>: 2\n": "not numbered from 0",
        "</s>: 0\n<unk>: 1\n": "has 2 tokens, but .* has 200 source embeddings",
    }.items():
        path.write_text(text)
        refused(request(tmp_path, pieces, **listed), message)
    path.unlink()
    refused(request(tmp_path, pieces, **listed), "no list of tokens at")
    others = ["</s>", "<unk>", *(f"x{i}" for i in range(PIECES - 2))]
    path.write_text("".join(f"{name}: {i}\n" for i, name in enumerate(others)))
    refused(request(tmp_path, pieces, **listed), "both.spm does not belong to the model")
    path.write_text(path.read_text().replace("x7:", '">>deu<<":'))
    refused(request(tmp_path, pieces, **listed), "has language tokens such as >>deu<<")
    refused(request(tmp_path, pieces, vocab=(str(path),) * 3), "`vocab` must be one file")
    with pytest.raises(UserError, match="`source_prefix` is not available for imports from marian"):
        request(tmp_path, pieces, source_prefix="x")


def test_output_is_replaced_only_with_overwrite(tmp_path, pieces):
    write_npz(tmp_path / "model.npz", SETTINGS, random_arrays(SETTINGS))
    request(tmp_path, pieces).write()
    before = (tmp_path / "M/model.weights.h5").read_bytes()
    with pytest.raises(UserError, match="already exists"):
        request(tmp_path, pieces).write()
    write_npz(tmp_path / "model.npz", SETTINGS, random_arrays(SETTINGS, seed=1))
    request(tmp_path, pieces, overwrite=True).write()
    assert (tmp_path / "M/model.weights.h5").read_bytes() != before
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes").write_text("mine")
    with pytest.raises(UserError, match="is not an exported or imported model"):
        request(tmp_path, pieces, output=str(tmp_path / "other"), overwrite=True).write()
    assert load_model(tmp_path / "M").model.config.d_model == WIDTH
