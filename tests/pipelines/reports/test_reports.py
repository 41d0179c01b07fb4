"""Reports on every kind of folder in a browser, and requests that are refused."""

from __future__ import annotations

import copy
import json
import re
import shutil

import pytest
from chromium import Chromium, find_chromium
from command_line import last_error, run
from toy import toy_sentences
from translation_jobs import translate, write

from tt.model.errors import UserError
from tt.model.inspection.run import CHARTS, RunSummary, run_sections, runs_sections
from tt.pipelines.reports.page import render
from tt.pipelines.reports.report import write_attention
from tt.pipelines.reports.requests import AttentionRequest

SECTIONS = {
    "dataset": ["overview", "rejected", "lengths", "vocabulary", "padding", "samples"],
    "run": [
        "overview", "curves-steps", "translations", "schedule", "parameters", "vocabulary",
        "origin", "curves-minutes", "attention",
    ],
    "runs": ["results", "differences", "curves-steps", "curves-minutes"],
    "model": ["overview", "parameters", "vocabulary"],
    "translated": ["overview", "column-0", "work"],
    "attention": ["attention"],
}  # fmt: skip
HTML_TEXT = "<img src=x onerror=alert(1)> one"


def with_changes(run, **values):
    """Return a copy of a summary with other values."""
    changed = copy.copy(run)
    vars(changed).update(values)
    return changed


@pytest.fixture(scope="module")
def pages(tmp_path_factory, dataset, trained_toy, finish_run):
    """The pages for every kind of folder, by name."""
    folder = tmp_path_factory.mktemp("pages")
    write(folder / "in.parquet", {"text": [HTML_TEXT, *(a for a, _ in toy_sentences(5, 1)), None]})
    translate(folder / "in.parquet", folder / "out", text_columns=("text",))
    other = finish_run(folder / "other")
    config = json.loads((other / "config.json").read_text())
    config["training"]["label_smoothing"] = 0.25
    (other / "config.json").write_text(json.dumps(config))
    toy = trained_toy.run
    commands = {
        "dataset": ["report", dataset],
        "run": ["report", toy, "--sentence", "one two three"],
        "runs": ["report", toy, other],
        "model": ["report", toy / "model"],
        "translated": ["report", folder / "out"],
        "attention": ["attention", "one two", "--model", toy, "--reference", "two one"],
    }
    for name, command in commands.items():
        assert run(*command, "--output", folder / f"{name}.html") == 0
    return {name: folder / f"{name}.html" for name in commands}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_page_has_every_section_and_loads_nothing(pages, name):
    text = pages[name].read_text()
    assert re.findall(r'<section id="([^"]*)"', text) == SECTIONS[name]
    assert re.findall(r'<a href="#([^"]*)"', text) == SECTIONS[name]
    plain = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r'(src|href)="(?!#|data:)|https?://|url\((?!#)|@import', plain)


def body(sections, anchor):
    """Return the HTML of a section."""
    [section] = [each for each in sections if each.anchor == anchor]
    return render(section.blocks)


def test_texts_with_html_are_shown_as_texts(pages):
    text = pages["translated"].read_text()
    assert "&lt;img src=x onerror" in text
    assert "<img" not in text


def test_a_run_shows_how_sentences_were_translated(pages):
    text = pages["run"].read_text()
    for source, target in toy_sentences(3, seed=1):  # from the validation split
        assert f">{source}</td>" in text
        assert re.search(f"<td>reference</td><td[^>]*>{target}</td>", text)


def test_a_run_shows_its_time_its_command_and_its_machine(pages):
    text = pages["run"].read_text()
    assert text.count(">minutes<") == len(CHARTS)
    assert "(trained from Python)" in text
    for name in ("processor", "cores", "devices", "tensorflow", "python"):
        assert f"<dt>{name}</dt>" in text


def test_a_comparison_of_runs_shows_their_differences(pages):
    text = pages["runs"].read_text()
    assert "training.label_smoothing" in text
    assert "0.25" in text
    assert "model.norm" not in text


