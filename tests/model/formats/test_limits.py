"""Invalid content of foreign files: archives, JSON, vocabularies, weights and model folders."""

from __future__ import annotations

import json
import zipfile

import pytest
from foreign_models import fairseq
from marian_models import TEXTS, train_pieces
from models import write_model

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.formats.archives import open_package
from tt.model.formats.foreign import load_settings, load_tokens
from tt.model.formats.model_folder import load_config
from tt.model.formats.weights import load_model
from tt.model.text.tokenization import load_pieces
from tt.model.transformer.search_options import Decoding

DEEP = "[" * 100_000 + "]" * 100_000


# -------------------------------------------------------------------------------- archives


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/tt"


def refuse_package(tmp_path, cache, members, message):
    package = tmp_path / "x.argosmodel"
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as file:
        for member, content in members:
            file.writestr(member, content)
    with pytest.raises(UserError, match=message) as raised:
        open_package(package)
    assert "\n" not in str(raised.value)
    assert list(cache.glob("*")) == []
    assert not (tmp_path / "evil").exists()


def test_paths_outside_the_package_are_not_unpacked(tmp_path, cache):
    package = tmp_path / "x.argosmodel"
    with zipfile.ZipFile(package, "w") as file:
        for name in (
            "metadata.json",
            "../evil",
            "/evil",
            "../metadata.json/evil",
            "model/a/../../b",
        ):
            file.writestr(name, b"{}")
    folder = open_package(package)
    assert [path.name for path in folder.iterdir()] == ["metadata.json"]
    assert [path.name for path in cache.iterdir()] == [folder.name]
    assert not (tmp_path / "evil").exists()


def test_package_that_unpacks_to_too_many_bytes_is_refused(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("tt.model.formats.archives._ALWAYS_ALLOWED", 1000)
    bomb = [("p/metadata.json", b"{}"), ("p/model/model.bin", b"\0" * 1_000_000)]
    refuse_package(tmp_path, cache, bomb, r"it would unpack to 1,000,002 bytes, more than")


# ----------------------------------------------------------------------------- JSON


def refuse(call, message):
    with pytest.raises(UserError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEEP, "nested too deeply"),
        ('{"add_source_eos": "yes"}', "add_source_eos must be a bool"),
        ('{"unk_token": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_invalid_ctranslate2_config_is_refused(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    refuse(lambda: load_settings(tmp_path), message)


def test_too_large_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tt.model.json_files._MOST_BYTES", 3 << 20)
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate((3 << 20) + 1)
    refuse(lambda: load_settings(tmp_path), "it has more than 3 MB")


# ----------------------------------------------------------------------------- vocabularies

STRANGE = ["</s>", "<unk>", "a\u2028b", "\u0085", "c\u2029", "\x1c", "\x0b", "d"]


def test_tokens_may_contain_line_separators(tmp_path):
    path = tmp_path / "shared_vocabulary.txt"
    for end in ("\n", "\r\n"):
        path.write_bytes("".join(token + end for token in STRANGE).encode())
        assert load_tokens(tmp_path, "source") == STRANGE


# ------------------------------------------------------------------ weights and SentencePiece


def translate_with(folder):
    return load_translator(str(folder), decoding=Decoding(beam_size=1), engine=Engine(), threads=1)


def test_weights_that_do_not_fit_their_shape_are_refused(tmp_path):
    """The shape of a vector says 64, but 32 floats follow."""
    path = fairseq(tmp_path / "m").folder / "model.bin"
    content = path.read_bytes()
    name = b"decoder/layer_0/attention/layer_norm/beta\0\1"
    [before, behind] = content.split(name + (32).to_bytes(4, "little"))
    path.write_bytes(before + name + (64).to_bytes(4, "little") + behind)
    refuse(lambda: translate_with(path.parent), "beta' has 128 bytes, which does not fit its shape")


def test_missing_weights_are_refused(tmp_path):
    path = fairseq(tmp_path / "m").folder / "model.bin"
    path.write_bytes(
        path.read_bytes().replace(b"encoder/layer_norm/gamma", b"encoder/layer_norm/other")
    )
    refuse(lambda: translate_with(path.parent), "CTranslate2 cannot load .*gamma not found")


def test_pieces_that_are_not_utf8_are_refused(tmp_path):
    damaged = tmp_path / "damaged.spm"
    content = train_pieces(damaged, [*TEXTS["source"], *TEXTS["target"]]).read_bytes()
    piece = "\u00e1".encode()
    assert piece in content
    damaged.write_bytes(content.replace(piece, b"\xff\xff", 1))
    refuse(lambda: load_pieces(damaged), "is not a SentencePiece model")


# ---------------------------------------------------------------------------- model folders


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def change(trained, tmp_path):
    """Return a function that copies a model folder and changes values in its config.json."""

    def write(**values):
        folder = tmp_path / "copy"
        folder.mkdir()
        for path in trained.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))
        return folder

    return write


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"d_model": "32"}, "`d_model` must be a valid integer"),
        ({"heads": 0}, "`heads` must be at least 1"),
        ({"layers": 10**30}, "10000000000000000000... is beyond 64 bits"),
        ({"position_base": float("nan")}, "`position_base` must be greater than 1"),
    ],
    ids=str,
)
def test_invalid_architecture_is_refused(change, values, message):
    folder = change(**values)
    refuse(lambda: load_config(folder), message)


def test_damaged_weights_without_digests_are_refused(change):
    folder, sign = change(digests={}), b"SNOD"
    path = folder / "model.weights.h5"
    assert sign in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(sign, b"NONE"))
    refuse(lambda: load_model(folder), r"h5 is damaged, or does not match config\.json")
