"""Translation jobs with models of other programs: languages, resuming and errors."""

from __future__ import annotations

import dataclasses
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import Loader, Reverser
from foreign_models import ENGLISH, argos, nllb, opus, pack_argos
from memory_store import MemoryStore

from tt.model.engines.translator import Engine
from tt.model.errors import UserError, require
from tt.model.formats.model_folder import load_about
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.staging import stage_model
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.options import TranslateOptions

GREEDY = Decoding(beam_size=1)
URL = "https://a.com/b"


class Spanish(Reverser):
    """Translates only to Spanish."""

    def prepare(self, texts, *, languages=("", ""), most_tokens=None):
        require(languages[1] in ("", "es"), "`target_language` must be es", languages[1])
        return super().prepare(texts, languages=languages, most_tokens=most_tokens)


def test_rows_fail_if_a_model_of_the_user_lacks_their_language(table):
    made = request(table, "", target_language_column="lang", text_columns=("text",))
    dataclasses.replace(made, model=Loader(Spanish, "spanish")).plan().run()
    rows = rows_of(table)
    statuses = ["ok", "null", *["failed"] * 3, "ok"]
    assert [row["translation_status"] for row in rows] == statuses
    assert rows[4]["translation_error"] == "`target_language` must be es. Received: tlh"


def test_loader_needs_a_fingerprint(table):
    made = request(table, "", text_columns=("text",))
    with pytest.raises(UserError, match="needs an attribute for its fingerprint"):
        dataclasses.replace(made, model=Loader(Reverser, "")).plan()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models that the tests do not change."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "opus": opus(folder / "opus-mt-en-es"),
        "nllb": nllb(folder / "nllb"),
        "argos": argos(folder / "argos"),
    }


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {
        "text": [ENGLISH[0], None, ENGLISH[1], ENGLISH[0], ENGLISH[2], f"See {URL} now."],
        "lang": ["es", "es", "fra_Latn", "fr", "tlh", None],
    }
    pq.write_table(pa.table(columns), path)
    return path


def request(table, model, *, texts=None, decoding=GREEDY, engine=None, **options):
    return TranslateRequest(
        options=TranslateOptions(
            input=(str(table),),
            output=str(table.parent / "out"),
            max_failed=1.0,
            texts=texts or TextOptions(),
            **options,
        ),
        model=str(model),
        decoding=decoding,
        engine=engine or Engine(),
        beam=("--direct_num_workers=1",),
    )


def rows_of(table):
    return pq.read_table(table.parent / "out").to_pylist()


def test_each_row_is_translated_into_its_language(models, table):
    layout = models["nllb"]
    texts = TextOptions(source_language="en", target_language="es")
    made = request(table, layout.folder, texts=texts, target_language_column="lang")
    made.plan().run()
    rows = rows_of(table)
    assert [row["translation_status"] for row in rows[:5]] == ["ok", "null", "ok", "ok", "failed"]
    assert (
        "must be one language of the model, such as eng_Latn, fra_Latn, "
        in rows[4]["translation_error"]
    )
    assert URL in rows[5]["translation"], "a row without a language uses the option"
    assert rows[0]["translation"] != rows[3]["translation"]
    one = table.parent / "fr" / "one.parquet"
    one.parent.mkdir()
    pq.write_table(pa.table({"text": ENGLISH[:2]}), one)
    texts = TextOptions(source_language="en", target_language="fr")
    request(one, layout.folder, texts=texts).plan().run()
    alone = [row["translation"] for row in rows_of(one)]
    assert alone == [rows[3]["translation"], rows[2]["translation"]]


def test_each_row_is_translated_from_its_language(models, tmp_path):
    folder, text = models["nllb"].folder, ENGLISH[0]
    path = tmp_path / "both.parquet"
    pq.write_table(pa.table({"text": [text] * 3, "from": ["en", "fr", None]}), path)
    texts = TextOptions(source_language="en", target_language="es")
    options = {"text_columns": ("text",), "source_language_column": "from"}
    request(path, folder, texts=texts, **options).plan().run()
    rows = [row["translation"] for row in rows_of(path)]
    assert rows[0] == rows[2]
    one = tmp_path / "fr" / "one.parquet"
    one.parent.mkdir()
    pq.write_table(pa.table({"text": [text]}), one)
    alone = TextOptions(source_language="fr", target_language="es")
    request(one, folder, texts=alone).plan().run()
    assert [row["translation"] for row in rows_of(one)] == [rows[1]]
    assert rows[0] != rows[1]
    for name, more in (
        ("memory", {"memory": str(tmp_path / "memory")}),
        ("known", {"memory": str(tmp_path / "memory")}),
        ("job", {"deduplicate": "job"}),
    ):
        table = tmp_path / name / "other.parquet"
        table.parent.mkdir()
        shutil.copy(path, table)
        summary = request(table, folder, texts=texts, **options, **more).plan().run()
        assert [row["translation"] for row in rows_of(table)] == rows
        assert summary.manifest["remembered_texts"] == (3 if name == "known" else 0)


