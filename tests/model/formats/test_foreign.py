"""Models of other programs: detection of folders, and the same translations as CTranslate2."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil

import pytest
from foreign_models import ENGLISH, LAYOUTS, argos, marian, opus, pack_argos, train_pieces

from tt.model.engines.loading import check_engine, load_translator
from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.formats.archives import open_package
from tt.model.formats.foreign import is_foreign, open_foreign
from tt.model.formats.model_folder import find_model_folder, load_about, model_fingerprint
from tt.model.imports.importing import ImportRequest
from tt.model.text.tokenization import Tokenization, find_token
from tt.model.transformer.search_options import Decoding

GREEDY = Decoding(beam_size=1)
TEXTS = [*ENGLISH[:60], "The 👍 über table.", "a"]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """All layouts of foreign models. Tests must not change the folders."""
    folder = tmp_path_factory.mktemp("foreign")
    return {name: make(folder / name) for name, make in LAYOUTS.items()}


def load(layout, decoding=GREEDY, folder=None):
    translator = load_translator(
        str(folder or layout.folder), decoding=decoding, engine=Engine(), threads=1
    )
    translator.prepare = functools.partial(translator.prepare, languages=layout.languages)
    return translator


def translate(translator, texts=TEXTS, **options):
    found, _ = translator.translate(translator.prepare(texts), **options)
    return found


# ---------------------------------------------------------- the same translations as CTranslate2


@pytest.mark.parametrize("name", LAYOUTS)
def test_greedy_tokens_and_scores_equal_ctranslate2(layouts, name):
    layout = layouts[name]
    found = translate(load(layout))
    expected = layout.bare(TEXTS, max_decoding_length=400)
    whole = 0
    for text, translation, (tokens, _, score) in zip(TEXTS, found, expected, strict=True):
        best = translation.hypotheses[0]
        assert best.text == layout.text(tokens[: best.tokens - 1]), text
        if best.is_complete:  # otherwise, it ends at the length limit of `tt`
            whole += 1
            assert best.tokens == len(tokens) + 1
            assert best.score == pytest.approx(score, abs=1e-4)
    assert whole > 10
    assert len({each.text for each in found}) > 10, "the model does not distinguish sentences"


@pytest.mark.parametrize("name", ["opus-mt-en-es", "nllb", "argos"])
def test_beams_contain_the_best_hypothesis_of_ctranslate2(layouts, name):
    layout = layouts[name]
    # With alpha 0, both rank hypotheses by their log-probability.
    found = translate(load(layout, Decoding(beam_size=4, length_penalty=0.0, n_best=4)))
    options = {"beam_size": 4, "num_hypotheses": 4, "length_penalty": 1e-9}
    expected = layout.bare(TEXTS, max_decoding_length=400, **options)
    whole = equal = 0
    for translation, (_, wanted, score) in zip(found, expected, strict=True):
        best = translation.hypotheses[0]
        if best.is_complete:
            whole += 1
            equal += best.text == wanted and best.score == pytest.approx(score, abs=1e-3)
        assert [h.score for h in translation.hypotheses] == sorted(
            (h.score for h in translation.hypotheses), reverse=True
        )
    assert whole > 10
    assert equal >= 0.9 * whole


def test_special_tokens_are_not_part_of_texts(layouts):
    tokens = load(layouts["nllb"]).tokens
    row = ["<s>", "fra_Latn", "\u2581a", "<pad>", "</s>", "<mask>", "spa_Latn"]
    assert tokens.decode([row]) == ["a"]


def test_length_limit_does_not_count_the_prefix(layouts):
    decoding = Decoding(beam_size=1, max_length_ratio=0.0001, max_extra_tokens=2)
    for name in ("nllb", "mbart-25", "opus-mt-en-es"):
        cut = translate(load(layouts[name], decoding), TEXTS[:5])
        assert {each.hypotheses[0].tokens for each in cut} <= {1, 2, 3}
        assert max(each.hypotheses[0].tokens for each in cut) == 3


def test_vocabulary_may_contain_tokens_that_sentencepiece_lacks(layouts):
    layout = layouts["opus-mt-en-es"]
    translator = load(layout)
    tokens = json.loads((layout.folder / "shared_vocabulary.json").read_text())
    # This letter is only in the SentencePiece model of the other side.
    letter = next(t for t in tokens if len(t) == 1 and layout.source.piece_to_id(t) == 0)
    [known, unknown, both] = translator.prepare([f"a {letter}", "👍👍", "the 👍"])
    assert layout.tokens(f"a {letter}")[-2] == letter == known.encoded.tokens[-2]
    assert (known.unknown, known.describe_unknown()) == ((), None)
    assert unknown.unknown == ("👍👍",)
    assert unknown.describe_unknown() == "2 of 2 letters and symbols are unknown to the model"
    assert (both.unknown, both.describe_unknown()) == (("👍",), None)


# ------------------------------------------------------------------------------- languages


@pytest.mark.parametrize("decoding", [GREEDY, Decoding(beam_size=3)])
def test_a_call_may_mix_languages(layouts, decoding):
    layout = layouts["nllb"]
    translator = load_translator(str(layout.folder), decoding=decoding, engine=Engine(), threads=1)
    alone = {}
    for code in ("es", "fr"):
        inputs = translator.prepare(TEXTS[:8], languages=("en", code))
        alone[code] = [each.text for each in translator.translate(inputs)[0]]
    assert alone["es"] != alone["fr"], "the model does not distinguish languages"
    mixed = [
        each
        for text in TEXTS[:8]
        for code in ("es", "fr")
        for each in translator.prepare([text], languages=("en", code))
    ]
    found = [each.text for each in translator.translate(mixed)[0]]
    assert (found[::2], found[1::2]) == (alone["es"], alone["fr"])


def test_find_token_accepts_all_codes_of_a_language():
    codes = ("eng_Latn", "deu_Latn", "srp_Cyrl", "zho_Hans", "zho_Hant")
    languages = dict(zip(codes, codes, strict=True))
    for code, token in {
        "en": "eng_Latn",
        "deu": "deu_Latn",
        "de-AT": "deu_Latn",
        "sr": "srp_Cyrl",
        "zh-Hant": "zho_Hant",
        "zh-TW": "zho_Hant",
        "zh_CN": "zho_Hans",
    }.items():
        assert find_token(code, languages=languages, field="x") == token
    # A code with a script does not match a token for another script.
    with pytest.raises(UserError, match=r"must be one language of the model, .* Received: sr-Latn"):
        find_token("sr-Latn", languages=languages, field="x")
    without_scripts = {"zh": "__zh__", "sr": "__sr__"}
    assert find_token("zh-Hant", languages=without_scripts, field="x") == "__zh__"
    assert find_token("zh", languages={"zh_CN": "zh_CN"}, field="x") == "zh_CN"
    with pytest.raises(UserError, match="Received: zh-Hant"):
        find_token("zh-Hant", languages={"zh_CN": "zh_CN"}, field="x")
    with pytest.raises(UserError, match="one language of the model, such as zho_Hans, zho_Hant"):
        find_token("zh", languages=languages, field="target_language")
    with pytest.raises(UserError, match=r"`target_language` must be one language .* such as deu_"):
        find_token("tlh", languages=languages, field="target_language")
    with pytest.raises(UserError, match="Received: none"):
        find_token("", languages=languages, field="target_language")
    with pytest.raises(UserError, match=r"its vocabulary has no language tokens. Import the model"):
        find_token("de", languages={}, field="target_language")


def test_find_token_distinguishes_members_of_a_macrolanguage():
    codes = ("dan_Latn", "nno_Latn", "nob_Latn", "yue_Hant", "zho_Hans")
    languages = dict(zip(codes, codes, strict=True))
    for code, token in {"nn": "nno_Latn", "nb": "nob_Latn", "yue": "yue_Hant"}.items():
        assert find_token(code, languages=languages, field="x") == token
    assert find_token("zh", languages=languages, field="x") == "zho_Hans"
    with pytest.raises(UserError, match="Received: no"):
        find_token("no", languages=languages, field="x")


def test_languages_come_from_folder_names_and_packages(layouts, tmp_path):
    data = load_about(layouts["opus-mt-en-es"].folder).data
    assert (data.source_language, data.target_language) == ("en", "es")
    data = load_about(layouts["argos"].folder).data
    assert (data.source_language, data.target_language) == ("en", "es")
    assert load_about(layouts["marian"].folder).data.source_language == ""
    several = tmp_path / "ct2-opus-mt-mul-en"
    shutil.copytree(layouts["opus-mt-en-es"].folder, several)
    data = load_about(several).data
    assert (data.source_language, data.target_language) == ("", "en")


# ------------------------------------------------------------------------------- packages


def test_package_is_unpacked_once(layouts, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = pack_argos(layouts["argos"].folder, tmp_path / "en_es.argosmodel")
    folder = open_package(package)
    assert sorted(path.name for path in folder.iterdir()) == [
        "metadata.json", "model", "sentencepiece.model",
    ]  # fmt: skip
    assert open_package(package) == folder
    assert model_fingerprint(folder) == model_fingerprint(layouts["argos"].folder)
    expected = [each.text for each in translate(load(layouts["argos"]))]
    assert [each.text for each in translate(load(layouts["argos"], folder=folder))] == expected


@pytest.mark.parametrize(
    ("content", "message"), [(b"PK", "cannot be unpacked to"), (None, "no model at")]
)
def test_damaged_package_is_an_error(tmp_path, monkeypatch, content, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = tmp_path / "x.argosmodel"
    if content is not None:
        package.write_bytes(content)
    with pytest.raises(UserError, match=message):
        open_package(package)
    assert not list(tmp_path.glob("cache/tt/*"))


# -------------------------------------------------------------------------------- imports


@pytest.mark.parametrize("name", ["opus-mt-en-roa", "mbart-25", "argos"])
def test_import_translates_like_the_original_folder(layouts, name, tmp_path):
    layout = layouts[name]
    ImportRequest(format="ctranslate2", model=str(layout.folder), output=f"{tmp_path}/M").write()
    assert is_foreign(tmp_path / "M")
    expected, found = translate(load(layout)), translate(load(layout, folder=tmp_path / "M"))
    assert found == expected
    assert load_about(tmp_path / "M").data == load_about(layout.folder).data


def test_import_stores_options_that_the_folder_lacks(layouts, tmp_path):
    layout = layouts["opus-mt-en-roa"]
    plain = tmp_path / "plain"
    shutil.copytree(layout.folder, plain)
    for side, name in (("source", "a.bin"), ("target", "b.bin")):
        (plain / f"{side}.spm").rename(tmp_path / name)
    with pytest.raises(UserError, match="must contain SentencePiece models"):
        open_foreign(plain)
    request = ImportRequest(
        format="ctranslate2",
        model=str(plain),
        output=f"{tmp_path}/M",
        source_vocabulary=f"{tmp_path}/a.bin",
        target_vocabulary=f"{tmp_path}/b.bin",
        source_prefix=">>spa<<",
        target_language="es",
    )
    request.write()
    saved = json.loads((tmp_path / "M/tokenization.json").read_text())
    assert saved == dataclasses.asdict(
        Tokenization(
            source_model="source.spm",
            target_model="target.spm",
            source_prefix=(">>spa<<",),
            source_suffix=("</s>",),
        )
    ) | {"source_prefix": [">>spa<<"], "source_suffix": ["</s>"], "target_prefix": []}
    told = dataclasses.replace(layout, languages=("", ""))
    assert translate(load(told, folder=tmp_path / "M")) == translate(load(layout))
    assert load_about(tmp_path / "M").data.target_language == "es"
    with pytest.raises(UserError, match="already exists"):
        request.write()
    dataclasses.replace(request, overwrite=True).write()
    (tmp_path / "M/source.spm").write_bytes((tmp_path / "b.bin").read_bytes())
    with pytest.raises(UserError, match=r"has changed since about\.json was written"):
        model_fingerprint(tmp_path / "M")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source_prefix": ">>xx<<"}, "the source vocabulary of .* no token '>>xx<<'. Choose"),
        ({"target_prefix": ">>xx<<"}, "the target vocabulary of .* has no token '>>xx<<'"),
        ({"target_language": "tlh"}, "`target_language` must be one language of the model"),
        ({"target_vocabulary": "x.spm"}, "needs `source_vocabulary`"),
        ({"source_vocabulary": "gone.spm"}, "no SentencePiece model at"),
        ({"format": "huggingface", "source_prefix": "x"}, "`source_prefix` is not available for"),
    ],
)
def test_invalid_import_writes_nothing(layouts, tmp_path, options, message):
    layout = layouts["opus-mt-en-roa"]
    values = {"format": "ctranslate2", "model": str(layout.folder), "output": f"{tmp_path}/M"}
    with pytest.raises(UserError, match=message):
        ImportRequest(**{**values, **options}).write()
    assert not (tmp_path / "M").exists()


def test_import_with_a_language_that_the_model_lacks_is_refused(layouts, tmp_path):
    asked = {"format": "ctranslate2", "output": f"{tmp_path}/M"}
    named, packed = (str(layouts[name].folder) for name in ("opus-mt-en-es", "argos"))
    for model in (named, packed):
        for field, own in (("target_language", "es"), ("source_language", "en")):
            with pytest.raises(UserError, match=rf"`{field}` must be {own}, acc.* Received: fr"):
                ImportRequest(model=model, **asked, **{field: "fr"}).write()
    assert not (tmp_path / "M").exists()
    ImportRequest(model=named, **asked, source_language="en-GB", target_language="spa").write()


# ------------------------------------------------------------------------------- bad input


def test_folder_of_another_program_is_not_a_model_folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"contains no exported model: .*see `tt import --help`"):
        find_model_folder(tmp_path)
    request = ImportRequest(format="ctranslate2", model=str(tmp_path), output=f"{tmp_path}/M")
    with pytest.raises(UserError, match=r"Convert a model with one of CTranslate2"):
        request.write()


def test_package_without_a_sentencepiece_model_is_refused(tmp_path):
    argos(tmp_path / "a")
    (tmp_path / "a/sentencepiece.model").rename(tmp_path / "a/bpe.model")
    with pytest.raises(UserError, match=r"Received: bpe\.model\. Copy"):
        open_foreign(tmp_path / "a")


def test_sentencepiece_model_of_another_model_is_refused(tmp_path):
    layout = opus(tmp_path / "m")
    words = [" ".join(w[::-1] for w in text.split()) for text in ENGLISH]
    train_pieces(tmp_path / "m/source.spm", words)
    with pytest.raises(UserError, match=r"source\.spm does not belong to the model: \d+ of 240"):
        load(layout)


def edit(name, change):
    """Return a function that changes the content of a file in a folder."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


