"""Exports to a SavedModel and a CTranslate2 model translate like the model folder.

Two float32 programs that add in a different order differ by about 1e-6 per logit. If the two best
ids are closer than this difference, the programs may choose different ids, and the rest of the
translation differs. The logits of random models are nearly equal, so for random models one sentence
in two hundred may differ.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import tensorflow as tf
from command_line import last_error, run
from models import ROWS, random_rows, translated, write_model

from tt.model.engines.batching import pad
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.errors import DiskFullError, UserError
from tt.model.folders import storage_errors
from tt.model.formats.exports import (
    SIGNATURE,
    VOCABULARY_FOLDER,
    copy_model,
    export_ctranslate2,
    export_saved_model,
)
from tt.model.formats.foreign import POSITIONS, load_tokens
from tt.model.formats.model_folder import CONFIG_FILE, WEIGHTS_FILE
from tt.model.text.vocabulary import (
    EOS_ID,
    PAD_ID,
    SHARED_MODEL,
    VOCABULARY_FILE,
    load_vocabularies,
)
from tt.model.transformer.search_options import Decoding

pytestmark = pytest.mark.usefixtures("eager")

EXTRA_TOKENS = 12
VARIANTS = {
    "post-norm, shared, tied": {},
    "pre-norm, separate, tied": {"norm": "pre", "shared_vocabulary": False},
    "post-norm, separate, untied, one head, another base": {
        "shared_vocabulary": False, "tie_embeddings": False, "heads": 1, "position_base": 100.0,
    },
    "pre-norm, shared, untied, one layer": {"norm": "pre", "tie_embeddings": False, "layers": 1},
    "post-norm, three layers and one": {"encoder_layers": 3, "decoder_layers": 1},
    "pre-norm, with all features of OPUS-MT": {
        "projection_bias": True, "output_bias": True, "zero_start": True, "source_bos": False,
        "activation": "gelu", "norm": "pre", "end": 5.0,
    },
}  # fmt: skip


def translator_ids(translator, rows):
    """Return the best ids of each row, without EOS."""
    best = translator._search(tf.constant(pad(rows))).ids[:, 0].numpy().tolist()
    return [[i for i in row if i not in (PAD_ID, EOS_ID)] for row in best]


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS)
def random_model(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("random"), **request.param)


@pytest.fixture(scope="module")
def one_model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("one"))


# ------------------------------------------------------------------------------ SavedModel

# The program has two arguments: NumPy files with the ids for each SavedModel by folder, and with
# the results.
LOAD = """
import sys
for name in ("keras", "model", "cli", "pipelines"):
    sys.modules[name] = None  # importing it is an error
import numpy as np
import tensorflow as tf
results = {}
for folder, batch in np.load(sys.argv[1]).items():
    search = tf.saved_model.load(folder).signatures["serving_default"]
    for rows in (batch, batch[:1]):
        for name, value in search(ids=tf.constant(rows)).items():
            results[f"{folder} {len(rows)} {name}"] = value.numpy()
