"""Sections on a translated folder."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

from pipelines.report.charts import bar_chart, charts, histogram_chart
from pipelines.report.page import Html, Section, details, element, facts, join, table
from pipelines.summaries.texts import ColumnSummary, TextExample
from pipelines.summaries.translated import TranslatedSummary


def translated_sections(found: TranslatedSummary) -> list[Section]:
    """Returns what a report says of translated tables."""
    return [
        _overview(found),
        Section("statuses", "Statuses and flags", join(map(_statuses, found.columns))),
        Section("lengths", "Lengths and scores", join(map(_lengths, found.columns))),
        Section("outliers", "Outliers", join(map(_outliers, found.columns))),
        Section("samples", "Sample translations", join(map(_samples, found.columns))),
        _work(found),
    ]


def _overview(found: TranslatedSummary) -> Section:
    languages = f"{found.languages.get('source', '')} → {found.languages.get('target', '')}"
    rows = [
        ("folder", found.folder),
        ("languages", languages),
        ("finished", found.is_finished),
        *([("too many rows failed", True)] if found.has_failed else []),
        ("files", found.files),
        ("rows", f"{found.rows:,} of {found.planned_rows:,}"),
        ("rows that failed", found.failed_rows),
        ("rows looked at below", found.looked_at),
        ("model", found.model_fingerprint[:16]),
    ]
    skipped = [[each.what, each.rows, each.reason] for each in found.skipped]
    options = {
        **found.options,
        **found.decoding,
        **{f"engine {k}": v for k, v in found.engine.items()},
    }
    return Section(
        "overview",
        "Overview",
        join(
            [
                facts(rows),
                table(["skipped", "rows", "reason"], skipped) if skipped else "",
                details("Options", table(["option", "value"], options.items())),
                details("Versions", table(["program", "version"], found.versions.items())),
            ]
        ),
    )  # fmt: skip


def _statuses(column: ColumnSummary) -> Html:
    figures = [
        bar_chart(title, [(name, count) for name, count in counts.items() if count], x_label="rows")
        for title, counts in (
            ("Rows by status", column.rows_by_status),
            ("Rows by flag", column.rows_by_flag),
        )
        if any(counts.values())
    ]
    examples: list[Html] = []
    for what, found in (
        ("status", column.examples_by_status),
        ("flag", column.examples_by_flag),
    ):
        examples += _details(what, found)
    return join([element("h3", f"Column {column.name}"), charts(*figures), *examples])


def _details(what: str, found: Mapping[str, Sequence[TextExample]]) -> list[Html]:
    return [
        details(f"Examples of the {what} {name}", _examples(texts))
        for name, texts in found.items()
        if texts
    ]


def _examples(texts: Iterable[TextExample], *, why: Iterable[str] = ()) -> Html:
    header = ["text", "translation", "status", "flags", "score", "file", "row"]
    rows = [
        [t.text, t.translation, t.status, ", ".join(t.flags), t.score, t.file, t.row] for t in texts
    ]
    if reasons := list(why):
        header.insert(2, "why")
        for row, reason in zip(rows, reasons, strict=True):
            row.insert(2, reason)
    return table(header, rows)


def _lengths(column: ColumnSummary) -> Html:
    sides = [("text", column.source_lengths), ("translation", column.target_lengths)]
    return join(
        [
            element("h3", f"Column {column.name}"),
            charts(
                histogram_chart("Lengths", sides, x_label="characters", is_log=True),
                histogram_chart(
                    "Characters of a translation for one of its text",
                    [("ratio", column.length_ratios)],
                    x_label="ratio",
                    is_log=True,
                ),
                histogram_chart(
                    "Scores",
                    [("score", column.scores)],
                    x_label="log-probability for a character",
                ),
            ),
        ]
    )


def _outliers(column: ColumnSummary) -> Html:
    kinds = (
        ("least probable for a character", column.least_probable),
        ("longest for its text", column.relatively_longest),
        ("shortest for its text", column.relatively_shortest),
    )
    reasons: dict[tuple[str | None, str | None], list[str]] = collections.defaultdict(list)
    texts: dict[tuple[str | None, str | None], TextExample] = {}
    for why, examples in kinds:
        for each in examples:
            key = each.text, each.translation
            reasons[key].append(why)
            texts.setdefault(key, each)
    heading = element("h3", f"Column {column.name}")
    if not texts:
        return join([heading, element("p", "There are none.", class_="note")])
    return join([heading, _examples(texts.values(), why=map(", ".join, reasons.values()))])


def _samples(column: ColumnSummary) -> Html:
    return join([element("h3", f"Column {column.name}"), _examples(column.samples)])


def _work(found: TranslatedSummary) -> Section:
    share = found.distinct_texts / found.texts if found.texts else None
    rate = found.rows / found.seconds if found.seconds else None
    workers = [
        [each.host, str(each.process), str(each.thread), each.units, each.rows, each.seconds]
        for each in found.workers
    ]
    return Section(
        "work",
        "Work and cost",
        join(
            [
                facts(
                    [
                        ("sentences to translate", found.texts),
                        ("distinct ones", found.distinct_texts),
                        ("share that is distinct", None if share is None else f"{share:.1%}"),
                        ("share of padding", f"{found.padding:.1%}"),
                        ("source tokens", found.work.source_tokens),
                        ("target tokens", found.work.target_tokens),
                        ("seconds of all workers", found.seconds),
                        ("rows a second of a worker", rate),
                        ("worker hours for a million rows", 1e6 / rate / 3600 if rate else None),
                        ("bytes written", found.output_bytes),
                    ]
                ),
                table(["host", "process", "thread", "units", "rows", "seconds"], workers),
            ]
        ),
    )