def test_the_same_request_resumes_and_a_different_one_is_refused(models, table):
    texts = TextOptions(source_language="en", target_language="es")
    made = request(table, models["nllb"].folder, texts=texts, text_columns=("text",))
    assert not made.plan().run().already_finished
    assert made.plan().run().already_finished
    other = TextOptions(source_language="en", target_language="fr")
    with pytest.raises(UserError, match="`target_language` was es and is now fr"):
        request(table, models["nllb"].folder, texts=other, text_columns=("text",)).plan()
    with pytest.raises(UserError, match="the model has changed"):
        request(table, models["opus"].folder, text_columns=("text",)).plan()


def test_spans_are_kept_and_n_best_is_written(models, table):
    decoding = Decoding(beam_size=4, n_best=2)
    made = request(table, models["opus"].folder, text_columns=("text",), decoding=decoding)
    made.plan().run()
    rows = rows_of(table)
    assert URL in rows[5]["translation"]
    assert len(rows[0]["translation_n_best"]) == 2
    assert not {"short", "long", "low_score"} & {f for r in rows for f in r["translation_flags"]}


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("nllb", {}, "`source_language` must be one language of the model, .* Received: none"),
        (
            "nllb",
            {"texts": TextOptions(source_language="en", target_language="zh")},
            "`target_language` must be one language of the model, such as zho_Hans, zho_Hant. "
            "Received: zh",
        ),
        (
            "opus",
            {"texts": TextOptions(target_language="fr")},
            "`target_language` is fr, but the model translates only to es",
        ),
        (
            "opus",
            {"target_language_column": "lang"},
            "`target_language_column` needs a model with several target languages",
        ),
        ("opus", {"target_language_column": "no"}, "has no column 'no'"),
        (
            "opus",
            {"source_language_column": "lang", "text_columns": ("text",)},
            "`source_language_column` needs a model with several source languages",
        ),
        (
            "nllb",
            {"source_language_column": "no", "text_columns": ("text",)},
            "`source_language_column` must be a column of strings; .* has no column 'no'",
        ),
        (
            "opus",
            {"texts": TextOptions(flags=("unrelated",))},
            "the flag unrelated needs a model whose dataset has an `--alignment-filter`",
        ),
        ("opus", {"engine": Engine(name="tensorflow")}, "Set `engine=ctranslate2`"),
        ("opus", {"engine": Engine(device="cuda")}, "`device=cuda` needs an NVIDIA GPU"),
        ("opus", {"decoding": Decoding(max_decoding_length=601)}, "must be at most 600"),
    ],
)
def test_invalid_options_are_refused_before_writing(models, table, model, options, message):
    if "target_language_column" not in options:
        options = {"text_columns": ("text",), **options}
    with pytest.raises(UserError, match=message):
        request(table, models[model].folder, **options).plan()
    assert not (table.parent / "out").exists()


@pytest.mark.parametrize("name", ["opus", "package"])
def test_a_remote_model_is_copied_to_the_cache(models, tmp_path, monkeypatch, name):
    local = models["argos" if name == "package" else "opus"].folder
    MemoryStore.clear()
    if name == "package":
        remote = "mem://bucket/en_es.argosmodel"
        package = pack_argos(local, tmp_path / "en_es.argosmodel")
        MemoryStore.put(remote, package.read_bytes())
    else:
        remote = f"mem://bucket/{local.name}"
        for path in local.rglob("*"):
            if path.is_file():
                name_in = path.relative_to(local).as_posix()
                MemoryStore.put(f"{remote}/{name_in}", path.read_bytes())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    staged = stage_model(remote, cache=tmp_path / "cache/tt", report=lambda line: None)
    assert stage_model(remote, cache=tmp_path / "cache/tt", report=pytest.fail) == staged
    assert load_about(staged).data == load_about(local).data, "the name contains the languages"
    source = tmp_path / "t" / "t.parquet"
    source.parent.mkdir()
    pq.write_table(pa.table({"text": ENGLISH[:3]}), source)
    request(source, remote).plan().run()
    expected = rows_of(source)
    shutil.rmtree(source.parent / "out")
    request(source, local).plan().run()
    assert rows_of(source) == expected
