"""Models in the layout of Hugging Face are converted, or refused with a reason."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from huggingface_folders import arrays_of, write_json, write_m2m100, write_marian, write_weights
from marian_models import TEXTS

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.formats.foreign import open_foreign
from tt.model.formats.model_folder import load_about, model_fingerprint
from tt.model.imports.fetching import TENSORFLOW, fetch_model
from tt.model.imports.huggingface import read_checkpoint
from tt.model.imports.huggingface_conversion import sinusoids
from tt.model.imports.importing import ImportRequest
from tt.model.text.tokenization import SOURCE_LANGUAGE, TARGET_LANGUAGE, load_pieces
from tt.model.transformer.search_options import Decoding

pytestmark = pytest.mark.usefixtures("eager")

GREEDY = Decoding(beam_size=1, max_extra_tokens=5)
TEN = TEXTS["source"][:10]


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fetched(folder, **options):
    return fetch_model(folder, report=lambda line: None, **options)


def translate(folder, engine, texts=TEN, **options):
    translator = load_translator(str(folder), decoding=GREEDY, engine=Engine(name=engine))
    found, _ = translator.translate(translator.prepare(texts, **options))
    return [each.hypotheses[0] for each in found]


@pytest.mark.parametrize("fields", [{}, {"activation_function": "relu"}, {"scale_embedding": True}])
def test_both_engines_give_the_same_translations(tmp_path, fields):
    model = write_marian(tmp_path / "opus-mt-en-es", **fields)
    theirs = translate(fetched(model), "ctranslate2")
    ours = translate(fetched(model, engine=TENSORFLOW), "tensorflow")
    assert [each.text for each in ours] == [each.text for each in theirs]
    np.testing.assert_allclose([a.score for a in ours], [b.score for b in theirs], rtol=1e-4)
    assert len({each.text for each in ours}) > 3


def test_another_process_converts_a_model_or_refuses_it_with_the_same_reason(tmp_path):
    model = write_marian(tmp_path / "opus-mt-en-es")
    apart = model_fingerprint(fetched(model, engine=TENSORFLOW, is_apart=True))
    shutil.rmtree(tmp_path / "cache")
    assert model_fingerprint(fetched(model, engine=TENSORFLOW)) == apart
    many = write_m2m100(tmp_path / "m2m100")
    reasons = []
    for is_apart in (False, True):
        with pytest.raises(UserError) as raised:
            fetched(many, engine=TENSORFLOW, is_apart=is_apart)
        reasons.append(str(raised.value))
    assert reasons[0] == reasons[1]
    assert not list((tmp_path / "cache").rglob("*m2m100"))


def test_all_formats_of_weights_give_the_same_model(tmp_path):
    kinds = ("safetensors", "sharded", "zip", "older")
    folders = [fetched(write_marian(tmp_path / kind / "m", weights=kind)) for kind in kinds]
    assert len({(folder / "model.bin").read_bytes() for folder in folders}) == 1


def test_separate_vocabularies_and_untied_logits(tmp_path):
    model = write_marian(
        tmp_path / "m", weights="none", share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
    )  # fmt: skip
    config = json.loads((model / "config.json").read_text())
    names = sorted(vocabulary := json.loads((model / "vocab.json").read_text()), key=vocabulary.get)
    moved = ["</s>", "<unk>", *reversed(names[2:-1]), "<pad>"]
    write_json(model / "target_vocab.json", {name: i for i, name in enumerate(moved)})
    write_json(model / "config.json", {**config, "decoder_vocab_size": len(moved)})
    arrays = arrays_of(rows=len(names))
    table = arrays.pop("model.shared.weight")
    generator = np.random.default_rng(5)
    draw = lambda: generator.normal(0, 0.3, table.shape).astype(np.float32)  # noqa: E731
    sides = {"encoder": draw(), "decoder": draw()}
    sides["decoder"][-1] = 0
    arrays |= {f"model.{side}.embed_tokens.weight": each for side, each in sides.items()}
    arrays |= {"lm_head.weight": draw(), "final_logits_bias": draw()[:, :1].T.copy()}
    write_weights(model, arrays, kind="safetensors")
    theirs = translate(fetched(model), "ctranslate2")
    ours = translate(fetched(model, engine=TENSORFLOW), "tensorflow")
    assert [each.text for each in ours] == [each.text for each in theirs]


def test_token_list_determines_the_order_of_tokens(tmp_path):
    """OPUS-MT's lists lack some pieces of the SentencePiece models, and have other tokens."""
    model = write_marian(tmp_path / "m", weights="none")
    names = list(json.loads((model / "vocab.json").read_text()))
    generator = np.random.default_rng(2)
    shuffled = [str(name) for name in generator.permutation(names[2:-21])]
    others = ["no", "12", "\u2581elsewhere", "<s>"]
    assert not {*others}.intersection(names)
    tokens = ["</s>", "<unk>", *shuffled, *others, "<pad>"]
    pad = len(tokens) - 1
    write_json(model / "vocab.json", {name: i for i, name in enumerate(tokens)})
    config = json.loads((model / "config.json").read_text())
    ids = {"vocab_size": pad + 1, "decoder_start_token_id": pad, "pad_token_id": pad}
    write_json(model / "config.json", {**config, **ids, "bad_words_ids": [[pad]]})
    arrays = arrays_of(rows=len(tokens))
    arrays["model.shared.weight"][pad] = 0
    write_weights(model, arrays, kind="safetensors")
    cut = load_pieces(model / "source.spm").encode(" ".join(TEN), out_type=str)
    assert not {*cut} <= {*tokens}, "the list contains the pieces of all texts"
    theirs = translate(fetched(model), "ctranslate2")
    ours = translate(fetched(model, engine=TENSORFLOW), "tensorflow")
    assert [each.text for each in ours] == [each.text for each in theirs]
    np.testing.assert_allclose([a.score for a in ours], [b.score for b in theirs], rtol=1e-4)


