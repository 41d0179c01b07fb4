"""Limits of foreign files: archives, YAML, arrays, vocabularies, patterns and sizes."""

from __future__ import annotations

import json
import re
import zipfile
from io import BytesIO

import numpy as np
import pytest
from foreign_models import argos, fairseq, pack_argos
from marian_models import PIECES, SETTINGS, random_arrays, train_pieces, write_npz
from models import write_model

from model.engines.loading import load_translator
from model.engines.translator import Engine
from model.errors import UserError
from model.formats.archives import check_members
from model.formats.argos import open_package
from model.formats.ctranslate2_files import load_settings, load_tokens
from model.formats.foreign import open_foreign
from model.formats.importing import ImportRequest
from model.formats.marian_pieces import PieceFile
from model.formats.marian_vocabularies import MarianTokens
from model.formats.marian_yaml_text import parse_yaml
from model.formats.model_folder import load_about, load_config
from model.formats.weights import load_model
from model.text.spans import Protection, describe_bad_pattern
from model.text.tokenization import load_pieces
from model.transformer.search_options import Decoding

LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"
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


def link(name):
    member = zipfile.ZipInfo(name)
    member.external_attr = 0o120777 << 16
    return member


def bz2(name):
    member = zipfile.ZipInfo(name)
    member.compress_type = zipfile.ZIP_BZIP2
    return member


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            [("p/model", b"x"), ("p/model/model.bin", b"")],
            "'p/model' in it is no file of a package",
        ),
        (
            [("p/model/model.bin", b""), ("p/model", b"x")],
            "'p/model' in it is no file of a package",
        ),
        ([("p/model/..", b"x")], r"'p/model/\.\.' in it is no file"),
        ([("p/..", b"x")], r"'p/\.\.' in it is no file"),
        ([("p/x", b"1"), ("p//x", b"2")], "'p//x' in it is no file"),
        ([(link("p/model/model.bin"), "/etc/passwd")], "'p/model/model.bin' in it is a link"),
        ([(bz2("p/x"), b"1")], "'p/x' in it is not compressed with deflate"),
    ],
)
def test_packages_with_unsafe_names_are_refused(tmp_path, cache, members, message):
    refuse_package(tmp_path, cache, [("p/metadata.json", b"{}"), *members], message)


def test_names_that_escape_the_folder_are_not_unpacked(tmp_path, cache):
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


def test_a_package_that_unpacks_to_too_much_is_refused(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("model.formats.archives._ALWAYS_ALLOWED", 1000)
    bomb = [("p/metadata.json", b"{}"), ("p/model/model.bin", b"\0" * 1_000_000)]
    refuse_package(tmp_path, cache, bomb, r"its 1,\d{3} bytes would unpack to 1,000,002, more than")


def test_an_archive_of_too_many_files_is_refused():
    members = [zipfile.ZipInfo(str(i)) for i in range(10_001)]
    with pytest.raises(ValueError, match="it has 10,001 files, more than 10,000"):
        check_members(members, archive_bytes=1 << 30)
    check_members(members[1:], archive_bytes=1 << 30)


def test_what_is_not_unpacked_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr("model.formats.archives._ALWAYS_ALLOWED", 1)
    package = pack_argos(argos(tmp_path / "a").folder, tmp_path / "x.argosmodel")
    with zipfile.ZipFile(package, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("p/stanza/en/large.pt", b"0" * 10_000_000)
    assert open_package(package).is_dir()


# ----------------------------------------------------------------------------- YAML, JSON


@pytest.mark.parametrize("all_strings", [False, True])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, r"it has an alias, \*a, in line 2"),
        ("x: &x {a: 1}\ny: {<<: *x}\n", r"it has an alias, \*x"),
        ("[" * 5000, "."),
        ("\ud800", "."),
        ("[1", "."),
    ],
)
def test_yaml_that_is_refused(text, message, all_strings):
    with pytest.raises(ValueError, match=message) as raised:
        parse_yaml(text, all_strings=all_strings)
    assert str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["!!int ''", "!!bool x", "!!timestamp x", "!!float ''", f"{'9' * 5000}", "? {}\n: 1"]
)
def test_yaml_whose_values_do_not_fit_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_yaml(text)


def test_a_star_in_yaml_is_no_alias():
    assert parse_yaml('"*": 0\n"**": 1\na*b: 2\n', all_strings=True) == {
        "*": "0", "**": "1", "a*b": "2",
    }  # fmt: skip


def refuse(call, message):
    with pytest.raises(UserError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEEP, "nested too deeply"),
        ("[1]", "it is a list, not a dict"),
        ('{"eos_token": ["</s>"]}', "eos_token must be a str"),
        ('{"add_source_eos": "yes"}', "add_source_eos must be a bool"),
        ('{"unk_token": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_a_wrong_config_of_ctranslate2_is_refused(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    refuse(lambda: load_settings(tmp_path), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [(DEEP, "nested too deeply"), ('["a", 1]', "a token in it is no text"), ("{}", "not a list")],
)
def test_a_wrong_vocabulary_of_ctranslate2_is_refused(tmp_path, text, message):
    (tmp_path / "shared_vocabulary.json").write_text(text)
    refuse(lambda: load_tokens(tmp_path, "source"), message)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("model.folders.json_files._MOST_BYTES", 3 << 20)
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate((3 << 20) + 1)
    refuse(lambda: load_settings(tmp_path), "it has more than 3 MB")


