"""What a model knows of its languages, and what is said where texts are in another."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys

import pytest
from command_line import run
from translation_jobs import write

from model.formats.model_card import TrainingData
from model.formats.model_folder import CONFIG_FILE
from pipelines.reports.evaluate import describe_unspaced
from pipelines.texts.model_languages import (
    SAMPLE,
    describe_other_language,
    describe_other_script,
    describe_other_texts,
)

FROM_GERMAN = TrainingData(source_language="de", target_language="en")
FROM_ENGLISH = TrainingData(source_language="en", target_language="de")


def test_another_language_than_the_models_is_said():
    assert describe_other_language("en", data=FROM_GERMAN) == [
        "`source_language` is en, and the model was trained to translate from de to en: what it "
        "makes of another language means little"
    ]
    for given, own in (("", "de"), ("de-AT", "de"), ("cmn", "zh"), ("en", ""), ("en", "English")):
        assert describe_other_language(given, data=TrainingData(source_language=own)) == []


@pytest.mark.parametrize(
    ("language", "texts", "others"),
    [
        ("de", ["Ein Hund läuft.", "Zwei Männer"], 0),
        ("de", ["Собака бежит по полю.", "Два человека"], 2),
        ("de", ["Собака бежит по полю.", "Ein Hund"], 0),  # half is not most
        ("de", ["Собака бежит", "Кошка спит", "Ein Hund läuft.", "123", ""], 2),
        ("ru", ["Функция print() и метод str.join", "Да"], 0),
        ("ru", ["The quick brown fox", "Jumps over"], 2),
        ("ja", ["今日は良い天気ですね、散歩しましょう。", "東京都千代田区"], 0),
        ("zh", ["今天天气很好。我们去散步吧，然后去 IKEA 买东西，好吗？"], 0),
        ("sr", ["The quick brown fox jumps"], 0),  # of two scripts
        ("", ["The quick brown fox jumps"], 0),
        ("ru", ["Hi", "BBC"], 0),  # too little to say it
        ("de", [], 0),
    ],
)
def test_texts_of_another_script_are_counted(language, texts, others):
    found = describe_other_script(texts, data=TrainingData(source_language=language))
    assert [line.split(" of ")[0] for line in found] == ([str(others)] if others else [])


def test_the_line_says_which_script_it_should_be():
    assert describe_other_script(["Собака бежит по полю."] * 3000, data=FROM_GERMAN) == [
        "1,000 of the first 1,000 texts with letters are not in the script of de, Latin, which "
        "the model was trained to translate from: what it makes of another language means little"
    ]


@pytest.mark.parametrize(
    ("path", "language", "other"),
    [
        ("tatoeba_de_en/train.de.gz", "de", "ru"),
        ("multi30k/train.fr.gz", "fr", "zh"),
        ("tatoeba_zh_en/train.zh.gz", "zh", "de"),
        ("news_zh_en/train.zh.gz", "zh", "ru"),
        ("ted_ru_en/train_not_ted.ru.gz", "ru", "de"),  # with documentation of Python
    ],
)
def test_real_texts_give_no_false_warning_and_all_others_one(shared_data, path, language, other):
    with gzip.open(shared_data / path, "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    windows = [lines[i : i + SAMPLE] for i in range(0, len(lines) - SAMPLE, SAMPLE)]
    assert len(windows) > 10
    for window in windows:
        assert describe_other_texts(window, data=TrainingData(source_language=language)) == []
        assert describe_other_script(window, data=TrainingData(source_language=other)) != []


@pytest.mark.parametrize(
    ("path", "language", "other"),
    [
        ("tatoeba_de_en/train.de.gz", "de", "en"),
        ("tatoeba_de_en/train.en.gz", "en", "de"),
        ("multi30k/train.fr.gz", "fr", "en"),
        ("multi30k/train.de.gz", "de", "en"),
    ],
)
def test_a_column_of_another_language_in_the_same_script_is_told(
    shared_data, path, language, other
):
    with gzip.open(shared_data / path, "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")[: 20 * SAMPLE]
    for window in (lines[i : i + SAMPLE] for i in range(0, len(lines), SAMPLE)):
        assert describe_other_texts(window, data=TrainingData(source_language=language)) == []
        [line] = describe_other_texts(window, data=TrainingData(source_language=other))
        assert f" texts that tell their language seem to be in {language}, and " in line


def test_of_a_few_texts_their_language_is_not_doubted():
    german = ["Die Hunde sind in dem Haus, und die Katze ist nicht da."]
    assert describe_other_texts(german * 19, data=FROM_ENGLISH) == []
    assert describe_other_texts(german * 20, data=FROM_ENGLISH) == [
        "20 of the first 20 texts that tell their language seem to be in de, and the model was "
        "trained to translate from en: what it makes of another language means little. Is this "
        "the column, or the model, that you mean?"
    ]
    assert describe_other_texts(german * 20, data=TrainingData()) == []


@pytest.mark.parametrize(
    ("texts", "is_said"),
    [
        (["今天天气很好。", "OK"], True),
        (["今日は良い天気です。"], True),
        (["오늘은 날씨가 좋네요."], True),
        (["วันนี้อากาศดี"], True),
        (["Good weather 好", "in Berlin"], False),
        ([], False),
    ],
)
def test_texts_without_spaces_are_found(texts, is_said):
    assert len(describe_unspaced(texts)) == is_said


# The commands.


@pytest.fixture
def model(trained_toy, tmp_path):
    """A model that was trained from German to Chinese, as it says."""
    folder = shutil.copytree(trained_toy.run / "model", tmp_path / "model")
    path = folder / CONFIG_FILE
    values = json.loads(path.read_text())
    values["about"]["data"] |= {"source_language": "de", "target_language": "zh"}
    path.write_text(json.dumps(values))
    return folder


def test_tt_translate_warns_of_another_script_or_language(model, monkeypatch, capfd):
    for text, options, warning in (
        ("one two three four five six\n", [], ""),
        ("один два три четыре пять\n", [], "1 of the first 1 texts with letters are not in the"),
        ("one two three four five six\n", ["--source-language", "en"], "--source-language is en,"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode() * 2)))
        assert run("translate", "--model", model, *options) == 0
        said = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
        assert len(said) == bool(warning)
        assert all(line.startswith(f"tt: warning: {warning.replace('1', '2')}") for line in said)


def test_a_translated_folder_knows_its_languages_and_is_scored_by_them(
    model, tmp_path, monkeypatch, capfd
):
    source = write(tmp_path / "in.parquet", {"text": ["one two three", "four five six seven"]})
    output, reference = tmp_path / "out", tmp_path / "reference.zh"
    reference.write_text("今天天气很好。\n我们去散步吧。\n")
    command = ("translate-batch", source, "--output", output, "--model", model)
    assert run(*command) == 0
    assert "warning" not in capfd.readouterr().err
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
    # Languages are told by the plan, and no part of it: folders of before have none.
    plan = json.loads((output / "_tt/plan.json").read_text())
    del plan["languages"]
    (output / "_tt/plan.json").write_text(json.dumps(plan))
    assert run(*command) == 0
    assert "Finished already" in capfd.readouterr().err
    assert run(*scored) == 0
    out, err = capfd.readouterr()
    assert "|tok:13a|" in out
    assert "tt: warning: the references are in a script without spaces" in err


def test_a_table_of_another_script_is_said_before_it_is_translated(model, tmp_path, capfd):
    texts = ["один два три", None, "четыре пять шесть семь", "one"]
    source = write(tmp_path / "in.parquet", {"text": texts})
    command = ("translate-batch", source, "--output", tmp_path / "out", "--model", model)
    assert run(*command, "--source-language", "en") == 0
    said = capfd.readouterr().err
    assert said.count("tt: warning: 2 of the first 3 texts with letters are not in the script") == 1
    assert said.count("tt: warning: --source-language is en, and the model was trained to") == 1


def test_a_language_that_is_none_is_refused(tmp_path, capfd):
    (tmp_path / "a").write_text("x\n")
    a = tmp_path / "a"
    assert run("evaluate", a, "--reference", a, "--language", "Chinese") == 2
    assert "--language must be a language code" in capfd.readouterr().err
