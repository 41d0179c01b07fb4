"""Files with random changes either load, or raise a UserError with one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from foreign_models import argos, fairseq, opus, pack_argos
from huggingface_folders import write_m2m100, write_marian
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from models import write_model

from tt.model.errors import UserError
from tt.model.folders import default_cache
from tt.model.formats.archives import open_package
from tt.model.formats.foreign import open_foreign, special_tokens
from tt.model.formats.model_folder import load_about, load_config, model_fingerprint
from tt.model.imports.huggingface import read_checkpoint
from tt.model.imports.importing import ImportRequest
from tt.model.text.vocabulary import load_vocabularies
from tt.pipelines.texts.options import TextOptions

EXAMPLES = 15  # changed versions of each file

# Content that parsers may handle wrongly: other types, numbers out of range, deep nesting, special
# characters, paths to other folders.
STRANGE = [
    b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"1.5", b"9" * 25, b"9" * 5000, b'""', b"[]",
    b"{}",
    b"[" * 3000, b'{"a":' * 3000, b"\xff", b"\0", b"\xe2\x80\xa8", b"\xc2\x85", b'"\\ud800"', b"\n",
    b"../", b"/", b": *a", b"&a ", b"!!int ", b"<<: ", b"\xff\xff\xff\xff", b"\0\0\0\x80",
    b'"(a|a)+$"',
]  # fmt: skip


@st.composite
def edits(draw):
    """Return a function that changes a few bytes or values at random places."""
    changes = draw(
        st.lists(
            st.tuples(
                # A place is a share of the content, or near its start or end, because of headers.
                st.one_of(
                    st.floats(0, 1, exclude_max=True), st.integers(0, 300), st.integers(-300, -1)
                ),
                st.sampled_from(["byte", "insert", "value", "cut", "delete", "double"]),
                st.one_of(st.sampled_from(STRANGE), st.binary(min_size=1, max_size=4)),
                st.integers(1, 40),
            ),
            min_size=1,
            max_size=4,
        )
    )
    return lambda content: apply_edits(content, changes)


def apply_edits(content, changes):
    for place, kind, piece, length in changes:
        at = int(place * len(content)) if isinstance(place, float) else place
        before, behind = content[:at], content[at:]
        if kind == "byte":
            content = before + piece[:1] + behind[1:]
        elif kind == "insert":
            content = before + piece + behind
        elif kind == "value":  # replace everything up to the next separator of JSON or YAML
            ends = [end for end in map(behind.find, (b",", b"}", b"]", b"\n")) if end >= 0]
            content = before + piece + behind[min(ends, default=0) :]
        elif kind == "cut":
            content = before
        elif kind == "delete":
            content = before + behind[length:]
        else:
            content = before + behind[:length] + behind
    return content


def refuse_or_load(call):
    """Call a function that loads a file, and check that a UserError has one line."""
    try:
        call()
    except UserError as error:
        message = str(error)
        assert message
        assert "\n" not in message
        assert "\r" not in message


def ctranslate2_calls(folder):
    return [
        lambda: open_foreign(folder).check(source="en", target="spa"),
        lambda: open_foreign(folder).languages,
        lambda: special_tokens(open_foreign(folder).weights_folder),
        lambda: TextOptions().for_model(load_about(folder).data),
        lambda: model_fingerprint(folder),
    ]


def package_calls(folder):
    def unpack():
        cache = default_cache()
        try:
            open_foreign(open_package(folder / "x.argosmodel")).check()
        finally:
            assert not list(cache.glob("*.tmp"))
            shutil.rmtree(cache, ignore_errors=True)

    return [unpack]


def trained_calls(folder):
    return [
        lambda: load_config(folder),
        lambda: load_vocabularies(folder),
        lambda: TextOptions().for_model(load_about(folder).data),
        lambda: model_fingerprint(folder),
    ]


def checkpoint_calls(folder):
    def convert():
        output = folder.parent / "converted"
        ImportRequest(
            format="huggingface", model=str(folder), output=str(output), overwrite=True
        ).write()

    return [lambda: read_checkpoint(folder), convert]


def make_import(folder):
    layout = opus(folder / "opus", languages=("fra", "spa"))
    ImportRequest(format="ctranslate2", model=str(layout.folder), output=f"{folder}/M").write()
    return folder / "M"


def make_argos(folder):
    (folder / "a").mkdir()
    layout = argos(folder / "b")
    pack_argos(layout.folder, folder / "a/x.argosmodel")
    return folder / "a"


KINDS = {
    "import": (make_import, ctranslate2_calls),
    "fairseq": (lambda folder: fairseq(folder / "m").folder, ctranslate2_calls),
    "argos": (lambda folder: argos(folder / "m").folder, ctranslate2_calls),
    "package": (make_argos, package_calls),
    "opus": (lambda folder: write_marian(folder / "m", languages=("es",)), checkpoint_calls),
    "m2m100": (lambda folder: write_m2m100(folder / "m"), checkpoint_calls),
    "trained": (lambda folder: write_model(folder / "w"), trained_calls),
}
FILES = [
    ("import", "tokenization.json"), ("import", "about.json"), ("import", "config.json"),
    ("import", "shared_vocabulary.json"), ("import", "model.bin"), ("import", "source.spm"),
    ("fairseq", "shared_vocabulary.txt"),
    ("argos", "metadata.json"),
    ("package", "x.argosmodel"),
    ("opus", "config.json"), ("opus", "vocab.json"), ("m2m100", "config.json"),
    ("m2m100", "tokenizer_config.json"), ("m2m100", "special_tokens_map.json"),
    ("trained", "config.json"), ("trained", "vocabulary.json"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a function that creates the folder for a kind of file once."""
    made: dict[str, Path] = {}

    def get(kind):
        if kind not in made:
            made[kind] = KINDS[kind][0](tmp_path_factory.mktemp(kind))
        return made[kind]

    return get


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_mutated_files_load_or_are_refused_in_one_line(folders, kind, name, monkeypatch):
    folder = folders(kind)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    monkeypatch.setattr("tt.model.text.patterns._PROBE_SECONDS", 0.05)
    path = folder / name
    content = path.read_bytes()
    calls = KINDS[kind][1](folder)
    for call in calls:
        call()  # the unchanged file must load

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @example(lambda content: b"")
    @example(lambda content: content + b"\0")
    @given(edits())
    def check(edit):
        path.write_bytes(edit(content))
        for call in calls:
            refuse_or_load(call)

    try:
        check()
    finally:
        path.write_bytes(content)