def test_languages_of_an_opus_model_come_from_its_name(tmp_path):
    about = load_about(fetched(write_marian(tmp_path / "opus-mt-en-es")))
    assert (about.data.source_language, about.data.target_language) == ("en", "es")
    assert about.imported_from["license"] == "apache-2.0"


def test_multilingual_opus_models_need_a_target_language(tmp_path):
    folder = fetched(write_marian(tmp_path / "m", languages=("deu", "spa")))
    model = open_foreign(folder)
    assert model.tokenization.source_prefix == (TARGET_LANGUAGE,)
    assert set(model.languages) == {"deu", "spa"}
    german, spanish = (
        translate(folder, "ctranslate2", languages=("", code)) for code in ("de", "spa")
    )
    assert german != spanish


@pytest.mark.parametrize("is_nllb", [False, True])
def test_m2m100_and_nllb_have_language_tokens_on_both_sides(tmp_path, is_nllb):
    folder = fetched(write_m2m100(tmp_path / "m", is_nllb=is_nllb))
    tokenization = open_foreign(folder).tokenization
    assert tokenization.source_prefix == (SOURCE_LANGUAGE,)
    assert tokenization.source_suffix == ("</s>",)
    assert tokenization.target_prefix == (TARGET_LANGUAGE,)
    codes = ("en", "de") if not is_nllb else ("eng_Latn", "deu_Latn")
    found = translate(folder, "ctranslate2", languages=tuple(codes))
    assert not any("__" in each.text or "_Latn" in each.text for each in found)


