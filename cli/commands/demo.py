"""`tt demo`: the three commands on the embedded corpus, and what came of them."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.decorators import command
from cli.errors import say
from cli.shared_options import DEFAULT_INPUT, DEFAULT_TRANSLATED
from model.errors import UserError
from model.text.scores import bleu

EXAMPLES, TRANSLATED_EXAMPLES = Path("examples.parquet"), Path("translated_examples")
STEPS = (
    ["preprocess"],
    ["train", "--strategy", "mirrored"],
    ["translate-batch", str(DEFAULT_INPUT)],
    ["translate-batch", str(EXAMPLES), "--output", str(TRANSLATED_EXAMPLES)],
)

# What stands in texts beside plain sentences.
EXAMPLE_TEXTS = (
    "The women bought red apples yesterday. Where did you find the key? My brother likes tea.",
    "{name} will buy a new car tomorrow. They found %s last night https://example.com/a?b=1.",
    "<p>They sold <b>the red car</b> last week.</p>\n<p>We will paint <i>the kitchen</i>.</p>",
)
_COLUMN = 46  # characters of a column of the table

SHOWN = 8  # sentences
LEAST_BLEU = 90


@command(is_resumable=True)
def demo_command(
    folder: Annotated[Path, typer.Option(help="Where everything is written.")] = Path("demo"),
) -> None:
    """Run the three commands on the embedded corpus.

    It shows and scores translations of held-out sentences at the end.

    Example: tt demo --folder demo
    """
    from cli.main import app

    def run_command(arguments: Sequence[str]) -> None:
        code = app(args=list(arguments), obj=[], standalone_mode=False)
        if code:
            raise typer.Exit(code)

    run_demo(folder, run_command=run_command)


def run_demo(folder: Path, *, run_command: Callable[[Sequence[str]], None]) -> None:
    """Runs preprocess, train and translate-batch in a folder, and prints translations and scores.

    The folder is made if need be; a demo that was interrupted there goes on.

    Raises:
      UserError: The folder is a file, or a step failed.
      typer.Exit: With code 1, where the model does not reach `LEAST_BLEU`.
    """
    from pipelines.preprocess.ready_made import held_out_pairs
    from pipelines.reports.evaluate import read_translations

    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder with `folder`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made ({error.strerror or error}): name another `folder`"
        ) from error
    start = time.monotonic()
    with contextlib.chdir(folder):
        _write_examples(EXAMPLES)
        for arguments in STEPS:
            say(f"\n$ tt {' '.join(arguments)}")
            run_command(arguments)
        translations = [text or "" for text in read_translations(str(DEFAULT_TRANSLATED))]
        examples = [text or "" for text in read_translations(str(TRANSLATED_EXAMPLES))]
    pairs = held_out_pairs()
    if len(translations) != len(pairs):
        raise UserError(
            f"{folder / DEFAULT_INPUT} has {len(translations)} rows, the held-out part "
            f"{len(pairs)}: remove {folder}, or choose another `folder`"
        )
    references = [pair.target for pair in pairs]
    typer.echo("\nHeld-out sentences (no subject, verb and object of theirs was trained together):")
    for i in range(0, len(pairs), len(pairs) // SHOWN):
        mark = "=" if translations[i] == references[i] else "~"
        typer.echo(f"  {pairs[i].source}\n  {mark} {translations[i]}")
        if mark == "~":
            typer.echo(f"    reference: {references[i]}")
    word_for_word = [pair.word_for_word for pair in pairs]
    model_score, signature = bleu(translations, references)
    baseline_score, _ = bleu(word_for_word, references)
    equal = sum(a == b for a, b in zip(translations, references, strict=True))
    typer.echo(
        f"\nBLEU of {len(pairs)} held-out sentences: {model_score:.1f} "
        f"({equal} are the reference to the letter)\n"
        f"BLEU of a word-for-word lexicon:     {baseline_score:.1f}\n"
        f"Signature: {signature}\n"
        f"\nEverything lies in {folder.resolve()}:\n"
        "  dataset/       TFRecords, vocabulary, rejected pairs, dataset.json\n"
        "  run/           checkpoints, TensorBoard logs, model/ (all that translation needs)\n"
        "  input.parquet  held-out English sentences\n"
        "  translated/    the same rows with their translations\n"
        f"  {EXAMPLES} and {TRANSLATED_EXAMPLES}/    the texts below\n"
        f"It took {time.monotonic() - start:.0f} s.\n"
        "\nSeveral sentences, placeholders and HTML:"
    )
    for line in _side_by_side([("English", "Spanish"), *zip(EXAMPLE_TEXTS, examples, strict=True)]):
        typer.echo(f"  {line}".rstrip())
    if model_score < LEAST_BLEU:
        say(f"tt: a model that works reaches {LEAST_BLEU} BLEU here; this one does not")
        raise typer.Exit(1)
    typer.echo("\nNext:")
    for line in _next_steps(folder):
        typer.echo(f"  {line}")


def _next_steps(folder: Path) -> Iterator[str]:
    """Yields lines with commands for what a user does after the demo."""
    binaries = Path(sys.executable).parent
    if shutil.which("tt") is None and (binaries / "activate").exists():
        yield f". {shlex.quote(str(binaries / 'activate'))}"
        yield "    puts tt on the PATH of this shell"
    yield f"tt report {shlex.quote(str(folder / 'run'))} --output report.html"
    yield "    shows how the demo's model was trained"
    yield "tt init"
    yield "    writes the options for your own texts, in their folder"


def _write_examples(path: Path) -> None:
    """Writes the texts of the last table, unless they are there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        pq.write_table(pa.table({"english": EXAMPLE_TEXTS}), path)


def _side_by_side(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yields the lines of a table of two columns, a blank one between rows."""
    for number, row in enumerate(rows):
        if number:
            yield ""
        cells = [
            [part for line in text.split("\n") for part in textwrap.wrap(line, _COLUMN) or [""]]
            for text in row
        ]
        for left, right in itertools.zip_longest(*cells, fillvalue=""):
            yield f"{left:<{_COLUMN}}  {right}".rstrip()
