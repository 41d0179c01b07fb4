"""Models from Hugging Face, compared with Transformers; run by `make test-huggingface`."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import huggingface_models as huggingface
import pytest
import sacrebleu
from huggingface_models import HELD_OUT, REFERENCES, TEXTS, VARIANTS

TIE = 1e-4  # the largest difference between logits that may change places
SCORE = 1e-3  # the largest difference between log-probabilities of equal translations
LEAST_EQUAL = 0.999
# The model receives each text as it is, and `tt` does not repair its translations.
UNCHANGED = ("--split", "never", "--texts", "plain", "--no-protect", "--capitals", "keep")
GREEDY = ("--beam-size", "1", "--length-penalty", "0")
# Both programs rank by log p. With a length penalty, they rank differently, because Transformers
# divides log p by a power of the length itself. CTranslate2 ends a search earlier by default.
BEAMS = ("--beam-size", "4", "--length-penalty", "0", "--patience", "2")
TT = Path(sys.executable).with_name("tt")

if not huggingface.PYTHON.is_file():
    reason = f"{huggingface.PYTHON} does not exist: run `make test-huggingface`"
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture(scope="module")
def new():
    """Today's Transformers."""
    program = huggingface.Transformers(huggingface.PYTHON)
    yield program
    program.stop()


@pytest.fixture(scope="module")
def old():
    """Transformers of 2022, which also writes the tokenizers of NLLB."""
    if not huggingface.OLD_PYTHON.is_file():
        reason = f"{huggingface.OLD_PYTHON} does not exist: run `make test-huggingface-old`"
        pytest.skip(reason)
    program = huggingface.Transformers(huggingface.OLD_PYTHON)
    yield program
    program.stop()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.headline if name == "marian" else ())
        for name in VARIANTS
    ],
)
def model(request, new, tmp_path_factory):
    """A model of each variant with its translations by Transformers."""
    variant = VARIANTS[request.param]
    folder = tmp_path_factory.mktemp("created") / request.param.replace(", ", "-").replace(" ", "-")
    old = request.getfixturevalue("old") if variant.kind == "nllb" else None
    huggingface.create(new, folder, variant, old=old)
    return Model(variant, folder, translate(new, folder, variant))


@pytest.fixture(scope="module")
def trained(new):
    """A MarianMT model that translates the embedded corpus."""
    variant = huggingface.Variant()
    folder = huggingface.trained_model(new)
    return Model(variant, folder, translate(new, folder, variant))


@dataclasses.dataclass(frozen=True)
class Model:
    """A model, and the greedy translations of `TEXTS` by Transformers."""

    variant: huggingface.Variant
    folder: Path
    theirs: list[dict]


@dataclasses.dataclass(frozen=True)
class Ours:
    """A translation by `tt`."""

    text: str
    score: float


def translate(program, folder, variant, texts=TEXTS, **options):
    """Translate with Transformers."""
    source, target = variant.languages
    given = [variant.prefix + text for text in texts]
    return program.generate(folder, texts=given, source=source, target=target, **options)


