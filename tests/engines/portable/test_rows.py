"""A user's own pipeline on Beam's portable job service."""

from __future__ import annotations

import collections
import json

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from articles_pipeline import articles, translate_articles
from toy import toy_sentences

from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_loading import ModelLoader


def without_scores(line):
    """Return a row without its scores, whose rounding depends on the bundle."""
    return {name: each for name, each in json.loads(line).items() if not name.endswith("_score")}


def scores(lines):
    """Return all scores of rows."""
    rows = map(json.loads, lines)
    return [
        row[name] or 0.0 for row in rows for name in ("turned_title_score", "turned_body_score")
    ]


def test_two_steps_with_one_loader_write_the_rows_of_a_local_run(tmp_path, portable, trained_toy):
    rows = articles([source for source, _ in toy_sentences(200, seed=13)])
    written = {}
    for name, flags in (("here", ["--runner=FnApiRunner"]), ("portable", portable)):
        loader = ModelLoader(str(trained_toy.run), Decoding(beam_size=2))
        with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
            output = str(tmp_path / name / "rows")
            translate_articles(pipeline, rows, loader=loader, output=output)
        lines = [
            line for path in (tmp_path / name).iterdir() for line in path.read_text().splitlines()
        ]
        written[name] = sorted(lines, key=lambda line: json.loads(line)["id"])
    here, there = written["here"], written["portable"]
    assert list(map(without_scores, there)) == list(map(without_scores, here))
    assert scores(there) == pytest.approx(scores(here), abs=1e-4)
    found = [json.loads(line) for line in here]
    assert [(row["id"], row["title"], row["body"]) for row in found] == [tuple(row) for row in rows]
    statuses = collections.Counter(row["turned_title_status"] for row in found)
    assert statuses["null"] == sum(row.title is None for row in rows)
    turned = sum(row["turned_title"] == " ".join((row["title"] or "").split()[::-1])
                 for row in found)  # fmt: skip
    assert turned > 100, "the model translates correctly"