@pytest.fixture(scope="module")
def browser():
    if find_chromium() is None:
        pytest.skip("Chromium is missing: install Debian's package `chromium` to open the pages")
    with Chromium() as started:
        yield started


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
@pytest.mark.parametrize("name", SECTIONS)
def test_a_browser_shows_a_page(pages, browser, name, width, scheme):
    browser.open(pages[name], width=width, scheme=scheme)
    assert browser.complaints() == []
    asked = [url for url in browser.requests() if not url.startswith("data:")]
    assert asked == [pages[name].resolve().as_uri()]
    assert browser.value("document.documentElement.scrollWidth") <= width
    for section in SECTIONS[name]:
        assert browser.value(f"document.getElementById({section!r}).offsetHeight") > 40, section
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", paper)[:3])) / 3
    assert (brightness > 128) == (scheme == "light")


def test_layer_and_head_can_be_chosen(pages, browser):
    browser.open(pages["attention"])
    cells = "[...document.querySelectorAll('.map tbody td')].map((each) => each.title).join('|')"
    seen = set()
    for layer in ("0", "1"):
        for head in ("0", "1"):
            browser.value(
                f"(() => {{ const [, layer, head] = document.querySelectorAll('select');"
                f"layer.value = {layer!r}; head.value = {head!r};"
                "head.dispatchEvent(new Event('change')); })()"
            )
            seen.add(browser.value(cells))
    assert len(seen) == 4
    labels = "[...document.querySelectorAll('.map tbody th')].map((each) => each.textContent)"
    assert browser.value(labels) == ["_two", "_one", "<eos>"]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_of_one_head_is_smaller(trained_toy, tmp_path, capsys, ending):
    model = ("--model", trained_toy.run)
    assert run("attention", "one two", *model, "--output", tmp_path / f"all.{ending}") == 0
    assert capsys.readouterr().out == "two one\n"
    few = ("--layer", "1", "--head", "3", "--kind", "decoder", "--beam-size", "1")
    assert run("attention", "one two", *model, "--output", tmp_path / f"one.{ending}", *few) == 0
    begin = {"png": b"\x89PNG", "svg": b"<?xml"}[ending]
    one, everything = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "all"))
    assert one.startswith(begin)
    assert everything.startswith(begin)
    assert len(one) < len(everything)


def test_impossible_requests_give_a_one_line_error(dataset, trained_toy, tmp_path, capsys):
    toy = trained_toy.run
    exported = tmp_path / "ct2"
    exported.mkdir()
    for name in ("model.bin", "config.json"):
        (exported / name).write_text("{}")
    there = tmp_path / "there.html"
    there.write_text("mine")
    new = str(tmp_path / "new.html")
    stopped = shutil.copytree(toy, tmp_path / "stopped", ignore=shutil.ignore_patterns("model"))
    cases = {
        ("attention", "a", "--model", "nowhere", "--output", new): "no model folder at nowhere",
        ("attention", "a", "--model", exported, "--output", new): "is a CTranslate2 model, which",
        ("attention", "a", "--model", toy, "--layer", 9, "--output", new): "--layer must be 0 to 1",
        ("attention", "a", "--model", toy, "--output", "a.gif"): "--output must end in .html",
        ("attention", " ", "--model", toy, "--output", new): "SENTENCE is empty",
        ("attention", "a", "--model", toy, "--output", there): "or set --overwrite",
        ("report", dataset, toy, "--output", new): "covers one folder, or several runs",
        ("report", "nowhere", "--output", new): "nowhere does not exist",
        ("report", dataset, "--output", there): "or set --overwrite",
        ("report", dataset, "--output", tmp_path / "no/a.html"): "there is no writable folder",
        ("report", dataset, "--sentence", "a", "--output", new): "needs the report of a single run",
        ("report", stopped, "--sentence", "a", "--output", new): "stopped has no exported model",
    }  # fmt: skip
    for command, message in cases.items():
        assert run(*command) == 2, command
        assert message in last_error(capsys)
    for wrong, message in (({"layer": 9}, "`layer` must be 0 to 1"), ({}, "or set `overwrite`")):
        asked = AttentionRequest(sentence="a", model=str(toy), output=str(there), **wrong)
        with pytest.raises(UserError, match=message):
            write_attention(asked)
    assert there.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ct2", "stopped", "there.html"]


