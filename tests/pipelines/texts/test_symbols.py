"""The flag `symbols`: losses of symbols, signs and identifiers."""

import dataclasses
import sys
import unicodedata

import pytest
from fakes import Reverser

from tt.model.engines.translator import Hypothesis, Translation, Work
from tt.model.text.spans import Protection
from tt.pipelines.texts.flags import Limits
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts

BEFORE, AFTER = "They wrote", "on the door."
SYMBOLS = [
    c
    for c in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(c) in ("Sm", "Sc", "Sk", "So", "No", "Nl", "Co")
]
RARE = [*"#*@\\_[]{}§¶†‡•※⁂‣‰′″⁋"]
IDENTIFIERS = [
    "@elena", "#tag", "#4711", "snake_case", "__init__", "x86_64", "camelCase", "getUserName",
    "PascalCaseName", "iPhone", "utf8", "h264", "v2", "a1b2c3d4", "3f786850e387550f", "9fceb02",
    "0xFF", "1.2.3", "v1.2", "10.0.0.1-rc1", "2.0.0-beta", "/usr/bin/env", "~/notes", "./run",
    "src/main/java", "C:\\Users\\ann", "file.txt", "README.md", "Node.js", ".gitignore", ".NET",
    "os.path.join", "HTTPS://EXAMPLE.COM/PATH", "WWW.EXAMPLE.COM", "example.com", "std::move",
    "localhost:8080", "run()", "<|im_start|>", "<|endoftext|>", "[INST]", "[/INST]", "<s>", "C++",
    "C#", "a=b", "--verbose", "-v", "10^6", "-5", "−5", "+5", "±5", "U+2192", "1e5", "B2B", "{x}",
    "550e8400-e29b-41d4-a716-446655440000", "ann@example.com", "$HOME", "%s", "5G", "q?a=1&b=2",
    "t.me/channel", "text/html", "&ref", "!VAR!", ":name", "CI/CD", "AT&T", "about:blank", "%%",
    "r/python", ":-)", "a && b", "// x", "www.Ab.Org", "photo.HEIC",
]  # fmt: skip


class Fixed(Reverser):
    """Returns the same translation for each source, or the source without some characters.

    The characters in `unknown` are not in the vocabulary.
    """

    def __init__(self, answer=None, *, without="", unknown=""):
        super().__init__()
        self.answer, self.without, self.unknown = answer, {*without, *unknown}, unknown

    def prepare(self, texts, **options):
        return [
            dataclasses.replace(each, unknown=tuple(c for c in each.text if c in self.unknown))
            for each in super().prepare(texts, **options)
        ]

    def translate(self, inputs):
        kept = ("".join(c for c in each.encoded if c not in self.without) for each in inputs)
        texts = [text if self.answer is None else self.answer for text in kept]
        found = [Translation((Hypothesis(text, -5.0, tokens=9),)) for text in texts]
        return found, Work(sources=len(texts))


def translate(sources, translator, *, limits=None, protect=True, **options):
    return translate_texts(
        [source.encode() for source in sources],
        translator=translator,
        options=TextOptions(protection=Protection(protect=protect), **{"texts": "plain"} | options),
        limits=limits,
    ).translations


def write(each):
    return f"{BEFORE} {each} {AFTER}"


def silent_losses(each_of, answer="Sie schrieben es auf die Tuer.", **options):
    """Return the strings that a translation lacks although it has no flag."""
    found = translate([write(each) for each in each_of], Fixed(answer), **options)
    return [
        each
        for each, made in zip(each_of, found, strict=True)
        if each not in made.translation and not made.flags
    ]


@pytest.mark.parametrize("protect", [True, False])
def test_lost_symbol_of_any_category_is_flagged(protect):
    assert len(SYMBOLS) > 100_000  # most of them are for private use
    some = [c for c in SYMBOLS if c < "\ue000"][::5] + SYMBOLS[:200] + SYMBOLS[-3:] + RARE
    assert not silent_losses(some, protect=protect)


