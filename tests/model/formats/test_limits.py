"""Invalid content of foreign files: archives, JSON, vocabularies, weights and model folders."""

from __future__ import annotations

import zipfile

import pytest
from foreign_models import fairseq

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.formats.archives import open_package
from tt.model.formats.foreign import load_settings, load_tokens
from tt.model.transformer.search_options import Decoding

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


# ---------------------------------------------------------------------------- model folders