def test_too_long_names_and_invalid_utf8_give_a_one_line_error(
    dataset, trained_toy, tmp_path, capsys
):
    toy, new = trained_toy.run, tmp_path / "new.html"
    long, other = "a" * 300, "caf\udce9"  # how Python reads the byte E9 in a command
    too_long = "a" * 20 + "... is too long for a file system. Choose a shorter name"
    received = "must be UTF-8. Received: caf\\xe9"
    cases = {
        ("show", long): too_long,
        ("report", dataset, "--output", f"{long}.html"): too_long,
        ("attention", other, "--model", toy, "--output", new): f"SENTENCE {received}",
        ("attention", "one", "--reference", other, "--model", toy, "--output", new): (
            f"--reference {received}"
        ),
        ("report", toy, "--sentence", other, "--output", new): f"--sentence {received}",
    }  # fmt: skip
    for command, message in cases.items():
        assert run(*command) == 2, command
        assert message in last_error(capsys)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def compared(trained_toy, tmp_path):
    """Three runs: unchanged, with another dataset, and with a later nll but without scores."""
    runs = [shutil.copytree(trained_toy.run, tmp_path / name) for name in ("a", "b", "c")]
    config = json.loads((runs[1] / "config.json").read_text())
    config["data"]["fingerprint"] = config["dataset"] = "another"
    (runs[1] / "config.json").write_text(json.dumps(config))
    log = [json.loads(line) for line in (runs[0] / "train.jsonl").read_text().splitlines()]
    last = [line for line in log if line["kind"] == "validation"][-1]
    later = {**last, "step": last["step"] + 5, "nll": 0.125}
    del later["bleu"], later["chrf"]
    (runs[2] / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*log, later]))
    return [RunSummary(folder) for folder in runs], last


def test_runs_of_different_datasets_are_compared_with_a_note(compared):
    (first, other, third), _ = compared
    note = "These runs have different datasets"
    assert note in body(runs_sections([first, other]), "results")
    assert note not in body(runs_sections([first, third]), "results")


def test_attention_for_an_unknown_sentence_has_a_warning(trained_toy, tmp_path, capsys):
    page = tmp_path / "a.html"
    command = ("attention", "Привет мир", "--model", trained_toy.run, "--output", page)
    assert run(*command) == 0
    doubt = "9 of 9 letters and symbols are unknown to the model"
    assert f"tt: warning: this attention means little, because {doubt}" in capsys.readouterr().err
    assert f"This attention means little: {doubt}." in page.read_text()
    assert run("attention", "one two", *command[2:], "--overwrite") == 0
    assert "warning" not in capsys.readouterr().err
    assert "means little" not in page.read_text()


def test_resumed_runs_and_initial_models_are_shown(trained_toy):
    found = RunSummary(trained_toy.run)
    sections = run_sections(found)
    assert "Dotted" not in body(sections, "curves-steps")
    assert "began with" not in body(sections, "overview")
    resumed = {**found.starts[0], "step": 7}
    changed = with_changes(found, log=[resumed, *found.log], began_with="/models/first")
    sections = run_sections(changed)
    curves = body(sections, "curves-steps")
    assert "Dotted: the command resumed after a stop, at step 7." in curves
    assert curves.count("stroke-dasharray") == len(CHARTS)
    assert "<dt>began with</dt><dd>/models/first</dd>" in body(sections, "overview")
    different = body(runs_sections([found, changed]), "differences")
    assert "<td>began with</td><td>–</td><td>/models/first</td>" in different


def test_long_texts_are_cut_in_a_report(tmp_path):
    texts = [f"{number} " + "some words " * 27_000 for number in range(3)]
    write(tmp_path / "in.parquet", {"text": texts})
    translate(tmp_path / "in.parquet", tmp_path / "out")
    assert run("report", tmp_path / "out", "--output", tmp_path / "report.html") == 0
    page = (tmp_path / "report.html").read_text()
    assert f"{texts[0][:4000]} … (cut after 4,000 characters)" in page
    assert f" … ({len(texts[0]):,} characters)" in page
    assert texts[0][:4001] not in page
    assert len(page) < 500_000
