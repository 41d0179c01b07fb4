"""Count the protected spans that survive translation: URLs, tags, variables, prices and others.

    .venv/bin/python tests/bench/spans.py demo/run
    .venv/bin/python tests/bench/spans.py run test.en test.de --source-language en

Makes 2,000 texts from the sentences of a test set, and adds one to three spans of all kinds at the
same places of the text and the reference. Without files, the texts are held-out sentences of the
embedded corpus. Prints how many spans the translations contain, and BLEU, with and without
protection, and then BLEU of the unchanged sentences, and of the sentences in capitals. The model
must translate the language pair of the test set.
"""

from __future__ import annotations

import argparse
import collections
import random
from pathlib import Path

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import Engine
from tt.model.formats.model_folder import load_about
from tt.model.text.scores import bleu
from tt.model.text.spans import Protection
from tt.model.transformer.search_options import Decoding
from tt.pipelines.preprocess.ready_made import held_out_pairs
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import TranslatedText, translate_texts

# Spans are added before or after a sentence, or around its first word.
_BEFORE = ("{name}: ", "$USER: ", ":warning: ", "12:30:45 ", "#{id} ", "{{count}} – ", "%(user)s: ")
_BEHIND = (
    " https://example.com/a?b=c#d", " (www.example.org)", " me@example.com", " %s", " [%1$d]",
    " 5 km/h", " 12,345.67", " $5.20", " 20 €", " +34 600 123 456", " `rm -rf x`", " 😀", " 👩‍🚀🇪🇸",
    " &amp;", " 2024-11-22", " ${HOME}", " 192.168.0.1",
)  # fmt: skip
_AROUND = (("<b>", "</b>"), ('<a href="/x?y=1">', "</a>"), ("<i>", "</i>"), ("&lt;", "&gt;"))


def add_spans(source: str, target: str, *, generator: random.Random) -> tuple[str, str]:
    """Add one to three spans at the same places of both sides."""
    kinds = generator.sample(["before", "behind", "around"], generator.randint(1, 3))
    sides = [source, target]
    if "around" in kinds:
        start, end = generator.choice(_AROUND)
        sides = [" ".join([start + w[0] + end, *w[1:]]) for w in map(str.split, sides)]
    if "before" in kinds:
        span = generator.choice(_BEFORE)
        sides = [span + side for side in sides]
    if "behind" in kinds:
        span = generator.choice(_BEHIND)
        sides = [side[:-1] + span + side[-1] for side in sides]
    return sides[0], sides[1]


def count_spans(texts: list[str], translations: list[str]) -> tuple[int, int]:
    """Count the spans of texts, and the spans that are equally frequent in the translations."""
    wanted = kept = 0
    for text, translation in zip(texts, translations, strict=True):
        spans = collections.Counter(span.replacement for span in Protection().find(text))
        wanted += spans.total()
        kept += sum(min(count, translation.count(span)) for span, count in spans.items())
    return wanted, kept


def read_test_set(files: list[Path]) -> tuple[list[str], list[str]]:
    """Return sources and references, of the embedded corpus if no files are given."""
    if files:
        sources, references = (path.read_text("utf-8").splitlines() for path in files)
        return sources, references
    pairs = held_out_pairs()
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument("files", nargs="*", type=Path, help="Read source and reference here.")
    parser.add_argument("--source-language", default="en")
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--texts", type=int, default=2000)
    given = parser.parse_args()
    sources, targets = read_test_set(given.files)
    translator = load_translator(
        given.model, decoding=Decoding(beam_size=given.beam_size), engine=Engine()
    )
    data = load_about(given.model).data

    def translate(texts: list[str], **options: object) -> list[TranslatedText]:
        chosen = TextOptions(source_language=given.source_language, **options).for_model(data)
        cells = [text.encode() for text in texts]
        found = translate_texts(cells, translator=translator, options=chosen)
        return found.translations

    generator = random.Random(1)
    places = [i % len(sources) for i in range(given.texts)]
    made = [add_spans(sources[i], targets[i], generator=generator) for i in places]
    texts, expected = [source for source, _ in made], [target for _, target in made]
    placed = TextOptions().for_model(data).placeholders
    print(f"{len(texts):,} texts; the model itself places up to {placed} spans per sentence")
    print(f"{'':<28}{'spans':>7}{'kept':>8}{'BLEU':>8}  in pieces")
    off = {"protection": Protection(protect=False)}
    for name, options in (("protected", {}), ("around all", {"placeholders": 0}), ("not", off)):
        found = translate(texts, **options)
        translations = [each.translation or "" for each in found]
        wanted, kept = count_spans(texts, translations)
        in_pieces = sum("pieces" in each.flags for each in found)
        score = bleu(translations, expected).value
        print(f"{name:<28}{wanted:>7,}{kept / wanted:>8.2%}{score:>8.2f}  {in_pieces:,}")
    for name, options in (("unchanged sentences", {}), ("the same, not protected", off)):
        translations = [each.translation or "" for each in translate(sources, **options)]
        score = bleu(translations, targets).value
        print(f"{name:<43}{score:>8.2f}")
    shouted, expected = [text.upper() for text in sources], [text.upper() for text in targets]
    for name, options in (("in capitals", {}), ("the same, kept", {"capitals": "keep"})):
        translations = [each.translation or "" for each in translate(shouted, **options)]
        score = bleu(translations, expected).value
        print(f"{name:<43}{score:>8.2f}")


if __name__ == "__main__":
    main()