@pytest.mark.parametrize("texts", ["plain", "markdown", "html"])
def test_lost_identifier_is_flagged(texts):
    assert not silent_losses(IDENTIFIERS, texts=texts)
    assert not silent_losses(IDENTIFIERS, texts=texts, protect=False)


@pytest.mark.parametrize("texts", ["plain", "markdown", "html"])
def test_symbols_and_identifiers_that_stay_are_not_flagged(texts):
    marks = [c for c in "→≥½±★™²≠©№°" if texts == "plain" or c not in "*_"]
    kept = [write(each) for each in [*IDENTIFIERS, *marks]]
    found = translate(kept, Fixed(), texts=texts, flags=("symbols",))
    assert [text for text, made in zip(kept, found, strict=True) if made.flags] == []


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("Tom & Ann said: “No – never…”", "Tom und Ann sagten: «Nein — niemals...»"),
        ("It is 20% of $5 and €7, or £3.", "20 Prozent von 5 Dollar und 7 Euro, also 3 GBP."),
        ("It rose 5% and/or more.", "它上升了5％或更多。"),
        ("The `word' is Tom´s.", "Das „Wort“ ist von Tom."),
        ("It was -5 degrees, the 3rd time since the 1980s.", "Minus 5 Grad, das 3. Mal seit 1980."),
        ("On 22.11.2024, 1.234.567 people", "Am 22. November 2024, 1,234,567 Menschen"),
        ("The area is 5 m² and 10 ㎡.", "Die Fläche ist 5 m2 und 10 m2."),
        ("The FedEx driver met McDonald on YouTube", "Der FedEx-Fahrer traf Mc Donald auf Youtube"),
        ("He said U.S. and e.g. Mr. Lee at 5 p.m.", "Er sagte USA und z. B. Herr Lee um 17 Uhr"),
        ("On the A-5, state-of-the-art (good), 1990-1995", "Auf der A5, modern [gut], 1990–1995"),
    ],
)  # fmt: skip
def test_changes_of_translators_are_not_flagged(source, translation):
    [made] = translate([source], Fixed(translation), flags=("symbols",), protect=False)
    assert (made.translation, made.flags) == (translation, ())


def test_script_of_the_target_may_spell_out_brands():
    source = "She reads WeChat and calls getName today."
    for answer, flags in (("她看微信，今天调用getName。", ()), ("她看微信。", ("pieces",))):
        limits = Limits(source_language="en", target_language="zh", target_script="Han")
        [made] = translate([source], Fixed(answer), limits=limits)
        assert made.flags == flags
    [made] = translate(["She reads WeChat."], Fixed("Sie liest."), limits=Limits())
    assert made.flags == ("symbols",)


def test_capitals_inside_an_irish_word_are_no_identifier():
    limits = Limits(source_language="ga", target_language="en", target_script="Latin")
    [made] = translate(["Tá an tAcht i bhFeidhm."], Fixed("The Act is in force."), limits=limits)
    assert made.flags == ()


def test_lost_character_that_the_vocabulary_lacks_is_flagged():
    texts = ["I like the word 犬 a lot.", "I like the word ř a lot.", "I like the word s a lot."]
    found = translate(texts, Fixed(unknown="犬ř"), flags=("symbols",))
    assert [made.flags for made in found] == [("symbols",), ("symbols",), ()]
    assert found[0].translation == "I like the word  a lot."
    [made] = translate(texts[:1], Fixed("Ich mag das Wort 犬 sehr.", unknown="犬"))
    assert made.flags == ()


@pytest.mark.parametrize("text", ["Door ★★★☆☆", "★ ★ ★ Door", "※ ※ Door ①", "→→→→→→ Go ≥≥≥≥≥"])
def test_unknown_symbols_do_not_keep_letters_from_translation(text):
    unknown = "".join(c for c in text if not (c.isalpha() or c.isspace()))
    [made] = translate([text], Fixed(unknown=unknown), protect=False)
    assert (made.status, made.flags) == ("ok", ("symbols",))
    assert [word for word in made.translation.split() if word.isalpha()] == [
        word for word in text.split() if word.isalpha()
    ]
    [made] = translate([text], Fixed("Tür", unknown=text))
    assert made.status == "unknown"  # letters still decide