def test_the_first_release_of_nllb_has_the_language_at_the_end(tmp_path):
    model = write_m2m100(tmp_path / "m", is_nllb=True)
    options = {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": True}
    write_json(model / "tokenizer_config.json", options)
    tokenization = read_checkpoint(model).tokenization
    assert tokenization.source_prefix == ()
    assert tokenization.source_suffix == ("</s>", SOURCE_LANGUAGE)


def test_added_tokens_have_their_own_ids(tmp_path):
    model = write_m2m100(tmp_path / "m", is_nllb=True)
    count = len(read_checkpoint(model).encoder.tokens)
    added = {str(count - 1): {"content": "deu_Latn"}, str(count - 3): {"content": "eng_Latn"}}
    options = {"tokenizer_class": "NllbTokenizer", "added_tokens_decoder": added}
    write_json(model / "tokenizer_config.json", options)
    tokens = read_checkpoint(model).encoder.tokens
    assert (tokens[-1], tokens[-3]) == ("deu_Latn", "eng_Latn")


def test_m2m100_of_transformers_5_lists_no_languages(tmp_path):
    """Its languages have the ids after the tokens in vocab.json."""
    model = write_m2m100(tmp_path / "m", vocab_size=310)
    (model / "special_tokens_map.json").unlink()
    rows = len(json.loads((model / "vocab.json").read_text()))
    write_json(
        model / "tokenizer_config.json",
        {
            "tokenizer_class": "M2M100Tokenizer", "language_codes": "m2m100",
            "model_max_length": 10**30, "added_tokens_decoder": {"0": {"content": "<s>"}},
        },
    )  # fmt: skip
    tokens = read_checkpoint(model).encoder.tokens
    assert tokens[rows : rows + 3] == ["__af__", "__am__", "__ar__"]
    assert tokens[rows + 99] == "__zu__"


def test_positions_follow_the_formulas(tmp_path):
    """The formulas are written out for one position and two dimensions."""
    marian = sinusoids(read_checkpoint(write_marian(tmp_path / "a")))
    assert marian[3, 1] == pytest.approx(np.sin(3 / 10_000 ** (2 / 16)), abs=1e-6)
    assert marian[3, 9] == pytest.approx(np.cos(3 / 10_000 ** (2 / 16)), abs=1e-6)
    m2m100 = sinusoids(read_checkpoint(write_m2m100(tmp_path / "b")))
    assert m2m100[3, 1] == pytest.approx(np.sin(5 / 10_000 ** (1 / 7)), abs=1e-6)
    assert m2m100[0, 8] == pytest.approx(np.cos(2), abs=1e-6)


def test_tokens_that_must_not_be_chosen_are_never_in_a_translation(tmp_path):
    plain = write_marian(tmp_path / "a")
    first = translate(fetched(plain), "ctranslate2")
    names = list(json.loads((plain / "vocab.json").read_text()))
    used = max(
        (i for i, name in enumerate(names) if len(name) > 1 and i > 1),
        key=lambda i: sum(names[i].strip("▁") in each.text for each in first),
    )
    banned = write_marian(tmp_path / "b", bad_words_ids=[[len(names) - 1], [used]])
    second = translate(fetched(banned), "ctranslate2")
    assert first != second


def forget(name):
    return lambda folder: (folder / name).unlink()


def truncate(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def write(name, values):
    return lambda folder: write_json(folder / name, values)


def write_nan(folder):
    arrays = arrays_of(rows=len(json.loads((folder / "vocab.json").read_text())))
    arrays["model.encoder.layers.0.fc1.bias"][0] = np.nan
    write_weights(folder, arrays, kind="safetensors")


INDEX = "model.safetensors.index.json"
# Each kind of weights, damage and problem.
DAMAGES = [
    ("safetensors", forget("source.spm"), "source.spm"),
    ("safetensors", forget("vocab.json"), "vocab.json"),
    ("safetensors", write("tokenizer_config.json", {"tokenizer_class": "T5Tokenizer"}), "has a T5"),
    (
        "sharded",
        forget("model-00002-of-00002.safetensors"),
        "lacks 1 of 2 files with weights, such",
    ),
    ("sharded", write(INDEX, {"weight_map": {"a": "../secret"}}), "lists files in another folder"),
    ("safetensors", truncate("model.safetensors"), "cannot be read as a"),
    ("zip", truncate("pytorch_model.bin"), "cannot be read as a"),
    ("none", write_nan, "must contain finite floats"),
]
FIELDS = [
    ({"architectures": ["MBartForConditionalGeneration"]}, "the architecture MBart"),
    ({"auto_map": {}}, "program code from its own repository"),
    ({"quantization_config": {"bits": 4}}, "is quantized"),
    ({"activation_function": "tanh"}, "activation_function='tanh'"),
    ({"decoder_start_token_id": 5000}, "decoder_start_token_id=5000"),
    ({"bad_words_ids": [[1, 2]]}, "bad_words_ids"),
    ({"bad_words_ids": [[5000]]}, "bad_words_ids=5000"),
    ({"vocab_size": 100}, "but 100 embeddings"),
    ({"d_model": 32}, "must have the shape"),
    ({"encoder_layers": 3}, "have no array model.encoder.layers.2"),
    ({"encoder_layers": 0}, "encoder_layers=0"),
    ({"suppress_tokens": ["a"]}, "has a damaged config.json"),
    ({"vocab_size": 10**10}, "vocab_size=10000000000"),
    ({"encoder_layers": 201}, "encoder_layers=201"),
    ({"d_model": 2**16 + 1}, "d_model=65537"),
    ({"max_position_embeddings": 10**12}, "max_position_embeddings=1000000000000"),
]


def refuse(model, problem):
    with pytest.raises(UserError, match=problem) as error:
        fetched(model)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("weights", "damage", "problem"), DAMAGES)
def test_damaged_models_are_refused(tmp_path, weights, damage, problem):
    model = write_marian(tmp_path / "m", weights=weights)
    damage(model)
    refuse(model, problem)


@pytest.mark.parametrize(("fields", "problem"), FIELDS)
def test_models_that_do_not_fit_are_refused(tmp_path, fields, problem):
    refuse(write_marian(tmp_path / "m", **fields), problem)
    assert not list((tmp_path / "cache").rglob("model.bin"))


def test_only_models_like_opus_become_tensorflow_models(tmp_path):
    model = write_m2m100(tmp_path / "m")
    with pytest.raises(UserError, match="is not a MarianMTModel"):
        fetched(model, engine=TENSORFLOW)
    multilingual = write_marian(tmp_path / "n", languages=("deu",))
    with pytest.raises(UserError, match="has language tokens"):
        fetched(multilingual, engine=TENSORFLOW)


def test_import_writes_a_tensorflow_model_if_possible(tmp_path):
    model = write_marian(tmp_path / "opus-mt-en-es")
    out = tmp_path / "imported"
    ImportRequest(format="huggingface", model=str(model), output=str(out)).write()
    assert [e.text for e in translate(out, "tensorflow")] == [
        e.text for e in translate(fetched(model), "ctranslate2")
    ]
    with pytest.raises(UserError, match="already exists"):
        ImportRequest(format="huggingface", model=str(model), output=str(out)).write()
    other = tmp_path / "other"
    many = write_m2m100(tmp_path / "m")
    ImportRequest(format="huggingface", model=str(many), output=str(other)).write()
    assert (other / "model.bin").is_file()
    with pytest.raises(UserError, match="`source_prefix` is not available"):
        ImportRequest(format="huggingface", model="m", output="x", source_prefix="a")
    with pytest.raises(UserError, match="is not a model of Hugging Face"):
        ImportRequest(format="huggingface", model=str(tmp_path), output=str(tmp_path / "y")).write()


def test_a_changed_folder_is_converted_again(tmp_path):
    model = write_marian(tmp_path / "m")
    first = fetched(model)
    assert fetched(model) == first
    rows = len(json.loads((model / "vocab.json").read_text()))
    arrays = arrays_of(rows=rows, seed=9)
    write_weights(model, {**arrays, "final_logits_bias": np.zeros((1, rows), np.float32)},
                  kind="safetensors")  # fmt: skip
    second = fetched(model)
    assert second != first
    assert model_fingerprint(second) != model_fingerprint(first)
