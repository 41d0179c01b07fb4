"""Options that accept several strings also accept a single string or a list."""

import dataclasses

import pytest
from translation_jobs import request, translate, write

from tt.model.text.spans import Protection
from tt.model.training.request import TrainRequest
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest
from tt.pipelines.reports.requests import EvaluateRequest, ReportRequest
from tt.pipelines.streams.job import StreamRequest
from tt.pipelines.streams.options import StreamOptions
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.translate.job import TranslateRequest
from tt.pipelines.translate.options import TranslateOptions

TRANSLATE = TranslateOptions(input=("in.parquet",), output="out")
STREAM = StreamOptions(input="kafka://host:9092/in", output="kafka://host:9092/out", group="g")
CASES = [
    *(
        (TRANSLATE, name)
        for name in ("input", "text_columns", "key", "keep_columns", "drop_columns")
    ),
    (TextOptions(), "flags"),
    (TranslateRequest(options=TRANSLATE, model="run"), "beam"),
    *(
        (PreprocessOptions(output="out"), name)
        for name in (
            "vocabulary", "vocabulary_type", "user_symbols", "exclude", "protect_regex", "subsets",
        )
    ),
    *(
        (PreprocessRequest(options=PreprocessOptions(output="out")), name)
        for name in (
            "corpora", "source", "target", "validation", "weights", "beam_arguments",
        )
    ),
    *(
        (EvaluateRequest(translations="a", references=("b",)), name)
        for name in ("references", "reference_columns")
    ),
    *((ReportRequest(folders=("run",)), name) for name in ("folders", "sentences")),
    (STREAM, "fields"),
    (StreamRequest(options=STREAM, model="run"), "beam"),
    (TrainRequest(dataset="dataset", run="run"), "devices"),
    (Protection(), "protect_regex"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name"), CASES, ids=[f"{type(each).__name__}.{name}" for each, name in CASES]
)
def test_a_string_or_a_list_becomes_a_tuple(options, name):
    value = {"flags": "copy", "vocabulary_type": "bpe"}.get(name, "words")
    for given in (value, [value]):
        assert getattr(dataclasses.replace(options, **{name: given}), name) == (value,)


def test_the_cases_cover_every_tuple_of_strings():
    named = {(type(options), name) for options, name in CASES}
    found = {
        (kind, field.name)
        for kind in {kind for kind, _ in named}
        for field in dataclasses.fields(kind)
        if field.type == "tuple[str, ...]"
    }
    assert named == found


def test_text_columns_accepts_a_single_name(tmp_path):
    source = write(tmp_path / "in.parquet", {"id": ["x"], "body": ["ab"]})
    job = request(source, tmp_path / "out", text_columns="body").plan()
    assert job.table.fields == ("body",)
    translate(source, tmp_path / "out", text_columns="body")
