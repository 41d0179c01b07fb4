"""A model folder contains digests of its files, and loads only if no file has changed."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest
import sentencepiece
import toy
from command_line import run
from trainers import export_average, export_checkpoint
from translation_jobs import write

from tt.model.dataset.manifest import digest_file
from tt.model.engines.loading import convert, load_translator
from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.formats.exports import (
    VOCABULARY_FOLDER,
    copy_model,
    export_ctranslate2,
    export_saved_model,
)
from tt.model.formats.foreign import ABOUT_FILE, CTRANSLATE2_FILE
from tt.model.formats.model_folder import CONFIG_FILE, WEIGHTS_FILE, model_fingerprint
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import SHARED_MODEL, VOCABULARY_FILE, vocabulary_json
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_loading import ModelLoader

TENSORFLOW, CTRANSLATE2 = Engine(name="tensorflow"), Engine(name="ctranslate2")
GREEDY = Decoding(beam_size=1)

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A separate cache for this module."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "tt"


@pytest.fixture
def model(trained_toy, tmp_path):
    """A copy of a model folder that the test may change."""
    return shutil.copytree(trained_toy.run / "model", tmp_path / "model")


def load(folder, engine=TENSORFLOW):
    return load_translator(str(folder), decoding=GREEDY, engine=engine)


def translate(folder, engine=TENSORFLOW):
    translator = load(folder, engine)
    found, _ = translator.translate(translator.prepare(["one two three", "seven"]))
    return [translation.text for translation in found]


# Changed files


def other_words(folder):
    """Replace the vocabulary by a vocabulary with the same number of other words."""
    words = [*toy.DIGITS[1:], "ten"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words)] * 10),
        model_prefix=str(folder / "toy"), model_type="word", vocab_size=14,
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    (folder / "toy.model").replace(folder / SHARED_MODEL)
    (folder / "toy.vocab").unlink()
    return SHARED_MODEL


def other_normalization(folder):
    normalization = TextNormalization(lowercase=True)
    (folder / VOCABULARY_FILE).write_text(vocabulary_json(shared=True, normalization=normalization))
    return VOCABULARY_FILE


def zero_bytes(folder):
    """Set 64 bytes in the middle of the weights to zero."""
    name = next(n for n in (WEIGHTS_FILE, CTRANSLATE2_FILE) if (folder / n).is_file())
    content = bytearray((folder / name).read_bytes())
    middle = len(content) // 2
    assert any(content[middle : middle + 64])
    content[middle : middle + 64] = bytes(64)
    (folder / name).write_bytes(content)
    return name


CHANGES = pytest.mark.parametrize("change", [other_words, other_normalization, zero_bytes])


def message_of(path, name, *, identity_file):
    return (
        f"{path / name} is damaged or belongs to another model: it has changed since "
        f"{identity_file} was written. Copy the complete folder again from its source"
    )


@CHANGES
def test_engines_refuse_a_model_with_a_changed_file(model, tmp_path, change):
    expected = translate(model)
    assert translate(model, CTRANSLATE2) == expected
    before = model_fingerprint(model)
    name = change(model)
    message = message_of(model, name, identity_file=CONFIG_FILE)
    for attempt in (
        lambda: load(model),
        lambda: load(model, CTRANSLATE2),
        lambda: model_fingerprint(model),
        ModelLoader(str(model), GREEDY),
        ModelLoader(str(model), GREEDY, fingerprint=before),
        lambda: copy_model(model, tmp_path / "copy"),
        lambda: export_saved_model(model, tmp_path / "copy", decoding=GREEDY),
        lambda: export_ctranslate2(model, tmp_path / "copy"),
    ):
        with pytest.raises(UserError) as caught:
            attempt()
        assert str(caught.value) == message
    assert not (tmp_path / "copy").exists()


@CHANGES
def test_ctranslate2_export_with_a_changed_file_is_refused(model, tmp_path, change):
    exported = tmp_path / "exported"
    export_ctranslate2(model, exported)
    assert translate(exported, CTRANSLATE2) == translate(model)
    name = change(exported)
    for attempt in (
        lambda: load(exported, CTRANSLATE2),
        ModelLoader(str(exported), GREEDY, CTRANSLATE2, fingerprint="f"),
    ):
        with pytest.raises(UserError) as caught:
            attempt()
        assert str(caught.value) == message_of(exported, name, identity_file=ABOUT_FILE)


def test_damaged_converted_model_in_the_cache_is_refused(model):
    converted = convert(model)
    try:
        zero_bytes(converted)
        with pytest.raises(UserError, match=r"model\.bin is damaged or belongs to another model"):
            load(model, CTRANSLATE2)
    finally:
        shutil.rmtree(converted)


# All kinds of model folders


@pytest.mark.parametrize("kind", ["run", "best", "export", "average", "checkpoint"])
def test_all_model_folders_contain_digests_of_their_files(trained_toy, tmp_path, kind):
    run, made = trained_toy.run, tmp_path / "made"
    if kind == "export":
        copy_model(run, made)
    elif kind == "average":
        export_average(str(run), made)
    elif kind == "checkpoint":
        export_checkpoint(str(run), made, name="best")
    else:
        made = run / {"run": "model", "best": "best_model"}[kind]
    names = [WEIGHTS_FILE, VOCABULARY_FILE, SHARED_MODEL]
    digests = json.loads((made / CONFIG_FILE).read_text())["digests"]
    assert digests == {name: digest_file((made / name).read_bytes()) for name in names}
    assert {path.name for path in made.iterdir()} == {CONFIG_FILE, *names}


def test_exports_contain_digests_of_all_their_files(trained_toy, tmp_path):
    export_ctranslate2(trained_toy.run, tmp_path / "ct2")
    export_saved_model(trained_toy.run, tmp_path / "saved", decoding=GREEDY)
    for folder, about in (("ct2", ABOUT_FILE), ("saved", f"{VOCABULARY_FOLDER}/{ABOUT_FILE}")):
        made = tmp_path / folder
        files = {p.relative_to(made).as_posix(): p for p in made.rglob("*") if p.is_file()}
        digests = json.loads(files.pop(about).read_text())["digests"]
        assert digests == {name: digest_file(path.read_bytes()) for name, path in files.items()}
        assert {"ct2": CTRANSLATE2_FILE, "saved": "saved_model.pb"}[folder] in digests


def test_model_card_does_not_change_the_fingerprint(model):
    before, path = model_fingerprint(model), model / CONFIG_FILE
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "about": {"steps": 7}}))
    assert model_fingerprint(model) == before
    path.write_text(json.dumps({**values, "heads": 8}))
    assert model_fingerprint(model) != before


def test_invalid_digests_are_refused(model):
    path = model / CONFIG_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "digests": []}))
    with pytest.raises(UserError, match=r"is not the configuration of a model \(digests\)"):
        load(model)


def test_file_without_a_digest_is_refused(model):
    path = model / CONFIG_FILE
    values = json.loads(path.read_text())
    del values["digests"][VOCABULARY_FILE]
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"vocabulary\.json is damaged or belongs to another model"):
        load(model)


# Messages of the commands


def give(monkeypatch, text):
    """Replace stdin by a text."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_commands_report_a_changed_file_in_one_line(model, tmp_path, monkeypatch, capfd):
    source = write(tmp_path / "in.parquet", {"text": ["one two"]})
    zero_bytes(model)
    for command in (
        ("translate", "--model", model),
        ("translate-batch", source, "--output", tmp_path / "out", "--model", model),
        ("export", model, "--output", tmp_path / "copy"),
    ):
        give(monkeypatch, "one two\n")
        assert run(*command) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err.splitlines()[-1].startswith(
            f"tt: error: {model / WEIGHTS_FILE} is damaged or belongs to another model"
        )
        assert "Traceback" not in err
    assert not (tmp_path / "out").exists()
