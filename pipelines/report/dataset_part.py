"""Sections on a dataset folder."""

from __future__ import annotations

from model.summaries.dataset import DatasetSummary, SplitSummary
from model.summaries.histograms import with_same_bins
from model.summaries.pairs import TextSample
from pipelines.report.charts import bar_chart, charts, histogram_chart
from pipelines.report.page import Html, Section, details, element, facts, join, table

_SHAPES = 12  # that are shown, those of most positions
_BARS = 40  # of a histogram of lengths, at most


def dataset_sections(found: DatasetSummary) -> list[Section]:
    """Returns what a report says of a dataset."""
    return [
        _overview(found),
        _rejected(found),
        _lengths(found),
        _vocabulary(found),
        _padding(found),
        _samples(found),
    ]


def _overview(found: DatasetSummary) -> Section:
    rows = [
        [each.name, each.kind, each.is_held_out, each.read, each.kept] for each in found.sources
    ]
    splits = [
        [each.name, each.pairs, each.shards, each.source_tokens, each.target_tokens, each.longest]
        for each in found.splits
    ]
    header = ["split", "pairs", "shards", "source tokens", "target tokens", "longest"]
    return Section(
        "sources",
        "Sources",
        join(
            [
                facts(
                    [
                        ("folder", found.folder),
                        ("languages", f"{found.source_language} → {found.target_language}"),
                        ("pairs read", found.pairs_read),
                        ("pairs kept", found.pairs_kept),
                        ("written by tt", found.version),
                        ("fingerprint", found.fingerprint[:16]),
                    ]
                ),
                table(["source", "kind", "held out", "pairs read", "kept"], rows),
                table(header, splits),
                details("Options", table(["option", "value"], found.options.items())),
            ]
        ),
    )


def _rejected(found: DatasetSummary) -> Section:
    if not found.rejected:
        return Section("rejected", "Rejected pairs", element("p", "No pair was rejected."))
    order = sorted(found.rejected, key=lambda each: -each.count)
    chart = bar_chart(
        "Rejected pairs by reason", [(each.reason, each.count) for each in order], x_label="pairs"
    )
    examples = [
        details(
            f"{each.reason}: {each.count:,}",
            table(
                ["corpus", "line", "source", "target", "kept instead"],
                [[e.corpus, e.line, e.source, e.target, e.kept_instead] for e in each.examples],
            ),
        )
        for each in order
    ]
    return Section("rejected", "Rejected pairs", join([charts(chart), *examples]))


def _lengths(found: DatasetSummary) -> Section:
    figures = []
    for each in found.splits:
        if each.fine_lengths:
            figures.append(_lengths_chart(each))
        if each.length_ratios is not None:
            figures.append(
                histogram_chart(
                    f"Target tokens for a source token, {each.name}",
                    [(each.name, each.length_ratios)],
                    x_label="ratio",
                    is_log=True,
                )
            )
    return Section("lengths", "Lengths", charts(*figures))


def _lengths_chart(split: SplitSummary) -> Html:
    source, target = with_same_bins(split.fine_lengths, bins=_BARS)
    label = "tokens"
    if max(lengths.edges[-1] for lengths in split.fine_lengths) > source.edges[-1]:
        label += f"; the last bar: {source.edges[-2]:g} and more"
    title = f"Lengths, {split.name}{split.looked_at}"
    return histogram_chart(title, [("source", source), ("target", target)], x_label=label)


def _vocabulary(found: DatasetSummary) -> Section:
    header = [
        "side", "tokens a word", "characters a token", "tokens used", "of", "unknown",
        "pairs with unknown",
    ]  # fmt: skip
    coverage = [
        [
            each.side, each.fertility, each.characters_per_token, each.used, each.vocabulary,
            each.unknown, each.pairs_with_unknown,
        ]
        for each in found.batches.coverage
    ]  # fmt: skip
    longest = [
        details(f"Words of most tokens, {each.side}", table(["word", "tokens"], each.longest_words))
        for each in found.batches.coverage
    ]
    unknown = [[each.side, each.text, each.count] for each in found.unknown]
    lengths = [
        histogram_chart(f"Characters a token, {each.side}", [(each.side, each.lengths)],
                        x_label="characters")
        for each in found.vocabularies
    ]  # fmt: skip
    said = table(["side", "text", "times"], unknown) if unknown else element("p", "None.")
    return Section(
        "vocabulary",
        "Vocabulary",
        join(
            [
                element("p", f"Of {found.batches.pairs:,} training pairs:"),
                table(header, coverage),
                *longest,
                element("h3", "What the vocabulary has no token for, in validation texts"),
                said,
                charts(*lengths),
            ]
        ),
    )


def _padding(found: DatasetSummary) -> Section:
    rows = [
        [each.rows, each.source_length, each.target_length, each.batches, f"{each.padding:.1%}"]
        for each in found.batches.shapes[:_SHAPES]
    ]
    return Section(
        "padding",
        "Padding",
        join(
            [
                facts(
                    [
                        ("tokens a batch, at most", found.batches.batch_tokens),
                        ("share of padding", f"{found.batches.padding:.1%}"),
                    ]
                ),
                table(["rows", "source length", "target length", "batches", "padding"], rows),
            ]
        ),
    )


def _samples(found: DatasetSummary) -> Section:
    said = "Of training pairs the ids alone are stored: their texts are made of these."
    parts: list[Html] = [element("p", said, class_="note")]
    for each in found.samples:
        sides = (each.source, each.target)
        rows = [
            ["text", *(side.decoded if side.text is None else side.text for side in sides)],
            ["tokens", *(" ".join(side.tokens) for side in sides)],
            ["comes back", *map(_way_back, sides)],
        ]
        parts += [
            element("h3", f"{each.split}: record {each.record:,} of {each.shard}"),
            table(["", "source", "target"], rows),
        ]
    return Section("samples", "Sample pairs", join(parts))


def _way_back(sample: TextSample) -> str:
    if sample.comes_back:
        return "yes"
    return "as other ids" if sample.text is None else f"as another text: {sample.decoded}"