# ----------------------------------------------------------------------------- vocabularies

STRANGE = ["</s>", "<unk>", "a\u2028b", "\u0085", "c\u2029", "\x1c", "\x0b", "d"]


def test_tokens_with_line_separators_stay_whole(tmp_path):
    path = tmp_path / "shared_vocabulary.txt"
    for end in ("\n", "\r\n"):
        path.write_bytes("".join(token + end for token in STRANGE).encode())
        assert load_tokens(tmp_path, "source") == STRANGE
        assert MarianTokens.load(path).names == STRANGE


def test_a_model_whose_vocabulary_has_line_separators_is_opened(tmp_path):
    # CTranslate2 splits lines at \n only, too.
    layout = fairseq(tmp_path / "m")
    path = layout.folder / "shared_vocabulary.txt"
    lines = path.read_text().split("\n")
    lines[10] += "\u2028"
    path.write_text("\n".join(lines))
    assert load_tokens(layout.folder, "source")[10] == lines[10]
    open_foreign(layout.folder).check()


# ------------------------------------------------------------------------- Marian's arrays


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    from marian_models import TEXTS

    path = tmp_path_factory.mktemp("pieces") / "both.spm"
    return train_pieces(path, [*TEXTS["source"], *TEXTS["target"]])


def import_marian(tmp_path, pieces, **options):
    values = {"format": "marian", "model": str(tmp_path / "model.npz"), "output": f"{tmp_path}/M"}
    ImportRequest(**values, source_vocabulary=str(pieces), **options).write()


def header(shape, descr="<f4"):
    """Returns the bytes of a .npy of 64 zeros whose header says something else."""
    file = BytesIO()
    said = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, said)
    return file.getvalue() + bytes(64 * 4)


@pytest.mark.parametrize(
    ("shape", "descr"),
    [
        ((1 << 40,), "<f4"),
        ((1 << 62, 4), "<f4"),
        ((-64,), "<f4"),
        ((-8, -8), "<f4"),
        ((63,), "<f4"),
        ((64,), "<f8"),
        ((64,), "|O"),
        ((1 << 70,), "|V0"),
    ],
    ids=str,
)
def test_an_array_of_another_size_than_its_header_says_is_refused(tmp_path, pieces, shape, descr):
    path = write_npz(tmp_path / "model.npz", SETTINGS, random_arrays(SETTINGS))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("strange.npy", header(shape, descr))
    refuse(lambda: import_marian(tmp_path, pieces), r"is cut off or no \.npz \('strange\.npy' has")
    assert not (tmp_path / "M").exists()


def test_a_model_with_aliases_in_its_configuration_is_refused(tmp_path, pieces):
    text = np.frombuffer(LAUGHS.encode(), np.int8)
    np.savez(tmp_path / "model.npz", **{"special:model.yml": text})
    refuse(lambda: import_marian(tmp_path, pieces), r"cannot be read \(it has an alias")


def test_a_list_of_tokens_with_aliases_is_refused(tmp_path, pieces):
    write_npz(tmp_path / "model.npz", SETTINGS, random_arrays(SETTINGS))
    (tmp_path / "vocab.yml").write_text(LAUGHS)
    asked = {"vocab": (str(tmp_path / "vocab.yml"),)}
    refuse(
        lambda: import_marian(tmp_path, pieces, **asked), r"list of Marian's tokens \(it has an a"
    )


@pytest.mark.parametrize("field", ["enc-depth", "transformer-dim-ffn", "dim-emb"])
def test_a_configuration_of_a_huge_model_is_refused_before_it_takes_memory(tmp_path, pieces, field):
    settings = {**SETTINGS, field: 2**40}
    write_npz(tmp_path / "model.npz", settings, random_arrays(SETTINGS))
    refuse(
        lambda: import_marian(tmp_path, pieces), r"weights, and needs at least [\d,]{13,}\. Copy"
    )


@pytest.mark.parametrize("sizes", [[PIECES, "x"], [None, PIECES], [True, PIECES], [PIECES]])
def test_sizes_that_are_no_numbers_are_refused(tmp_path, pieces, sizes):
    write_npz(tmp_path / "model.npz", {**SETTINGS, "dim-vocabs": sizes}, random_arrays(SETTINGS))
    refuse(lambda: import_marian(tmp_path, pieces), "must have two vocabularies")


# ------------------------------------------------------------------ weights and SentencePiece


def translate_with(folder):
    return load_translator(str(folder), decoding=Decoding(beam_size=1), engine=Engine(), threads=1)


