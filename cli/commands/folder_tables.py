"""Summaries of models, runs, translations and tfds: names as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from cli.commands.blocks import (
    print_facts,
    print_heading,
    print_histogram,
    print_table,
    print_vocabularies,
    show_bytes,
)
from model.formats.model_card import describe_origin
from model.summaries.models import ModelSummary, PartSize
from model.summaries.run import RunSummary
from pipelines.runners.formatting import begin_of, format_seconds
from pipelines.summaries.texts import ColumnSummary, TextExample
from pipelines.summaries.tfds_names import TfdsSubset
from pipelines.summaries.translated import TranslatedSummary

_REPORTS = 8  # of a curve


def print_model(console: Console, summary: ModelSummary) -> None:
    """Prints a model."""
    about, data = summary.about, summary.about.data
    languages = f"{data.source_language or '?'} to {data.target_language or '?'}"
    trained = f"{data.pairs:,} pairs of {', '.join(data.corpora)}" if data.pairs else None
    print_facts(
        console,
        [
            ("model", summary.folder),
            ("format", summary.format),
            ("languages", languages),
            ("trained on", trained),
            ("began with", describe_origin(about.began_with)),
            ("updates", f"{about.steps:,}" if about.steps else None),
            ("mean of", ", ".join(about.checkpoints)),
            ("written by", _pairs(about.versions)),
            ("files", ", ".join(f"{k} {show_bytes(v)}" for k, v in summary.files.items())),
        ],
    )
    heading = "Architecture" if summary.format == "model" else "Settings"
    _print_options(console, heading, summary.config)
    _print_parts(console, summary.parts, summary.parameters)
    _print_options(console, "Tokens", summary.tokenization)
    _print_options(console, "Training", about.recipe)
    print_vocabularies(console, summary.vocabularies)


def _state_of(run: RunSummary) -> str:
    if run.is_finished:
        return "finished"
    if run.is_under_training:
        return "being trained now"
    return f"stopped: the same command goes on from update {run.saved_step:,}"


def print_run(console: Console, run: RunSummary) -> None:
    """Prints a run."""
    log = run.log
    last = log.starts[-1] if log.starts else None
    took = format_seconds(log.seconds) if log.seconds else None
    print_facts(
        console,
        [
            ("run", run.folder),
            ("state", _state_of(run)),
            ("updates", f"{max(log.step, run.saved_step):,} of {run.steps:,}"),
            ("time", took),
            ("dataset", run.dataset_source.get("folder")),
            ("corpora", ", ".join(run.data.corpora)),
            ("pairs", f"{run.data.pairs:,}"),
            ("replicas", run.replicas),
            ("began with", run.began_with),
            ("command", last.command if last else None),
            ("versions", _pairs(last.versions) if last else None),
            ("machine", _pairs(last.machine) if last else None),
            ("checkpoints", ", ".join([*run.last_checkpoints, *run.best_checkpoints])),
            ("models", ", ".join(f"{m.name} ({m.steps:,} updates)" for m in run.models)),
        ],
    )
    _print_options(console, "Architecture", run.model)
    _print_parts(console, run.parts, run.parameters)
    _print_options(console, "Training", run.training)
    print_heading(console, "Learning rate")
    print_table(
        console,
        ("step", "rate"),
        [(point.step, point.rate) for point in _some(run.schedule, _REPORTS)],
    )
    for kind in ("train", "validation"):
        curves = [curve for curve in log.curves if curve.kind == kind]
        if not curves:
            continue
        print_heading(console, f"Reports of {kind}")
        values = {curve.name: dict(zip(curve.steps, curve.values, strict=True)) for curve in curves}
        steps = sorted({step for curve in curves for step in curve.steps})
        names = [name for name in values if not name.startswith("source_tokens")]
        print_table(
            console,
            ("step", *(name.replace("_", " ") for name in names)),
            [
                (step, *(_value(name, values[name].get(step)) for name in names))
                for step in _some(steps, 8)
            ],
        )
    for sample in log.samples:
        print_heading(console, sample.source)
        print_facts(
            console,
            [
                ("reference", sample.reference),
                *zip(map("{:,}".format, sample.steps), sample.translations, strict=True),
            ],
        )
    print_vocabularies(console, run.vocabularies)


def _value(name: str, value: float | None) -> object:
    """Returns a value of a curve for a table: shares as percent, as `tt train` prints them."""
    if value is None:
        return ""
    return f"{value:.1%}" if name in ("accuracy", "padding") else value


def _some(items: Sequence[Any], count: int) -> list[Any]:
    """Returns some items, evenly from the first to the last."""
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def _print_options(console: Console, heading: str, values: dict[str, Any]) -> None:
    if values:
        print_heading(console, heading)
        shown = {k: " ".join(map(str, v)) if isinstance(v, list | tuple) else v
                 for k, v in values.items()}  # fmt: skip
        print_facts(console, [(k.replace("_", " "), v) for k, v in shown.items()])


def _print_parts(console: Console, parts: Sequence[PartSize], parameters: int) -> None:
    if parts:
        print_heading(console, "Parameters")
        rows = [(part.name, part.parameters) for part in parts]
        print_table(console, ("part", "parameters"), [*rows, ("all", parameters)])


def _pairs(values: dict[str, Any]) -> str:
    shown = {k: " and ".join(v) if isinstance(v, list) else v for k, v in values.items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())


def print_translated(console: Console, summary: TranslatedSummary) -> None:
    """Prints a translated folder."""
    texts, distinct = summary.texts, summary.distinct_texts
    saved = f" ({1 - distinct / texts:.1%} saved)" if texts else ""
    state = "finished" if summary.is_finished else "not finished"
    print_facts(
        console,
        [
            ("translated", summary.folder),
            ("state", state + (", too many rows failed" if summary.has_failed else "")),
            ("languages", " to ".join(summary.languages.values())),
            ("rows", f"{summary.rows:,} of {summary.planned_rows:,}"),
            ("units", f"{summary.units:,} of {summary.planned_units:,}"),
            ("failed rows", f"{summary.failed_rows:,}"),
            ("size", show_bytes(summary.output_bytes)),
            ("sentences", f"{texts:,}, {distinct:,} translated{saved}"),
            ("padding", f"{summary.padding:.1%}"),
            ("engine", _pairs(summary.engine)),
            ("versions", _pairs(summary.versions)),
        ],
    )
    for skipped in summary.skipped:
        rows = "" if skipped.rows is None else f"{skipped.rows:,} rows: "
        print_facts(console, [(f"skipped {skipped.what}", f"{rows}{skipped.reason}")])
    print_heading(console, "Time by worker")
    print_table(
        console,
        ("host", "process", "units", "rows", "seconds"),
        [(w.host, str(w.process), w.units, w.rows, w.seconds) for w in summary.workers],
    )
    for column in summary.columns:
        _print_column(console, column)


def _print_column(console: Console, column: ColumnSummary) -> None:
    print_heading(console, f"Column {column.name}, {column.texts:,} texts looked at")
    counts = [
        *(("status", name, count) for name, count in column.rows_by_status.items()),
        *(("flag", name, count) for name, count in column.rows_by_flag.items()),
    ]
    print_table(console, ("", "name", "rows"), counts)
    print_histogram(console, "lengths of texts", column.source_lengths)
    print_histogram(console, "lengths of translations", column.target_lengths)
    print_histogram(console, "ratio of lengths", column.length_ratios)
    print_histogram(console, "scores", column.scores)
    groups = {
        "Samples": column.samples,
        **{f"Status {name}": found for name, found in column.examples_by_status.items()},
        **{f"Flag {name}": found for name, found in column.examples_by_flag.items()},
        "Least probable": column.least_probable,
        "Longest for their texts": column.relatively_longest,
        "Shortest for their texts": column.relatively_shortest,
    }
    shown: set[tuple[str, int]] = set()
    for heading, examples in groups.items():
        if examples:
            print_heading(console, heading)
            print_facts(console, [fact for e in examples for fact in _example_facts(e, shown)])


def _example_facts(example: TextExample, shown: set[tuple[str, int]]) -> list[tuple[str, object]]:
    """Returns what is said of an example: the texts only once, and of long ones the beginning."""
    score = "" if example.score is None else f"  score {example.score:.3g}"
    where = f"{example.file}, row {example.row:,}{score}"
    if (place := (example.file, example.row)) in shown:
        return [("where", f"{where}  (its texts stand above)")]
    shown.add(place)
    return [("where", where), ("text", _short(example.text)),
            ("translation", _short(example.translation)), ("error", example.error)]  # fmt: skip


def _short(text: str | None) -> str | None:
    return text and (begin_of(text) or text)


def _part(name: str, sizes: dict[str, int]) -> str:
    return f"{name} ({show_bytes(sizes[name])})" if sizes.get(name) else name


def print_tfds(console: Console, subsets: Sequence[TfdsSubset]) -> None:
    """Prints what a tfds: name offers."""
    rows = []
    for each in subsets:
        splits = ", ".join(f"{s.name} {s.pairs:,} ({show_bytes(s.bytes)})" for s in each.splits)
        parts = "; ".join(
            f"{split}: {', '.join(_part(name, each.part_bytes) for name in names)}"
            for split, names in each.parts.items()
        )
        size = show_bytes(each.download_bytes) if each.download_bytes else ""
        unknown = ", ".join(each.split_names)
        rows.append(
            (f"tfds:{each.name}", " ".join(each.languages), each.is_prepared, splits or unknown,
             size, parts)
        )  # fmt: skip
    columns = ("name", "languages", "prepared here", "splits", "download", "made of")
    used = [i for i in range(len(columns)) if i in (0, 2) or any(row[i] for row in rows)]
    print_table(console, [columns[i] for i in used], [[row[i] for i in used] for row in rows])
