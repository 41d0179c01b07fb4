"""The languages of texts, of corpora, and of models."""

from __future__ import annotations

import collections
import gzip
import io
import json
import re
import shutil
import sys

import numpy as np
import pytest
from command_line import run
from translation_jobs import write

from tt.model.formats.model_card import TrainingData
from tt.model.formats.model_folder import CONFIG_FILE
from tt.pipelines.preprocess.languages import (
    describe_wrong_languages,
    sample_languages,
    share_first_rows,
)
from tt.pipelines.texts.languages import (
    SAMPLE,
    compare_language,
    describe_other_language,
    describe_other_texts,
    is_detectable,
    likely_language,
)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Two young men are outside near the bushes."),
        ("de", "Zwei junge Männer sind im Freien in der Nähe der Büsche."),
        ("fr", "Deux jeunes hommes sont dehors près des buissons."),
        ("tr", "İki genç adam çok uzak değil ve bu ev için geldiler."),
        ("ru", "Двое молодых людей стоят у кустов, и это всё, что он видел."),
        ("en", "Go to the settings, and go back"),
        ("ar", "رجلان في الخارج على الطريق إلى هذا المكان"),
        ("zh", "两个年轻人在外面的公园里坐着，看着他们的孩子和朋友们一起玩耍。"),
        ("en", "the a an of and"),
        ("de", "Sie schläft."),
        ("zh", "我很好。"),
        ("mk", "Тој човек седи дома и чита книга затоа што е многу уморен."),
        ("id", "Dia sedang duduk di rumah dan membaca buku karena dia lelah."),
        ("ga", "Tá an fear ina shuí sa bhaile agus tá sé ag léamh leabhair."),
        ("de", "\ud83d Zwei junge Männer stehen\0 am Fenster. \udc00"),
        ("", "Berlin 1990, OK"),
        ("", ""),
    ],
)
def test_language_of_a_text(language, text):
    assert likely_language(text) == language


PUNJABI = "میں لاہور دے وچ رہندا ہاں تے اوتھے کم کردا ہاں"
RUSSIAN = "Dve molodye zhenshchiny stoyat u okna i smotryat na ulitsu"


@pytest.mark.parametrize(
    ("code", "text", "is_known"),
    [("pa", PUNJABI, True), ("pnb", PUNJABI, False), ("pa-PK", PUNJABI, True),
     ("ru-Latn", RUSSIAN, False),
     ("zh-Hant", "", True), ("en-GB", "", True)],
)  # fmt: skip
def test_texts_in_another_script_are_not_judged(code, text, is_known):
    assert is_detectable(code) == is_known
    assert compare_language(text, code=code) == "same"


@pytest.mark.parametrize(
    ("code", "text"),
    [("scn", "Palermu è a capitali dâ Sicilia e a cità cchiù granni di l'isula."),
     ("gsw", "Dr Hund schlooft hüt de ganz Tag uf em Sofa, und d Chatz isch au müed gsi.")],
)  # fmt: skip
def test_languages_that_the_model_confuses_are_not_judged(code, text):
    assert not is_detectable(code)
    assert compare_language(text, code=code) == "same"


@pytest.mark.parametrize(
    ("code", "text"),
    [("ga", "Tá an fear ina shuí sa bhaile agus tá sé ag léamh leabhair."),
     ("af", "Hierdie man sit by die huis en lees 'n boek omdat hy baie moeg is."),
     ("ckb", "هەموو مرۆڤەکان بە ئازادی و یەکسان لە ڕوومەت و مافدا لەدایک دەبن."),
     ],
)  # fmt: skip
def test_languages_that_one_detector_lacks_are_judged(code, text):
    english = "Two young men are outside near the bushes, and they talk to each other."
    assert compare_language(text, code=code) == "same"
    assert compare_language(english, code=code) == "other"
    assert compare_language(text, code="en") == "other"


CORPORA = [
    ("multi30k/train", "en", "de"),
    ("tatoeba_zh_en/train", "zh", "en"), ("news_zh_en/train", "zh", "en"),
]  # fmt: skip


@pytest.mark.parametrize(("corpus", "source", "target"), CORPORA)
def test_sides_of_real_pairs_are_judged_by_their_language(shared_data, corpus, source, target):
    """At most 4 of 10,000 texts seem to be in another language, and 70 % of the other side do.

    Most of these texts of Tatoeba have fewer than 20 letters.
    """
    sides = {}
    for code in (source, target):
        with gzip.open(shared_data / f"{corpus}.{code}.gz", "rt", encoding="utf-8") as file:
            sides[code] = [line for line in file.read().split("\n") if line.strip()][:10_000]
    for code, other in ((source, target), (target, source)):
        wrong = sum(compare_language(text, code=code) == "other" for text in sides[code])
        found = sum(compare_language(text, code=code) == "other" for text in sides[other][:2000])
        assert wrong <= 4
        assert found >= 1400