def run_tt(*arguments, text=""):
    """Run `tt`, and return its output."""
    done = subprocess.run(
        [TT, *map(str, arguments)], input=text, capture_output=True, text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    if done.returncode != 0:
        pytest.fail(done.stderr[-1000:], pytrace=False)
    return done.stdout


def translate_with_tt(folder, *options, texts=TEXTS):
    """Translate with `tt translate`."""
    output = run_tt(
        "translate", "--model", folder, "--with-scores", *UNCHANGED, *options,
        text="".join(f"{text}\n" for text in texts),
    )  # fmt: skip
    lines = [line.split(" ||| ", 1) for line in output.splitlines()]
    assert len(lines) == len(texts)
    return [Ours(text, float(score)) for score, text in lines]


def key(text):
    """Return a text without the tokens that only one of the programs shows.

    Only `tt` shows unknown pieces, and only Transformers 5 shows the language tokens of M2M-100.
    """
    return re.sub(r"__[a-z]+__|[\s⁇]", "", text)


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def search_with_transformers(program, trained):
    """Translate the held-out texts with a beam of 4."""
    return translate(
        program, trained.folder, trained.variant, HELD_OUT, beam_size=4,
        options={"length_penalty": 0.0, "early_stopping": False},
    )  # fmt: skip


def check_greedy(ours, model, program, *, name):
    """Compare texts and scores. Equal texts with equal scores have equal ids."""
    theirs, variant = model.theirs, model.variant
    different, worst, cut = [], 0.0, 0
    for text, own, their in zip(TEXTS, ours, theirs, strict=True):
        # `tt` ends translations at S + 50 tokens. Transformers ends them at `max_length`.
        if not their["has_ended"] or len(their["ids"]) >= len(their["source_ids"]) + 45:
            cut += 1
            if not key(their["text"]).startswith(key(own.text)):
                different.append((text, own, their))
        elif key(own.text) != key(their["text"]):
            different.append((text, own, their))
        else:
            worst = max(worst, abs(own.score - their["score"]))
    source, target = variant.languages
    unexplained = [
        (text, own, their["text"], their["score"])
        for text, own, their in different
        if key(own.text)
        not in map(
            key,
            program.branches(
                model.folder, text=variant.prefix + text, tie=TIE, source=source, target=target
            ),
        )
    ]
    rows = len(theirs)
    print(
        f"{name}: {rows - len(different)} of {rows} greedy translations equal, {cut} cut, "
        f"{len(unexplained)} of the others without a tie; scores differ by at most {worst:.1e}"
    )
    assert len({their["text"] for their in theirs}) > 0.1 * rows
    assert cut <= 0.05 * rows
    assert not unexplained[:3], len(unexplained)
    assert rows - len(different) >= LEAST_EQUAL * rows
    assert worst < SCORE


def test_greedy_translations_equal_those_of_transformers(model, new):
    ours = translate_with_tt(model.folder, *GREEDY, *model.variant.options)
    check_greedy(ours, model, new, name=f"{model.folder.name}, CTranslate2")


def test_greedy_translations_of_tensorflow_equal_those_of_transformers(model, new, tmp_path):
    imported = import_model(model, tmp_path)
    ours = translate_with_tt(imported, *GREEDY)
    check_greedy(ours, model, new, name=f"{model.folder.name}, TensorFlow")


def import_model(model, folder):
    """Import a model for TensorFlow; skip the variants that only CTranslate2 can run."""
    if (
        model.variant.kind != "marian"
        or model.variant.prefix
        or model.variant.config.get("scale_embedding") is False
    ):
        pytest.skip("our Transformer does not support this variant")
    run_tt("import", "huggingface", model.folder, "--output", folder / "imported")
    assert not (folder / "imported" / "model.bin").exists()
    return folder / "imported"


@pytest.mark.parametrize("form", ["shards", "zip", "legacy"])
def test_other_forms_of_weights_give_the_same_translations(model, new, tmp_path, form):
    output = tmp_path / model.folder.name
    new.rewrite(model.folder, output=output, form=form, half=model.variant.half)
    assert not (output / "model.safetensors").exists()
    if form == "shards":
        assert len(list(output.glob("model-*.safetensors"))) > 1
    texts = TEXTS[:200]
    options = (*GREEDY, *model.variant.options)
    expected = translate_with_tt(model.folder, *options, texts=texts)
    assert translate_with_tt(output, *options, texts=texts) == expected


@pytest.mark.parametrize("name", ["marian", "marian, two vocabularies", "m2m100", "nllb"])
def test_models_of_an_old_transformers(new, old, tmp_path, name):
    variant = VARIANTS[name]
    folder = tmp_path / name.replace(", ", "-").replace(" ", "-")
    huggingface.create(old, folder, variant, old=old, form="zip")
    assert (folder / "pytorch_model.bin").is_file()
    model = Model(variant, folder, translate(new, folder, variant))
    options = (*GREEDY, *variant.options)
    ours = translate_with_tt(folder, *options)
    check_greedy(ours, model, new, name=f"{folder.name} of Transformers 4.25, CTranslate2")
    texts = TEXTS[:100]
    expected = translate_with_tt(folder, *options, texts=texts)
    for form in ("legacy", "shards"):
        output = tmp_path / form / folder.name
        old.rewrite(folder, output=output, form=form)
        assert translate_with_tt(output, *options, texts=texts) == expected


def test_folder_like_those_of_2020(new, trained, tmp_path):
    """The settings of the generation are in config.json, and the weights have the old format."""
    folder = tmp_path / trained.folder.name
    new.rewrite(trained.folder, output=folder, form="legacy")
    settings = json.loads((folder / "generation_config.json").read_text("utf-8"))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**settings, **config}), "utf-8")
    for name in ("generation_config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    check_greedy(translate_with_tt(folder, *GREEDY), trained, new, name="a folder of 2020")


def test_trained_model_translates(trained, new):
    check_greedy(translate_with_tt(trained.folder, *GREEDY), trained, new, name="trained")
    assert bleu([each["text"] for each in trained.theirs]) > 50


@pytest.mark.parametrize("engine", ["ctranslate2", "tensorflow"])
def test_beam_search_finds_the_translations_of_transformers(trained, new, tmp_path, engine):
    folder = trained.folder if engine == "ctranslate2" else import_model(trained, tmp_path)
    theirs = search_with_transformers(new, trained)
    ours = translate_with_tt(folder, *BEAMS, texts=HELD_OUT)
    pairs = list(zip(ours, theirs, strict=True))
    differences = [abs(o.score - t["score"]) for o, t in pairs if key(o.text) == key(t["text"])]
    print(
        f"beam 4, {engine}: {bleu(o.text for o in ours):.2f} BLEU, {len(differences)} of "
        f"{len(pairs)} equal; scores differ by at most {max(differences):.1e}"
    )
    assert max(differences) < SCORE
    assert len(differences) >= LEAST_EQUAL * len(pairs)


def test_int8_is_as_good_as_float32_of_transformers(trained, new):
    theirs = search_with_transformers(new, trained)
    ours = translate_with_tt(trained.folder, *BEAMS, "--compute-type", "int8", texts=HELD_OUT)
    found, expected = bleu(o.text for o in ours), bleu(t["text"] for t in theirs)
    print(f"int8, beam 4: {found:.2f} BLEU, Transformers {expected:.2f}")
    assert abs(found - expected) <= 0.3


def test_exported_folder_gives_the_same_translations_in_transformers(model, new, tmp_path):
    imported, output = import_model(model, tmp_path), tmp_path / "exported"
    run_tt("export", imported, "--format", "huggingface", "--output", output)
    theirs = translate(new, output, model.variant, options={"max_length": 128})
    # The export forbids more ids, but it gives them low logits, too.
    ours = [Ours(each["text"], each["plain_score"]) for each in theirs]
    check_greedy(ours, model, new, name=f"{model.folder.name}, exported")


def bleu(texts):
    """Return the BLEU of translations of the first held-out sources."""
    texts = list(texts)[: len(REFERENCES)]
    return sacrebleu.corpus_bleu(texts, [REFERENCES[: len(texts)]]).score
