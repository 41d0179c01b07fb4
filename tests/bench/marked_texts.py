"""Translate 150 texts in Markdown, HTML and plain text, and check their structure and words.

    .venv/bin/python tests/bench/marked_texts.py run --texts en-de
    .venv/bin/python tests/bench/marked_texts.py demo/run --texts en-es --engine ctranslate2

The texts in `tests/support/marked_texts` are product descriptions, support articles, README
sections, e-mails and messages of programs. Each of them lists the parts that a translation must
contain unchanged, the sentences without markup with their reference translations, and the
translations that each pair of inline tags may surround.

Prints how many translations are well-formed, how many parts are unchanged, how many inline tags
surround a right translation, BLEU of the sentences with and without markup, and the time. The
benchmark skips a tag if the translation contains no right translation of its words.
"""

from __future__ import annotations

import argparse
import collections
import html
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

from tt.model.engines.loading import load_translator
from tt.model.engines.translator import ENGINES, Engine
from tt.model.formats.model_folder import load_about
from tt.model.text.scores import bleu
from tt.model.transformer.search_options import Decoding
from tt.pipelines.texts.flags import Limits
from tt.pipelines.texts.markup.formats import FORMATS, PLAIN, detect_format
from tt.pipelines.texts.markup.regions import Role
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import TranslatedText
from tt.pipelines.texts.translating import translate_texts

_FOLDER = Path(__file__).resolve().parents[1] / "support" / "marked_texts"
_VOID = frozenset(
    "area base br col embed hr img input link meta source track wbr".split()  # noqa: SIM905
)