def test_danish_and_norwegian_count_as_the_same():
    danish = ["Jeg kan ikke se dig lige nu", "Hun er på vej hjem fra arbejde"] * 20
    norwegian = ["Jeg kan ikke se deg akkurat nå", "Hun er på vei hjem fra arbeid"] * 20
    for code, texts in (("da", danish), ("nb", norwegian), ("no", danish), ("nn", danish)):
        assert describe_other_texts(texts, data=TrainingData(source_language=code)) == []
        [line] = describe_other_texts(texts, data=TrainingData(source_language="en"))
        assert re.search("seem to be in (da|no|nn),", line)


ENGLISH = {"en": 90, "": 30, "de": 2}
UNKNOWN = {"": 110, "id": 12}  # most texts have no detected language


def sampled(names, *, order, rows):
    english = ["They are standing in the garden here."] * len(rows)
    german = ["Sie stehen heute hier im Garten."] * len(rows)
    first_rows = share_first_rows(tuple(names))[order]
    found = sample_languages(rows, english, german, order=order, first_rows=first_rows)
    return collections.Counter(found)


def test_sample_does_not_depend_on_how_a_file_is_sliced():
    """The sampled rows are the same with slices of any size."""
    files = ["a", "b"]
    for order in (0, 1):
        whole = sampled(files, order=order, rows=np.arange(1000))
        # The sample of 1,000 rows has the first 128 rows and three others: 256, 512 and 768 in the
        # first file, and the rows before them in the second file.
        assert whole == {("source", "en"): 131, ("target", "de"): 131}
        cut = (sampled(files, order=order, rows=np.arange(i, i + 8)) for i in range(0, 1000, 8))
        assert sum(cut, collections.Counter()) == whole


GERMAN = {"de": 100, "nl": 5, "": 17}


def describe(source, target, languages):
    codes = dict(zip(("source", "target"), languages, strict=True))
    return describe_wrong_languages("a.tsv", {"source": source, "target": target}, codes=codes)


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        (ENGLISH, GERMAN, ("en", "de")),
        (ENGLISH, GERMAN, ("en-GB", "deu")),
        (ENGLISH, GERMAN, ("", "")),
        (ENGLISH, UNKNOWN, ("en", "sw")),
        ({"en": 19}, {"de": 19}, ("de", "en")),  # too few texts
        ({"en": 25, "": 100}, GERMAN, ("fr", "de")),  # mostly names
        ({"en": 50, "de": 50}, GERMAN, ("de", "de")),  # mixed
        ({"no": 80, "da": 5}, ENGLISH, ("da", "en")),
        ({"hr": 80}, {"hr": 80}, ("sr", "hr")),
    ],
)
def test_plausible_languages_cause_no_warning(source, target, languages):
    assert describe(source, target, languages) == ""


def test_swapped_sides_cause_a_warning():
    doubt = describe(ENGLISH, GERMAN, ("de", "en-US"))
    assert doubt == (
        "a.tsv seems to have source and target swapped: 90 of 92 source texts with a detected "
        "language are in en and 100 of 105 target texts with a detected language are in de, but "
        "`source_language` is de and `target_language` is en-US. Swap the texts (in TSV, the "
        "columns: FILE:1:0) or swap the languages, and make the dataset again"
    )


@pytest.mark.parametrize(
    ("source", "target", "languages", "expected"),
    [
        (ENGLISH, GERMAN, ("fr", "de"), "90 of 92 source texts with a detected language are in en, "
         "but `source_language` is fr"),
        (ENGLISH, ENGLISH, ("en", "de"), "90 of 92 target texts with a detected language are in "
         "en, but `target_language` is de"),
        (ENGLISH, {"": 9}, ("zh", "en"), "90 of 92 source texts with a detected language are in "
         "en, but `source_language` is zh"),
    ],
)  # fmt: skip
def test_side_in_another_language_causes_a_warning(source, target, languages, expected):
    doubt = describe(source, target, languages)
    assert doubt == (
        f"a.tsv seems to be in another language: {expected}. Set the language of the texts, or "
        "choose another corpus, and make the dataset again"
    )


FROM_GERMAN = TrainingData(source_language="de", target_language="en")
FROM_ENGLISH = TrainingData(source_language="en", target_language="de")


def test_source_language_that_the_model_does_not_have_causes_a_warning():
    assert describe_other_language("en", data=FROM_GERMAN) == [
        "`source_language` is en, but the model was trained to translate from de to en, so its "
        "translations are unreliable. Choose another model, or check the language"
    ]
    for given, own in (("", "de"), ("de-AT", "de"), ("cmn", "zh"), ("en", ""), ("en", "English")):
        assert describe_other_language(given, data=TrainingData(source_language=own)) == []


