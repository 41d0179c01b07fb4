"""The description of a plan in a dry run, and the progress of its run."""

import re
import time

import pytest
from block_reading import facts_of

from tt.pipelines.jobs import running
from tt.pipelines.preprocess import encode_steps
from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.job import PreprocessJob
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import TextPair

ONE_WORKER = ["--direct_num_workers=1"]


@pytest.fixture
def plan(tmp_path):
    return make_plan(tmp_path)


def make_plan(folder, *, held_out=False, **changes):
    for side in ("en", "de"):
        if not (folder / f"a.{side}").exists():  # Another write would change the identity.
            (folder / f"a.{side}").write_text("".join(f"{side} {i * i}\n" for i in range(40)))
    source = TextPair(str(folder / "a.en"), str(folder / "a.de"))
    values = {"output": str(folder / "out"), "vocabulary_size": 28, "shards": 3} | changes
    return plan_preprocess(
        sources=[source],
        validation_sources=[source] if held_out else [],
        options=PreprocessOptions(**values),
    )


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_run_reports_its_progress(plan, monkeypatch):
    """The run waits for a report before it begins and before it encodes, even on a busy machine."""
    monkeypatch.setattr(running, "listing_interval", lambda **_: 0.02)
    seen = []
    for owner, name, looks in ((running, "run_pipeline", 1), (encode_steps, "encode_unit", 2)):
        function = getattr(owner, name)

        def wrapper(*given, function=function, looks=looks, **named):
            wait_for(lambda: len({found.phase for found in seen}) >= looks)
            return function(*given, **named)

        monkeypatch.setattr(owner, name, wrapper)
    manifest = PreprocessJob(plan=plan, beam_arguments=ONE_WORKER).run(seen.append)
    assert manifest.lines_read == 40
    assert seen[0].describe() == "cutting: 0 of 1 sources"
    assert len({found.phase for found in seen}) > 1


# The plan.


def lines_of(plan, arguments=ONE_WORKER):
    """Return the facts of a dry run, by name."""
    return facts_of(PreprocessJob(plan=plan, beam_arguments=arguments).describe())


def test_dry_run_describes_the_plan(tmp_path):
    filters = Filters(min_tokens=2, max_length_ratio=9.0)
    lines = lines_of(make_plan(tmp_path, filters=filters, validation_fraction=0.05))
    assert not (tmp_path / "out").exists(), "a dry run writes nothing"
    assert lines["source 1"].startswith("text  ")
    assert f"{tmp_path}/a.en + {tmp_path}/a.de" in lines["source 1"]
    assert re.fullmatch(r"about 0\.\d+ MB of text, in units of up to 16,384 pairs", lines["input"])
    assert (lines["train"], lines["validation"]) == ("3 shards", "1 shard")
    assert lines["options"] == (
        "shards=3, vocabulary_size=28, min_tokens=2, max_length_ratio=9.0, validation_fraction=0.05"
    )
    assert lines["runner"] == "FnApiRunner, 1 worker, in_memory"
    assert lines["steps"].startswith("List units, Find held-out texts, ")
    assert lines["Beam options"] == " ".join(ONE_WORKER)
    assert lines["output"] == f"{tmp_path}/out"


def test_dry_run_shows_held_out_sources_and_the_default_runner(tmp_path):
    plan = make_plan(tmp_path, held_out=True)
    lines = lines_of(plan, [])
    assert lines["source 2"].endswith(" (held out)")
    assert re.fullmatch(r"FnApiRunner, \d+ workers?, multi_threading", lines["runner"])