def test_weights_of_another_size_than_their_shape_are_refused(tmp_path):
    """The last dimension of a vector says 64 where 32 floats follow."""
    path = fairseq(tmp_path / "m").folder / "model.bin"
    content = path.read_bytes()
    name = b"decoder/layer_0/attention/layer_norm/beta\0\1"
    [before, behind] = content.split(name + (32).to_bytes(4, "little"))
    path.write_bytes(before + name + (64).to_bytes(4, "little") + behind)
    refuse(lambda: translate_with(path.parent), "beta' has 128 bytes, which is not the size of its")


def test_weights_without_a_variable_are_refused(tmp_path):
    path = fairseq(tmp_path / "m").folder / "model.bin"
    path.write_bytes(
        path.read_bytes().replace(b"encoder/layer_norm/gamma", b"encoder/layer_norm/other")
    )
    refuse(lambda: translate_with(path.parent), "CTranslate2 cannot load .*gamma not found")


def test_pieces_that_are_not_utf8_are_refused(tmp_path, pieces):
    damaged = tmp_path / "damaged.spm"
    content = pieces.read_bytes()
    piece = "\u00e1".encode()
    assert piece in content
    damaged.write_bytes(content.replace(piece, b"\xff\xff", 1))
    refuse(lambda: load_pieces(damaged), "is not a SentencePiece model")
    refuse(lambda: PieceFile(damaged), r"is not a SentencePiece model \(a piece is not UTF-8\)")


# ---------------------------------------------------------------------------- model folders


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def change(trained, tmp_path):
    """Returns a function that writes the config.json of a copy with other values."""

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
    ("pattern", "message"),
    [
        ("(", "protects '.', which is no regular expression .missing "),
        ("(" * 5000 + ")" * 5000, "which is no regular expression"),
        (r"\b", "which matches where there is no character"),
        ("(a|a)+$", "which takes too long for a short text"),
        ("(.*?,){11}P", "which takes too long for a short text"),
    ],
)
def test_a_bad_pattern_of_a_model_names_the_model(change, pattern, message):
    folder = change(about={"data": {"protect_regex": ["ACME-[0-9]+", pattern]}})
    refuse(
        lambda: load_about(folder),
        f"^the model of {re.escape(str(folder))}/config.json .*{message}",
    )


@pytest.mark.parametrize("pattern", ["ACME-[0-9]+", r"(?i)art\.?\s*nr", r"\p{Lu}{2,}\d+(?:-\d+)*"])
def test_good_patterns_of_a_model_are_taken(change, pattern):
    folder = change(about={"data": {"protect_regex": [pattern]}})
    assert load_about(folder).data.protect_regex == [pattern]
    assert describe_bad_pattern(pattern) == ""
    assert Protection(protect_regex=(pattern,)).is_on


@pytest.mark.parametrize(
    "about",
    [
        [], "x", {"data": []}, {"data": {"protect_regex": "ab"}}, {"data": {"protect_regex": [1]}},
        {"data": {"pairs": "7"}}, {"data": {"source_lengths": [2**64]}}, {"steps": True},
        {"token_scores": {"1%": "low"}}, {"data": {"source_language": None}}, {"checkpoints": 7},
    ],
    ids=str,
)  # fmt: skip
def test_a_model_card_of_other_types_is_refused(change, about):
    folder = change(about=about)
    refuse(lambda: load_about(folder), r"config\.json cannot be read as a model's \(")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"d_model": "32"}, "d_model must not be '32'"),
        ({"heads": 0}, "`heads` must be at least 1"),
        ({"layers": 1.5}, "layers must not be 1.5"),
        ({"layers": 10**30}, "layers must not be 10000"),
        ({"position_base": None}, "position_base must not be None"),
        ({"position_base": float("nan")}, "`position_base` must be greater than 1"),
    ],
    ids=str,
)
def test_an_architecture_of_other_types_is_refused(change, values, message):
    folder = change(**values)
    refuse(lambda: load_config(folder), message)


@pytest.mark.parametrize("values", [{"layers": 10**9}, {"d_ff": 10**12}], ids=str)
def test_a_huge_architecture_is_refused_before_it_takes_memory(change, values):
    folder = change(**values)
    refuse(lambda: load_model(folder), r"h5 is damaged, .* \(it has [\d,]+ bytes, and they need")


@pytest.mark.parametrize("sign", [b"HEAP", b"SNOD", b"TREE"])
def test_a_damaged_weights_file_without_digests_is_refused(change, sign):
    folder = change(digests={})
    path = folder / "model.weights.h5"
    assert sign in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(sign, b"NONE"))
    refuse(lambda: load_model(folder), "h5 is damaged, or does not hold the weights")


@pytest.mark.parametrize("name", ["../x.spm", "/etc/passwd", "a/b.spm", "..", "", "a\0b"])
def test_a_tokenization_that_leaves_its_folder_is_refused(tmp_path, name):
    layout = argos(tmp_path / "a")
    output = tmp_path / "M"
    ImportRequest(format="ctranslate2", model=str(layout.folder), output=str(output)).write()
    path = output / "tokenization.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "source_model": name}))
    refuse(lambda: open_foreign(output), "a SentencePiece model is in another folder")