class _Tags(HTMLParser):
    """Records the tags of a text, and whether each closing tag closes the last open tag."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.is_well_formed = True
        self.found: collections.Counter[str] = collections.Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] += 1
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.is_well_formed &= bool(self.open) and self.open.pop() == tag


def describe(text: str, *, name: str) -> object:
    """Return the structure of a text: its tags, or the tokens of its Markdown."""
    if name == PLAIN:
        return None
    tags = _Tags()
    tags.feed(text)
    tags.close()
    well_formed = (tags.is_well_formed, tuple(tags.open))
    if name == "html":
        return well_formed, sorted(tags.found.items())
    blocks, marks = [], collections.Counter[str]()
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        blocks.append(token.type)
        marks.update(child.type for child in token.children or () if child.type != "text")
    del marks["softbreak"]  # a translation with few spaces has fewer line breaks
    return well_formed, blocks, sorted(marks.items())


def words_of(text: str, *, name: str) -> str:
    """Return the words of a text without its markup."""
    found = []
    for segment in FORMATS[name].find_segments(text):
        start, shown = segment.start, ""
        for mark in segment.marks:
            inside = text[mark.start : mark.end]
            is_word = mark.role is Role.CODE or inside.startswith("&lt;")
            word = re.sub(r"<[^>]*>|`", "", inside) if is_word else ""
            shown += text[start : mark.start] + (word or ("" if mark.role in PAIRS else " "))
            start = mark.end
        found.append(html.unescape(shown + text[start : segment.end]))
    return " ".join(" ".join(found).split())


PAIRS = (Role.OPEN, Role.CLOSE)


def others(text: str, sentences: list[list[str]]) -> list[str]:
    """Return the parts of a text that belong to no sentence, such as prices."""
    found = []
    for sentence, _ in sentences:
        before, _, rest = text.partition(sentence)
        if rest or text.endswith(sentence):
            found.append(before.strip())
            text = rest
    return [each for each in (*found, text.strip()) if each]


def count_tags(texts: list[dict], translations: list[str]) -> tuple[int, int, int, list[str]]:
    """Count the tags around a right translation, the tags that can have one, and all tags."""
    right = possible = count = 0
    wrong = []
    for text, translation in zip(texts, translations, strict=True):
        plain = words_of(translation, name=detect_format(text["text"])).lower()
        used: set[int] = set()
        for tag in text["tags"]:
            count += 1
            if not any(_contains(plain, target) for target in tag["targets"]):
                continue
            possible += 1
            most = 2 * len(re.findall(r"\w+", tag["source"])) + 1
            for found in re.finditer(
                f"(?={re.escape(tag['open'])}(.*?){re.escape(tag['close'])})", translation, re.S
            ):
                inside = html.unescape(re.sub(r"<[^>]*>|[*_]", "", found[1])).lower()
                is_short = len(re.findall(r"\w+", inside)) <= most
                if found.start() in used or not is_short:
                    continue
                if any(_contains(inside, target) for target in tag["targets"]):
                    used.add(found.start())
                    right += 1
                    break
            else:
                wrong.append(f"{text['id']} {tag['source']!r}: {translation}")
    return right, possible, count, wrong


def _contains(text: str, target: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(target.lower())}(?!\w)", text) is not None


def main() -> None:
    """Translate the texts, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument("--texts", choices=("en-de", "en-es"), required=True)
    parser.add_argument("--engine", choices=tuple(ENGINES), default="tensorflow")
    parser.add_argument("--placeholders", type=int, default=None)
    parser.add_argument("--show", action="store_true", help="Print each problem.")
    given = parser.parse_args()
    lines = (_FOLDER / f"{given.texts}.jsonl").read_text().splitlines()
    texts = [json.loads(line) for line in lines]
    translator = load_translator(given.model, decoding=Decoding(), engine=Engine(name=given.engine))
    about = load_about(given.model)

    def translate(some: list[str], **chosen: object) -> list[TranslatedText]:
        options = TextOptions(placeholders=given.placeholders, **chosen).for_model(about.data)
        cells = [text.encode() for text in some]
        found = translate_texts(
            cells, translator=translator, options=options, limits=Limits.of(about)
        )
        return found.translations

    sentences = [source for text in texts for source, _ in text["sentences"]]
    translate(sentences)  # loads the model before the measurement
    start = time.perf_counter()
    found = translate([text["text"] for text in texts])
    middle = time.perf_counter()
    translated = translate(sentences)
    end = time.perf_counter()
    translations = [each.translation or "" for each in found]
    well_formed = kept = wanted = 0
    for text, translation in zip(texts, translations, strict=True):
        source = text["text"]
        name = detect_format(source)
        same = describe(source, name=name) == describe(translation, name=name)
        well_formed += same
        if given.show and not same:
            print("STRUCTURE", text["id"], repr(source), repr(translation), sep="\n  ")
        for part, count in collections.Counter(text["keep"]).items():
            wanted += count
            kept += min(count, translation.count(part))
            if given.show and translation.count(part) < count:
                print("LOST", text["id"], repr(part), repr(source), repr(translation), sep="\n  ")
    right, possible, count, wrong = count_tags(texts, translations)
    if given.show:
        print(*(f"TAG {each}" for each in wrong), sep="\n")
    references = [" ".join(target for _, target in text["sentences"]) for text in texts]
    marked = []
    for text, translation in zip(texts, translations, strict=True):
        name = detect_format(text["text"])
        words = words_of(translation, name=name)
        for other in others(words_of(text["text"], name=name), text["sentences"]):
            words = words.replace(other, "", 1)
        marked.append(" ".join(words.split()))
    plain = iter(translated)
    bare = [" ".join(next(plain).translation or "" for _ in text["sentences"]) for text in texts]
    with_markup, without = (bleu(each, references).value for each in (marked, bare))
    if given.show:
        for text, one, other, reference in zip(texts, marked, bare, references, strict=True):
            if one != other:
                print("WORDS", text["id"], one, other, reference, sep="\n  ")
    flags = collections.Counter(flag for each in found for flag in each.flags)
    print(f"texts with the structure of the source  {well_formed:>6} of {len(texts)}")
    print(f"unchanged parts                         {kept:>6} of {wanted}")
    print(f"inline tags on the right words          {right:>6} of {possible} ({count} in all)")
    print(f"BLEU with and without markup            {with_markup:>6.2f} {without:.2f}")
    ratio = (middle - start) / (end - middle)
    print(f"time, relative to the bare sentences    {ratio:>6.2f}")
    print(f"flags  {dict(flags)}; statuses  {dict(collections.Counter(e.status for e in found))}")


if __name__ == "__main__":
    main()