DAMAGES = {
    "another size": (
        edit("source_vocabulary.json", lambda text: json.dumps(json.loads(text)[:-3]).encode()),
        r"of .* has 236 tokens, but its model\.bin has 239",
    ),
    "truncated": (
        edit("model.bin", lambda content: content[:20_000]),
        "is truncated, or not a CTr",
    ),
    "no translation model": (
        edit("model.bin", lambda c: c.replace(b"TransformerSpec\0", b"WhisperSpecAsIs\0")),
        "is a CTranslate2 model of type WhisperSpecAsIs",
    ),
    "no start token": (
        edit("config.json", lambda _: b'{"decoder_start_token": null}'),
        r"has no decoder_start_token\..* --target-prefix`",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_model_is_refused(tmp_path, name):
    damage, message = DAMAGES[name]
    damage(marian(tmp_path / "m").folder)
    with pytest.raises(UserError, match=message):
        open_foreign(tmp_path / "m").check()


@pytest.mark.parametrize("name", ["../x.spm", "/etc/passwd", "a\0b"])
def test_tokenization_with_a_path_to_another_folder_is_refused(tmp_path, name):
    argos(tmp_path / "a")
    ImportRequest(format="ctranslate2", model=f"{tmp_path}/a", output=f"{tmp_path}/M").write()
    path = tmp_path / "M/tokenization.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "source_model": name}))
    with pytest.raises(UserError, match="it names a SentencePiece model in another folder"):
        open_foreign(tmp_path / "M")


def test_folder_determines_the_engine(layouts):
    folder = layouts["marian"].folder
    with pytest.raises(UserError, match="is a CTranslate2 model, which can only translate"):
        check_engine(
            folder, decoding=GREEDY, engine=Engine(name="tensorflow"), max_source_tokens=10
        )
    with pytest.raises(UserError, match="or choose the model folder that it was exported from"):
        find_model_folder(folder)
    check_engine(folder, decoding=GREEDY, engine=Engine(), max_source_tokens=10)
    with pytest.raises(UserError, match="`max_source_tokens` must be at most 600"):
        check_engine(folder, decoding=GREEDY, engine=Engine(), max_source_tokens=700)
    with pytest.raises(UserError, match="`device=cuda` needs an NVIDIA GPU"):
        check_engine(folder, decoding=GREEDY, engine=Engine(device="cuda"), max_source_tokens=10)
    with pytest.raises(UserError, match=r"must be one of .*float32.* Received: float16"):
        check_engine(
            folder, decoding=GREEDY, engine=Engine(compute_type="float16"), max_source_tokens=10
        )
    with pytest.raises(UserError, match="`device` is only for the engine ctranslate2"):
        Engine(name="tensorflow", device="cpu")
