"""`tt demo`: run the main commands on the embedded corpus, and score the model."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Annotated

import typer

from tt.cli.decorators import command
from tt.cli.errors import say
from tt.cli.shared_options import BEGUN, DEFAULT_INPUT, DEFAULT_TRANSLATED
from tt.model.errors import UserError
from tt.model.text.scores import bleu

STEPS = (
    ["preprocess"],
    ["train", "--strategy", "mirrored"],
    ["translate-batch", str(DEFAULT_INPUT)],
)

SHOWN = 8  # sentences
LEAST_BLEU = 90


@command(is_resumable=True)
def demo_command(
    folder: Annotated[
        Path, typer.Option(metavar="PATH", help="Write all files to this folder.")
    ] = Path("demo"),
) -> None:
    """Preprocess, train and translate with the embedded corpus.

    At the end, the demo shows and scores translations of held-out sentences.

    Example: tt demo --folder demo
    """
    from tt.cli.main import app
    from tt.pipelines.preprocess.ready_made import held_out_pairs
    from tt.pipelines.reports.evaluate import read_translations

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be created ({error.strerror or error}). Choose another `folder`"
        ) from error
    start = time.monotonic()
    with contextlib.chdir(folder):
        for arguments in STEPS:
            say(f"\n$ tt {' '.join(arguments)}")
            BEGUN.set(time.monotonic())  # each command prints its own duration
            if code := app(args=list(arguments), obj=[], standalone_mode=False):
                raise typer.Exit(code)
        translations = [text or "" for text in read_translations(str(DEFAULT_TRANSLATED))]
    pairs = held_out_pairs()
    if len(translations) != len(pairs):
        raise UserError(
            f"{folder / DEFAULT_INPUT} has {len(translations)} rows, but the embedded corpus has "
            f"{len(pairs)} held-out sentences. Delete {folder}, or choose another `folder`"
        )
    references = [pair.target for pair in pairs]
    typer.echo("\nHeld-out sentences (new combinations of words from training):")
    for i in range(0, len(pairs), len(pairs) // SHOWN):
        is_equal = translations[i] == references[i]
        typer.echo(f"  {pairs[i].source}\n  {'=' if is_equal else '~'} {translations[i]}")
        if not is_equal:
            typer.echo(f"    reference: {references[i]}")
    score = bleu(translations, references)
    baseline = bleu([pair.word_for_word for pair in pairs], references)
    equal = sum(a == b for a, b in zip(translations, references, strict=True))
    typer.echo(
        f"\nBLEU of {len(pairs)} held-out sentences: {score.value:.1f} "
        f"({equal} are identical to the reference)\n"
        f"BLEU of a word-for-word translation: {baseline.value:.1f}\n"
        f"Signature: {score.signature}\n"
        f"\ndataset/, run/, input.parquet and translated/ are in {folder.resolve()}.\n"
        f"The demo took {time.monotonic() - start:.0f} s."
    )
    if score.value < LEAST_BLEU:
        say(f"tt: the model should reach {LEAST_BLEU} BLEU, but has {score.value:.1f}")
        raise typer.Exit(1)
