"""A user's own pipeline on Beam's portable job service."""

from __future__ import annotations

import collections
import json
import os

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from articles_pipeline import NotedLoader, articles, translate_articles
from toy import toy_sentences

from tt.model.transformer.search_options import Decoding

HERE = ["--runner=FnApiRunner"]
TWO_THREADS = [*HERE, "--direct_num_workers=2", "--direct_running_mode=multi_threading"]


def without_scores(line):
    """Return a row without its scores, whose rounding depends on the bundle."""
    return {name: each for name, each in json.loads(line).items() if not name.endswith("_score")}


def scores(lines):
    """Return all scores of rows."""
    rows = map(json.loads, lines)
    return [
        row[name] or 0.0 for row in rows for name in ("turned_title_score", "turned_body_score")
    ]


def test_two_steps_with_one_loader_have_one_model_per_process(tmp_path, portable, trained_toy):
    rows = articles([source for source, _ in toy_sentences(200, seed=13)])
    written = {}
    for name, flags in (
        ("here", HERE),
        ("threads", TWO_THREADS),
        ("portable", [*portable, "--job_endpoint=embed"]),
    ):
        loader = NotedLoader(
            str(trained_toy.run), Decoding(beam_size=2), log=str(tmp_path / f"{name}.log")
        )
        with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
            output = str(tmp_path / name / "rows")
            translate_articles(pipeline, rows, loader=loader, output=output)
        lines = [
            line for path in (tmp_path / name).iterdir() for line in path.read_text().splitlines()
        ]
        written[name] = sorted(lines, key=lambda line: json.loads(line)["id"])
        loads = collections.Counter((tmp_path / f"{name}.log").read_text().split())
        assert set(loads.values()) == {1}, "one model per process"
        is_in_this_process = name != "portable" or "--environment_type=LOOPBACK" in portable
        assert (set(loads) == {str(os.getpid())}) == is_in_this_process
    for other in ("threads", "portable"):
        assert list(map(without_scores, written[other])) == list(
            map(without_scores, written["here"])
        )
        assert scores(written[other]) == pytest.approx(scores(written["here"]), abs=1e-4)
    found = [json.loads(line) for line in written["here"]]
    assert [(row["id"], row["title"], row["body"]) for row in found] == [tuple(row) for row in rows]
    statuses = collections.Counter(row["turned_title_status"] for row in found)
    assert statuses["null"] == sum(row.title is None for row in rows)
    turned = sum(row["turned_title"] == " ".join((row["title"] or "").split()[::-1])
                 for row in found)  # fmt: skip
    assert turned > 100, "the model translates correctly"