@pytest.mark.parametrize(
    ("path", "language", "other"),
    [
        ("tatoeba_de_en/train.de.gz", "de", "ru"),
        ("ted_ru_en/train_not_ted.ru.gz", "ru", "de"),  # includes documentation of Python
    ],
)
def test_warnings_about_real_texts_are_right(shared_data, path, language, other):
    with gzip.open(shared_data / path, "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    windows = [lines[i : i + SAMPLE] for i in range(0, len(lines) - SAMPLE, SAMPLE)]
    assert len(windows) > 10
    for window in windows:
        assert describe_other_texts(window, data=TrainingData(source_language=language)) == []
        assert describe_other_texts(window, data=TrainingData(source_language=other)) != []


def test_few_texts_cause_no_warning():
    german = ["Die Hunde sind in dem Haus, und die Katze ist nicht da."]
    assert describe_other_texts(german * 19, data=FROM_ENGLISH) == []
    assert describe_other_texts(german * 20, data=FROM_ENGLISH) == [
        "20 of 20 texts whose language tt detected seem to be in de, but the model was "
        "trained to translate from en. The translations are unreliable. Check the column and the "
        "model"
    ]
    assert describe_other_texts(german * 20, data=TrainingData()) == []


# The commands.


@pytest.fixture
def model(trained_toy, tmp_path):
    """A model whose card says that it translates from German to Chinese."""
    folder = shutil.copytree(trained_toy.run / "model", tmp_path / "model")
    path = folder / CONFIG_FILE
    values = json.loads(path.read_text())
    values["about"]["data"] |= {"source_language": "de", "target_language": "zh"}
    path.write_text(json.dumps(values))
    return folder


RUSSIAN = "один два три четыре пять шесть семь"


def warnings_in(said):
    """Return the warnings, without the one about the threads of this process's TensorFlow."""
    lines = [line for line in said.splitlines() if "warning" in line]
    return [line for line in lines if "TensorFlow keeps its current threads" not in line]


def test_tt_translate_warns_about_another_language(model, monkeypatch, capfd):
    for text, options, warning in (
        ("Die Katze ist sehr müde.\n", [], ""),
        ("one two three\n", [], "20 of 20 texts whose language tt detected seem to be in en,"),
        (f"{RUSSIAN}\n", [], "20 of 20 texts whose language tt detected seem to be in ru,"),
        ("Die Katze.\n", ["--source-language", "en"], "--source-language is en,"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode() * 20)))
        assert run("translate", "--model", model, *options) == 0
        said = warnings_in(capfd.readouterr().err)
        assert len(said) == bool(warning)
        assert all(line.startswith(f"tt: warning: {warning}") for line in said)


def test_translated_folder_stores_its_languages_for_scoring(model, tmp_path, monkeypatch, capfd):
    source = write(tmp_path / "in.parquet", {"text": ["one two three", "four five six seven"]})
    output, reference = tmp_path / "out", tmp_path / "reference.zh"
    reference.write_text("今天天气很好。\n我们去散步吧。\n")
    command = ("translate-batch", source, "--output", output, "--model", model)
    assert run(*command) == 0
    assert not warnings_in(capfd.readouterr().err)
    for name in ("plan", "manifest"):
        content = json.loads((output / f"_tt/{name}.json").read_text())
        assert content["languages"] == {"source": "de", "target": "zh"}
        assert content["options"]["source_language"] == "de"
    scored = ("evaluate", output, "--reference", reference)
    for options, tokenizer in (
        ([], "zh"),
        (["--tokenize", "char"], "char"),
        (["--language", "ja"], "char"),
        (["--language", "en"], "13a"),
    ):
        assert run(*scored, *options) == 0
        out, err = capfd.readouterr()
        assert f"|tok:{tokenizer}|" in out
        assert "warning" not in err
    # The languages in a plan are optional, because older folders do not have them.
    plan = json.loads((output / "_tt/plan.json").read_text())
    del plan["languages"]
    (output / "_tt/plan.json").write_text(json.dumps(plan))
    assert run(*command) == 0
    assert "Already finished" in capfd.readouterr().err
    assert run(*scored) == 0
    out, err = capfd.readouterr()
    assert "|tok:13a|" in out
    assert "tt: warning: the references are in a script without spaces between words" in err


def test_tt_translate_batch_warns_about_another_language(model, tmp_path, capfd):
    source = write(tmp_path / "in.parquet", {"text": [RUSSIAN, None] * 20})
    command = ("translate-batch", source, "--output", tmp_path / "out", "--model", model)
    assert run(*command, "--source-language", "en") == 0
    said = capfd.readouterr().err
    assert said.count("tt: warning: 20 of 20 texts whose language tt detected seem") == 1
    assert said.count("tt: warning: --source-language is en, but the model was trained to") == 1
