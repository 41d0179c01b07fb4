"""The summary of a dataset as tables."""

from __future__ import annotations

from rich.console import Console

from cli.commands.blocks import (
    print_facts,
    print_heading,
    print_histogram,
    print_table,
    print_vocabularies,
)
from model.summaries.dataset import DatasetSummary
from model.summaries.pairs import TextSample

_SHAPES = 8  # of batches


def print_dataset(console: Console, summary: DatasetSummary) -> None:
    """Prints a dataset."""
    batches = summary.batches
    print_facts(
        console,
        [
            ("dataset", summary.folder),
            ("languages", f"{summary.source_language or '?'} to {summary.target_language or '?'}"),
            ("pairs", f"{summary.pairs_read:,} read, {summary.pairs_kept:,} kept"),
            ("made by", f"tt {summary.version}"),
        ],
    )
    print_heading(console, "Sources")
    print_table(
        console,
        ("name", "kind", "held out", "read", "kept", "rejected"),
        [
            (s.name, s.kind, s.is_held_out, s.read, s.kept, sum(s.rejected.values()))
            for s in summary.sources
        ],
    )
    print_heading(console, "Splits")
    print_table(
        console,
        ("split", "pairs", "shards", "source tokens", "target tokens", "longest"),
        [
            (s.name, s.pairs, s.shards, s.source_tokens, s.target_tokens, s.longest)
            for s in summary.splits
        ],
    )
    train = summary.splits[0]
    print_heading(console, f"Lengths of {train.name}{train.looked_at}")
    for side, lengths in zip(("source", "target"), train.fine_lengths, strict=True):
        print_histogram(console, side, lengths)
    print_histogram(console, "ratio", train.length_ratios)
    for rejected in summary.rejected:
        print_heading(console, f"Rejected: {rejected.reason}, {rejected.count:,}")
        for pair in rejected.examples:
            where = f"{pair.file or pair.corpus}:{pair.line}"
            text = f"the same as {pair.kept_instead}" if pair.kept_instead else ""
            shown = text if pair.source is None else f"{pair.source!r} | {pair.target!r}"
            print_facts(console, [(where, shown or "(its texts were not stored)")])
    print_vocabularies(console, summary.vocabularies)
    print_heading(console, f"How {batches.pairs:,} pairs of train are split")
    print_table(
        console,
        ("side", "words", "tokens a word", "characters a token", "used", "of", "unknown"),
        [
            (c.side, c.words, c.fertility, c.characters_per_token, c.used, c.vocabulary, c.unknown)
            for c in batches.coverage
        ],
    )
    for coverage in batches.coverage:
        words = ", ".join(f"{word} {length}" for word, length in coverage.longest_words)
        print_facts(console, [(f"most tokens, {coverage.side}", words)])
    unknown = ", ".join(f"{u.text!r} {u.count:,}" for u in summary.unknown[:20])
    print_facts(console, [("unknown in validation", unknown or "nothing")])
    print_heading(
        console,
        f"Padding in batches of {batches.batch_tokens:,} tokens: {batches.padding:.1%} in all",
    )
    print_table(
        console,
        ("rows", "source", "target", "batches", "pairs", "padding"),
        [
            (s.rows, s.source_length, s.target_length, s.batches, s.pairs, f"{s.padding:.1%}")
            for s in batches.shapes[:_SHAPES]
        ],
    )
    if len(batches.shapes) > _SHAPES:
        console.print(f"and {len(batches.shapes) - _SHAPES:,} more shapes")
    for sample in summary.samples:
        print_heading(console, f"{sample.split}: record {sample.record} of {sample.shard}")
        print_facts(
            console, [*_text_facts("source", sample.source), *_text_facts("target", sample.target)]
        )
    batch = batches.batch
    print_heading(console, f"{len(batch.source)} of the {batch.rows} rows of a padded batch")
    parts: list[tuple[str, list[list[str]] | list[list[int]]]] = [
        ("encoder", batch.source_tokens), ("encoder ids", batch.source),
        ("decoder ids", batch.decoder_input), ("labels", batch.labels),
        ("label tokens", batch.label_tokens),
    ]  # fmt: skip
    for name, rows in parts:
        texts = [" ".join(str(each) for each in row) for row in rows]
        print_facts(console, [("" if n else name, text) for n, text in enumerate(texts)])


def _text_facts(side: str, sample: TextSample) -> list[tuple[str, object]]:
    text = sample.decoded if sample.text is None else sample.text
    back = "comes back" if sample.comes_back else f"comes back otherwise: {sample.decoded}"
    return [
        (side, text),
        ("  tokens", " ".join(sample.tokens)),
        ("  ids", " ".join(map(str, sample.ids))),
        ("  round trip", back),
    ]
