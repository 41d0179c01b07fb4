"""`tt memory`, and `tt translate-batch --memory`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run
from models import model_texts, write_model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


PAIR = ("--source-language", "en", "--target-language", "de")


def test_corrections_replace_translations_of_the_model(folder, capsys):
    write_model(folder)
    texts = model_texts(6)
    pq.write_table(pa.table({"text": texts}), "in.parquet")
    (folder / "corrections.tsv").write_text(f"source\ttarget\n{texts[2]}\tRichtig\n{texts[3]}\t\n")

    def translate(output):
        command = ("translate-batch", "in.parquet", "--model", "model", "--memory", "memory")
        # The vocabulary contains words with digits, but no digits.
        options = ("--no-protect", "--beam-size", "1", *PAIR)
        assert run(*command, "--output", output, *options) == 0
        printed = capsys.readouterr().err
        return pq.read_table(output).to_pydict(), printed

    first, printed = translate("first")
    assert "6 in all texts, 6 translated\n" in printed
    assert run("memory", "add", "corrections.tsv", *PAIR) == 0
    assert capsys.readouterr().err.splitlines() == [
        "tt: warning: skipped 1 row without a text or without a translation",
        "Added: 1 new translation to memory",
    ]
    second, printed = translate("second")
    assert "5 in all texts, 0 translated, 5 from the memory\n" in printed
    assert "from_memory" in printed
    expected = {**first, "translation": [*first["translation"]]}
    expected["translation"][2] = "Richtig"
    assert second["translation"] == expected["translation"]
    assert second["translation_status"][2] == "from_memory"
    kept = [i for i in range(6) if i != 2]
    for name, values in first.items():
        assert [second[name][i] for i in kept] == [values[i] for i in kept], name

    assert run("memory", "show") == 0
    shown = capsys.readouterr().out
    assert "human translations      1\n" in shown
    assert "translations of models  6\n" in shown
    assert run("memory", "export", "--output", "m.tmx", "--kind", "human") == 0
    assert capsys.readouterr().err == "Exported: 1 translation to m.tmx\n"
    assert f"<seg>{texts[2]}</seg>" in (folder / "m.tmx").read_text()


def test_mistakes_are_one_line(folder, capsys):
    assert run("memory", "edit") == 2
    assert last_error(capsys) == (
        "tt: error: ACTION must be one of add, export, show. Received: edit"
    )
    assert run("memory", "show", "--output", "x") == 2
    assert last_error(capsys) == (
        "tt: error: --output has no effect with `tt memory show`. Remove the option"
    )
    assert run("memory", "add", "a.tsv", "--source-language", "en") == 2
    assert last_error(capsys).endswith("Set --source-language and --target-language")
    assert run("memory", "add", "a.tsv", *PAIR) == 2
    assert last_error(capsys) == "tt: error: there is no file a.tsv. Check the path"
    (folder / "a.tsv").write_text("en\tde\nx\ty\n")
    assert run("memory", "add", "a.tsv", *PAIR) == 2
    assert last_error(capsys).endswith("Its columns are en, de. Set --source-column")
    assert run("memory", "export") == 2
    assert last_error(capsys) == "tt: error: `tt memory export` needs a file. Set --output"
    assert sorted(path.name for path in folder.iterdir()) == ["a.tsv"]