np.savez(sys.argv[2], **results)
"""


def test_saved_models_give_the_same_results_with_only_tensorflow(tmp_path):
    greedy = Decoding(beam_size=1, max_extra_tokens=EXTRA_TOKENS)
    beams = Decoding(beam_size=3, length_penalty=1.1, max_extra_tokens=EXTRA_TOKENS)
    models = [write_model(tmp_path / f"{i}", **f) for i, f in enumerate(VARIANTS.values())]
    cases = [(models[0], greedy), *((model, beams) for model in models)]
    batches, expected = {}, {}
    for i, (model, decoding) in enumerate(cases):
        folder = f"saved{i}"
        export_saved_model(model, tmp_path / "made" / folder, decoding=decoding)
        translator = TensorFlowTranslator.load(model, decoding=decoding)
        batches[folder] = pad(random_rows(translator, count=40))
        for rows in (batches[folder], batches[folder][:1]):
            found = translator._search(tf.constant(rows))
            assert found.scores.shape == (len(rows), decoding.beam_size)
            expected[f"{folder} {len(rows)} ids"] = found.ids.numpy()
            expected[f"{folder} {len(rows)} scores"] = found.scores.numpy()
    shutil.rmtree(tmp_path / "0")  # a SavedModel must not need the model that it was exported from
    shutil.move(tmp_path / "made", tmp_path / "moved")
    np.savez(tmp_path / "batches.npz", **batches)
    subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path / "batches.npz", tmp_path / "results.npz"],
        check=True, cwd=tmp_path / "moved", capture_output=True,
    )  # fmt: skip
    results = dict(np.load(tmp_path / "results.npz"))
    assert results.keys() == expected.keys()
    for name, values in expected.items():
        assert results[name].dtype == (np.int32 if name.endswith("ids") else np.float32)
        np.testing.assert_allclose(results[name], values, rtol=1e-5)


def test_saved_model_declares_its_shapes_and_contains_vocabularies(one_model, tmp_path):
    export_saved_model(one_model, tmp_path / "saved", decoding=Decoding(beam_size=2))
    signature = tf.saved_model.load(str(tmp_path / "saved")).signatures[SIGNATURE]
    (ids,) = signature.structured_input_signature[1].values()
    assert (ids.name, ids.dtype, ids.shape.as_list()) == ("ids", tf.int32, [None, None])
    outputs = {
        name: (x.dtype, x.shape.as_list()) for name, x in signature.structured_outputs.items()
    }
    assert outputs == {"ids": (tf.int32, [None, 2, None]), "scores": (tf.float32, [None, 2])}
    beside = load_vocabularies(tmp_path / "saved" / VOCABULARY_FOLDER)
    assert beside.source.encode(["vocabulary7"]) == [
        *load_vocabularies(one_model).source.encode(["vocabulary7"])
    ]


@pytest.mark.parametrize("decoding", [Decoding(beam_size=1), Decoding(beam_size=3)], ids=str)
def test_saved_model_accepts_an_empty_batch(one_model, tmp_path, decoding):
    export_saved_model(one_model, tmp_path / "saved", decoding=decoding)
    search = tf.saved_model.load(str(tmp_path / "saved")).signatures[SIGNATURE]
    for length in (0, 5):
        found = search(ids=tf.zeros([0, length], tf.int32))
        assert found["ids"].shape[:2] == found["scores"].shape == (0, decoding.beam_size)


# ----------------------------------------------------------------------------- CTranslate2


def translate_ids(exported, rows):
    """Translate ids greedily with CTranslate2, and return ids without EOS.

    CTranslate2 has one limit per call, but `tt` has one per sentence. In `tt`, the last id within
    the limit is the EOS that it forces.
    """
    source, target = (load_tokens(exported, side) for side in ("source", "target"))
    translator = ctranslate2.Translator(str(exported), compute_type="float32", intra_threads=1)
    translations = {}
    for length, group in itertools.groupby(sorted(range(len(rows)), key=lambda i: len(rows[i])),
                                           key=lambda i: len(rows[i])):  # fmt: skip
        members = list(group)
        found = translator.translate_batch(
            [[source[j] for j in rows[i][1:-1]] for i in members],  # CTranslate2 adds BOS and EOS
            beam_size=1, length_penalty=0, min_decoding_length=0,
            max_decoding_length=length + EXTRA_TOKENS - 1,
        )  # fmt: skip
        for i, result in zip(members, found, strict=True):
            translations[i] = [target.index(token) for token in result.hypotheses[0]]
    return [translations[i] for i in range(len(rows))]


def test_ctranslate2_gives_the_same_greedy_ids(random_model, tmp_path):
    export_ctranslate2(random_model, tmp_path / "exported")
    decoding = Decoding(beam_size=1, max_extra_tokens=EXTRA_TOKENS)
    translator = TensorFlowTranslator.load(random_model, decoding=decoding)
    rows = random_rows(translator)
    ours = translator_ids(translator, rows)
    theirs = translate_ids(tmp_path / "exported", rows)
    identical = sum(a == b for a, b in zip(ours, theirs, strict=True))
    different = len({tuple(row) for row in ours})
    print(f"{identical} of {ROWS} identical, {different} different ones")
    assert different > 20
    assert identical >= 0.995 * ROWS


def test_hidden_ids_are_never_chosen_in_int8(one_model, tmp_path):
    export_ctranslate2(one_model, tmp_path / "exported")
    translator = ctranslate2.Translator(str(tmp_path / "exported"), compute_type="int8")
    tokens = json.loads((tmp_path / "exported/shared_vocabulary.json").read_text())
    hidden = {*tokens[:3], *tokens[41:]}
    assert len(hidden) == 3 + 7
    rows = random_rows(TensorFlowTranslator.load(one_model), count=50)
    results = translator.translate_batch(
        [[tokens[i] for i in row[1:-1]] for row in rows],
        beam_size=4, num_hypotheses=4, max_decoding_length=20,
    )  # fmt: skip
    hypotheses = [hypothesis for result in results for hypothesis in result.hypotheses]
    assert len(hypotheses) == 200
    assert not hidden & {token for hypothesis in hypotheses for token in hypothesis}


def test_longest_source_has_enough_positions(one_model, tmp_path):
    export_ctranslate2(one_model, tmp_path / "exported")
    translator = ctranslate2.Translator(str(tmp_path / "exported"))
    source = ["vocabulary7"] * (POSITIONS - 2)
    result = translator.translate_batch([source], max_input_length=0, max_decoding_length=1)
    assert len(result[0].hypotheses[0]) <= 1


# ------------------------------------------------------------------------ copies and errors


def test_copy_contains_only_the_files_for_translation(one_model, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(one_model, run / "model")
    (run / "model/notes.txt").write_text("mine")
    copy_model(run, tmp_path / "deep/copy")
    names = {path.name for path in (tmp_path / "deep/copy").iterdir()}
    assert names == {CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, SHARED_MODEL}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"copy"}
    texts = ["vocabulary1 vocabulary2", "vocabulary3"]
    expected = translated(TensorFlowTranslator.load(one_model), texts)
    assert translated(TensorFlowTranslator.load(tmp_path / "deep/copy"), texts) == expected


def test_only_exports_are_overwritten_and_only_on_request(one_model, tmp_path, monkeypatch):
    output = tmp_path / "output"
    output.mkdir()
    (output / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="output exists and is not an exported or imported mo"):
            copy_model(one_model, output, overwrite=overwrite)
        with pytest.raises(UserError, match=r"thesis.txt exists and is not an exported or import"):
            copy_model(one_model, output / "thesis.txt", overwrite=overwrite)
    assert (output / "thesis.txt").read_text() == "years of work"
    (tmp_path / "linked").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for used in (Path(), tmp_path / "linked"):
        with pytest.raises(UserError, match="is not an exported or imported model"):
            copy_model(one_model, used)
    (tmp_path / "copy").mkdir()  # an empty folder may be the output

    copy_model(one_model, tmp_path / "copy")
    with pytest.raises(UserError, match="copy already exists"):
        export_ctranslate2(one_model, tmp_path / "copy")
    export_ctranslate2(one_model, tmp_path / "copy", overwrite=True)
    assert ctranslate2.contains_model(str(tmp_path / "copy"))
    assert not (tmp_path / "copy" / WEIGHTS_FILE).exists()

    with pytest.raises(UserError, match="contains the model itself"):
        copy_model(one_model, one_model, overwrite=True)
    assert (one_model / WEIGHTS_FILE).is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"output", "copy", "empty", "linked"}


@contextlib.contextmanager
def no_file_beyond(size):
    """Limit the size of files, so that writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


EXPORTS = {
    "model": (copy_model, True),
    "saved-model": (
        lambda *given, **options: export_saved_model(*given, decoding=Decoding(), **options), False,
    ),
    "ctranslate2": (export_ctranslate2, True),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_export_to_a_full_disk_is_an_error(one_model, tmp_path, name):
    output = tmp_path / "output"
    export, overwrite = EXPORTS[name]
    if overwrite:
        copy_model(one_model, output)
    with pytest.raises(DiskFullError) as raised, no_file_beyond(20_000):
        export(one_model, output, overwrite=overwrite)
    assert re.fullmatch(
        rf"the disk of {output} is full \(.*File too large.*\)\. Free some space, or choose "
        "another `output`",
        str(raised.value),
    )
    assert list(tmp_path.iterdir()) == ([output] if overwrite else [])
    if overwrite:  # the earlier export is complete
        assert translated(TensorFlowTranslator.load(output), ["vocabulary1"])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_all_errors_of_full_disks_are_recognized(code):
    with pytest.raises(DiskFullError, match="disk of there is full"), storage_errors("there"):
        raise OSError(code, os.strerror(code))


# ------------------------------------------------------------------------------ the command


@pytest.mark.parametrize(
    ("arguments", "mark"),
    [
        ([], WEIGHTS_FILE),
        (
            ["--format", "saved-model", "--beam-size", "2", "--length-penalty", "0"],
            "saved_model.pb",
        ),
        (["--format", "ctranslate2"], "model.bin"),
    ],
    ids=["model", "saved-model", "ctranslate2"],
)
def test_command_writes_each_format(one_model, tmp_path, arguments, mark, capsys):
    output = tmp_path / "output"
    command = ["export", one_model, "--output", output, *arguments]
    assert run(*command) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()[-1]) == ("", f"Exported: {output}")
    assert (output / mark).is_file()
    assert run(*command) == 2
    assert run(*command, "--overwrite") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["M", "--beam-size", "2"], "search options need --format saved-model"),
        (["M", "--format", "saved-model", "--beam-size", "0"], "--beam-size must be at least 1"),
        (["nowhere", "--format", "ctranslate2"], "no model folder at "),
        (["empty", "--format", "saved-model"], "empty contains no exported model"),
        (["M", "--output", "file/output"], "file/output cannot be written: "),
    ],
)
def test_mistakes_are_refused_in_one_line(
    one_model, tmp_path, monkeypatch, arguments, message, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    given = [one_model if word == "M" else word for word in arguments]
    assert run("export", "--output", "output", *given) == 2
    assert message in last_error(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]
