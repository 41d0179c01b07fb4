"""Protected spans: the parts of a text that no model should translate.

`KINDS` lists the kinds of spans. A translation must contain the spans of its source unchanged. A
model can get a span as a placeholder, which is a single token.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import regex

from tt.model.errors import UserError, checked
from tt.model.text.patterns import (
    ASIAN_HOST,
    CODE,
    DATA,
    DECIMAL,
    DIGEST,
    DOMAINS,
    END,
    EXPRESSION,
    GAP,
    ID,
    IDENTIFIER,
    LABELS,
    LETTER,
    NAME,
    NOT_WITHIN,
    NUMBER,
    OPTION,
    PATH,
    PHONE,
    PICTURE,
    PICTURES,
    PRICE,
    SHORT_UNIT,
    START,
    TAG,
    UNIT,
    UNSPACED,
    URL_REST,
    VERSION,
    WORD,
    describe_bad_pattern,
    find_matches,
    json_pattern,
)

# Placeholders replace the spans of a text in their order. Text that looks like a placeholder is
# protected as a span, so it cannot be confused with one.
BRACKET = "⟦"
PLACEHOLDERS = tuple(f"{BRACKET}{number}⟧" for number in range(1, 9))
PLACEHOLDER = re.compile(rf"{BRACKET}\d+⟧")  # also matches numbers above 8

# Classes of kinds. Markup accompanies words and is not a word. Kinds of symbols are spans only in a
# translation, and only if the vocabulary lacks the symbol.
TEXT, MARKUP, SYMBOL = "text", "markup", "symbol"

# The kinds of a group are searched only in texts that match its first pattern, and only at places
# that match its second pattern. The kinds of tokens contain no white space, so they are
# searched only in the tokens that match. A search for all kinds at all characters takes ten times
# as long.
TOKEN = "token"
_DOT = r"\.[^\s!-/:-@\[-^`{-~]{2}"  # before two letters, digits or "_"
_GROUPS = {
    "sign": (
        rf"[`&{{$%*\[\\{BRACKET}]|<[%|<?]|#\w|:[a-z+]|@@|<[A-Za-z]+_|<｜",
        r"[<`&{$%*\[\\⟦#@:]",
    ),
    MARKUP: (f"[<{PICTURES}]|[:;=8]['()|DP-]", r"[<:;=8\p{Extended_Pictographic}\p{RI}0-9\#*]"),
    TOKEN: (
        rf"[_\\+=#@^]|(?<!<)/(?!>)|-[->]|[a-z][A-Z]|[A-Za-z0-9_][(\[]|::|{_DOT}|[A-Za-z]:[A-Za-z0-9?]"
        r"|[A-Za-z][0-9]|[0-9][A-Fa-fx]|:[0-9A-Fa-f]{0,4}:|[0-9]\.[0-9]+\.[0-9]"
        r"|(?<!\S)-[A-Za-z](?![^\s.,;:!?])|[0-9]\.x",
        rf"(?<![A-Za-z0-9])(?:[{WORD}#/.~?@+\\<>=!^*%:-]|[{UNSPACED}]{{1,20}}\.)",
    ),
    "figure": ("[0-9]", r"(?<![0-9])[-−+±(0-9\p{Sc}A-Z§]"),
    "expression": (
        r"[=!<>+*/-]=|[=-]> |&&|[a-z]\([0-9.-]|[A-Za-z]<[A-Za-z]|[A-Z][:/ -]{0,2}[0-9]"
        r"|[0-9] ?[+−×÷·*=] ?[0-9]",
        r"(?<![A-Za-z0-9])[A-Za-z0-9]",
    ),
    SYMBOL: ("", ""),
}
# These patterns match every text with a span, and few other texts, so most texts need no search.
# RE2 can parse the first one. The second one is the fastest for `re`: it begins with a single set.
_ALWAYS = rf"<`&{{$%*\[\\{BRACKET}#@/_+=^0-9{PICTURES}"
MAYBE_SPAN = (
    rf"[{_ALWAYS}]|{_DOT}|:[a-z'()|DP:?-]|;['()|DP-]|[A-Za-z0-9_]\(|-[->]|[a-z][A-Z]"
    r"|(?:^|\s)-[A-Za-z](?:[\s.,;:!?]|$)"
)
_MAYBE_SPAN = re.compile(
    rf"[{_ALWAYS}.:;(A-Z-](?:(?<=[{_ALWAYS}])|(?<={_DOT[:2]}){_DOT[2:]}|(?<=:)[a-z'()|DP:?-]"
    r"|(?<=;)['()|DP-]|(?<=[A-Za-z0-9_]\()|(?<=-)[->]|(?<=[a-z][A-Z])|(?<=(?<!\S)-)[A-Za-z](?![^\s.,;:!?]))"
)


class Kind(NamedTuple):
    """A kind of spans.

    Attributes:
      name: The name in the documentation.
      group: A key of `_GROUPS`.
      pattern: The pattern, in linear time. If several kinds match at a place, the first one wins.
      examples: Spans of this kind.
      others: Similar texts without spans.
    """

    name: str
    group: str
    pattern: str
    examples: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def category(self) -> str:
        """The class: TEXT, MARKUP or SYMBOL."""
        return self.group if self.group in (MARKUP, SYMBOL) else TEXT


KINDS = (
    Kind("JSON and XML payloads", "sign",
        r'(?=\{\s*+"[^"\n]*+"\s*+:|\[\s*+(?:\{\s*+"|"[^"\n]*+"\s*+,))'
        + json_pattern(4)
        + r"|<(?P<element>[A-Za-z]+_[A-Za-z_]+)>[^<>]*+</(?P=element)>",
        ('{"name": "get_weather", "at": [1, {"x": null}]}', '<tool_call>{"a": "b c"}</tool_call>'),
        ('He said ["no"]',)),
    Kind("placeholders of `tt`", "sign", PLACEHOLDER.pattern, ("⟦1⟧",)),
    Kind("code in backquotes", "sign",
        r"```.+?```|``[^\n]+?``|`[^`\n]+`",
        ("`ls -l. Now`", "``a `b` c``", "```\nx\n```")),
    Kind("entities", "sign",
        r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6});",
        ("&amp;", "&#39;", "&#x27;"),
        ("AT&T; R&D",)),
    Kind("tokens of chats, and marks of footnotes", "sign",
        r"<\|[^|<>\s]{1,64}+\|>|<｜[^｜<>\s]{1,64}+｜>|\[[ xX]\](?![\[(:])"
        r"|\[/?(?:b|i|u|s|img|url|quote|code|color|size)(?:=[^\[\]\n]{1,200}+)?\]"
        r"(?:(?<=/[a-z]{1,5}\])|(?=[^\[\]\n]{0,200}\[/))|<</?[A-Z][A-Z_]{1,40}+>>"
        r"|\[/?(?:INST|SYS|CLS|SEP|MASK|PAD|UNK|BOS|EOS|[A-Z]{2,20}(?:_[A-Z]{2,20}){1,5})\]"
        r"|\[\^?[0-9]{1,3}(?:(?:, ?|[–-])[0-9]{1,3}){0,9}\]",
        ("<|im_start|>", "[INST]", "[/INST]", "<<SYS>>", "[TOOL_CALLS]", "[1, 2]", "[x]"),
        ("[LAUGHTER]", "[SIC]")),
    Kind("placeholders of templates", "sign",
        r"\$\{[A-Z_]{1,64}+\}/[\w./-]*\w|[$\#%@]?(?:\{[^{}\n]{0,64}\}|\{\{[^{}\n]{0,64}\}\}"
        r"|\{\{\{[^{}\n]{0,64}\}\}\})"
        r"|\{\s?[A-Za-z0-9_]{1,40}+, ?(?:plural|select|selectordinal),"
        r"(?:[^{}]{1,60}+\{[^{}]{0,200}+\}){1,8}"
        r"[^{}]{0,9}+\}|@@[A-Za-z0-9_]{1,40}+@@|\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]){1,4}\][*+?]?"
        r"|<%[^%\n]{0,200}+%>|<\?=[^<>\n]{0,200}+>"
        r"|\[\[[^\[\]\n]{1,64}+\]\]|\*\|[A-Z][A-Z0-9_:]{0,64}+\|\*"
        rf"|\#\#?[A-Za-z_][{NAME}-]{{0,40}}+\#\#?",
        ("{name}", "{{count}}", "${x}", "%{n}", "<%= name %>", "[[name]]", "*|FNAME|*", "#NAME#",
         "@@x@@", "{n, plural, one {# item} other {# items}}", "[a-z]+")),
    Kind("formulas", "sign",
        rf"(?<![{WORD}$\\])\$(?:[A-Za-z][^$\s]{{0,63}}+"
        rf"|(?=[^$\n]{{0,200}}[\\^_=+])(?!\s)[^$\n]{{1,200}}+)(?<!\s)\$(?![{WORD}$])"
        r"|\$\$[^$]{1,2000}+\$\$|\\\([^\n\\()]{1,200}+\\\)|\\\[[^\n\\\[\]]{1,200}+\\\]"
        r"|\\[ux][0-9a-fA-F]{2,6}+|\\[nrt](?![a-z])|\\[dDwWsSbB](?![A-Za-z])[*+?]?|\\[0-9]{1,2}(?![0-9])|\\[A-Za-z]{2,20}+(?:\{[^{}\n]{0,64}+\}){0,4}",
        ("$x$", "$a^2 + b^2$", "$$E = mc^2$$", r"\(x + y\)", r"\alpha", r"\textbf{x}", r"\d+",
         r"\1")),
    Kind("variables", "sign",
        rf"\${ID}(?:->{ID}|\[['{NAME}]+\])*(?:\({ID}\)|[.:]{ID}|/[{NAME}.-]{{0,99}}[{NAME}])*"
        rf"|\$\({ID}\)"  # $VAR, $user->name, $(x)
        rf"|%\({ID}\)[-+\#0]*[0-9]*(?:\.[0-9]+)?[sdifuxXeEgGcr]"  # %(name)s
        r"|(?<![0-9%])%(?:[0-9]{1,2}\$)?[-+\#0]*[0-9]*(?:\.[0-9]+)?(?:hh?|ll?|[zjtLq])?"
        rf"[sdifuxXeEgGcp@YmHMSBbAajyZ](?![{LETTER}])"  # %s, %5.2f, %1$s, %Y
        r"|%<[A-Za-z_]{1,40}+>[sdfx]"  # %<name>d
        rf"|(?<![0-9%])%[0-9]{{1,2}}(?![{WORD}%])"  # %1
        rf"|(?<![0-9%])%{{1,2}}[A-Za-z_]{{2,40}}+%{{1,2}}"
        rf"(?:\\[{NAME}.-]{{0,99}}[{NAME}])*"  # %PATH%
        rf"|(?<![{WORD}:]):[a-z+-][{NAME}+-]{{0,63}}:(?![{WORD}:])",  # :name:
        ("%s", "%1$s", "%5.2f", "%(n)s", "%1", "%PATH%", "%<n>d", "$HOME", "$user->name", "$t(key)",
         "$HOME/.bashrc", ":smile:", ":+1:"),
        ("50%discount is not a format", "He said: why?")),
    Kind("tags", MARKUP, TAG, ("<b>", '<a href="x.html">', "</p>", "<br/>", "<!-- x -->"),
        ("a <b then c> d",)),
    Kind("emoji", MARKUP,
        rf"(?:{PICTURE}(?:\u200d{PICTURE})*|\p{{RI}}\p{{RI}}|[0-9\#*]\ufe0f?\u20e3)+",
        ("😀👍🏽", "👨‍👩‍👧", "🇩🇪", "❤️")),
    Kind("emoticons", MARKUP,
        r"(?<!\S)(?:[:=]'?-?[()|DP]|;-?\)|8-\))(?![^\s.,!?])",
        (":-)", ";)", ":(", "8-)", "=)"),
        ("(see: this)", "so:)")),
    Kind("URLs", TOKEN,
        rf"(?<![A-Za-z])[a-z]{{2,15}}+://{ASIAN_HOST}(?:[:/]{URL_REST})?"
        r"|(?<![A-Za-z])(?i:(?:jdbc:)?[a-z][a-z0-9+.-]{1,15}+://|www\.|mailto:|(?:tel|sms):\+?(?=[0-9])|urn:[a-z]+:"
        rf"|data:[a-z]+/[a-z0-9.+-]+[;,]|doi:|arxiv:|magnet:\?|javascript:(?=[a-z])|about:(?=blank|config)){URL_REST}|(?<![{WORD}:/.])//"
        rf"(?=[{NAME}-]+[./][{NAME}-]){URL_REST}|{START}10\.[0-9]{{4,9}}/{URL_REST}",
        ("https://example.com/a?b=c", "HTTPS://EXAMPLE.COM/A", "www.example.org", "//host/path",
         "mailto:me@example.com", "jdbc:postgresql://db/app",
         "data:image/png;base64,iVBORw0KGgo=", "doi:10.1000/182", "http://例子.中国/a"),
        ("and//or", "He said: // nothing")),
    Kind("mail addresses", TOKEN,
        rf"(?<![{WORD}.+%-])[{WORD}.+%-]{{1,64}}@[{WORD}-]{{1,63}}(?:\.[{WORD}-]{{1,63}})+"
        rf"(?::[{NAME}.~/-]{{1,99}}[{NAME}])?|{START}[a-z]{{1,32}}@localhost{END}",
        ("me@example.com", "a.b+c@d.co.uk", "git@github.com:user/repo.git")),
    Kind("hosts", TOKEN,
        rf"(?:(?<![{WORD}.@-]){LABELS}(?:(?:{DOMAINS})|[a-z]{{2}}(?=[:/][{WORD}]))"
        rf"|(?<![{WORD}.@-])(?:[\p{{Lu}}0-9-]{{2,63}}+\.){{1,8}}(?:COM|ORG|NET|EDU|GOV|INFO|DE|UK)"
        rf"|{START}localhost|(?<![{WORD}{UNSPACED}]){ASIAN_HOST})(?::[0-9]{{2,5}}+)?(?:[/?]{URL_REST}|/)?(?![{WORD}@-])",
        ("example.com", "exämple.de", "EXAMPLE.COM", "bit.ly/x1", "localhost:8080", "한국.com"),
        ("The end.Then it was over e.g. here.", "u.a. in z.B. Rom")),
    Kind("names of accounts", TOKEN,
        rf"(?<![{WORD}@./+-])@[{LETTER}][{WORD}-]{{0,62}}+(?:[./@][{WORD}-]{{1,63}}+){{0,4}}",
        ("@name", "@types/node", "@ann@example.social")),
    Kind("topics, colors and numbers after a hash sign", TOKEN,
        rf"(?<![{WORD}&\#/])\#(?:(?:[A-Z]{{1,5}}-[0-9]{{1,9}}+|[a-z]{{1,30}}(?:-[a-z0-9]{{1,30}}){{1,9}}){END}"
        rf"|[{WORD}]{{1,100}}+"
        rf"|[{UNSPACED}{WORD}]{{1,30}}+(?![^\s.,!?。、！？\#]))",
        ("#tag", "#4711", "#1e90ff", "#fff", "#日本"),
        ("C # D", "# Title")),
    Kind("file names and paths", TOKEN, PATH,
        ("/usr/bin/env", "~/notes", "./run", "../a/b.c", "src/main/java", r"C:\Users\ann",
         "file.txt", "Node.js", r"C:\Program Files\x.exe", r"\\server\share", "README.md",
         ".gitignore", "/etc", "C:/Windows", "*.py", "r/python", "index.html#top", "x.py::test_y"),
        ("and/or", "his/her/their dogs", "AC/DC")),
    Kind("digests and numbers in base 16", TOKEN, DIGEST,
        ("550e8400-e29b-41d4-a716-446655440000", "3f786850e387550f", "9fceb02", "0xFF", "U+2192",
         "00:1A:2B:3C:4D:5E", "2001:db8::1", "::1", "0b1010", "sha256:3f786850e387550f",
         "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig")),
    Kind("identifiers of programs", TOKEN, IDENTIFIER,
        ("snake_case", "__init__", "MAX_LENGTH", "camelCase", "getUserName", "PascalCaseName",
         "run()", "std::move", "os.path.join", "a->b", "C++", ".NET", "x^2", "sha256", "utf8",
         "i18n", "foo.bar(x)", "f(x)", "a[i]", "getHTTPResponse"),
        ("YouTube, iPhone, eBay, McDonald and GmbH", "__bold__", "Autor_innen")),
    Kind("options, assignments, keys and media types", TOKEN, OPTION,
        ("--verbose", "--limit=5", "-v", "a=b", "?a=1&b=2", "x>=3.8", "Ctrl+C", "text/html"),
        ("a = b", "well - no -- yes")),
    Kind("data in base 64, and keys of services", TOKEN, DATA,
        ("SGVsbG8gV29ybGQh1234", "aGVsbG8gYm95cw==", "sk-abc123DEF456", "QUJDRA==", "B08N5WRWNW")),
    Kind("versions", TOKEN, VERSION,
        ("1.2.3", "v1.12", "v2", "2.0.0-beta", "10.0.0.1-rc1", "192.168.0.1", ">=1.2",
         "^1.2.3", "1.0.0+build.5", "1.2.x")),
    Kind("dates with times", "figure",
        rf"{NOT_WITHIN}[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}})?"
        rf"(?:[.,][0-9]{{1,9}})?(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?{END}",
        ("2024-01-01T10:00:00Z", "2024-01-01 10:00")),
    Kind("expressions of programs, and calculations", "expression", EXPRESSION,
        ("a == b", "x => x + 1", "2 + 2 = 4", "3÷4", "rgb(255, 0, 0)", "Map<K, V>"),
        ("a = b", "3 - 4", "he said => no")),
    Kind("numbers of standards and books", "expression",
        rf"{START}(?:ISBN|ISSN|PMID|RFC|ISO|DIN|IEEE|RAL)(?:-1[03])?(?:: ?|/|{GAP})"
        rf"[0-9](?:[0-9./-]{{0,20}}[0-9Xx])?{END}",
        ("ISBN 978-3-16-148410-0", "RFC 2616", "PMID: 12345")),
    Kind("phone numbers and accounts", "figure", PHONE,
        ("+34 600 123 456", "(030) 123 45 67", "555-123-4567", "DE89 3704 0044 0532 0130 00")),
    Kind("sizes", "figure",
        rf"{NOT_WITHIN}(?:480|720|1080|1440|2160)[ip]{END}"
        rf"|{NOT_WITHIN}{DECIMAL}(?:(?:[x×]| [x×] ){DECIMAL}){{1,3}}(?:{GAP}{UNIT})?"
        rf"(?![{WORD}^]|[.,/][0-9])",
        ("12x40", "3.5 × 4 cm", "1920×1080", "1080p"),
        ("10000x",)),
    Kind("prices", "figure", PRICE,
        ("$5.20", "US$5", "-$5", "20 €", "USD 10", "EUR 10 M", "31€90", "5,-")),
    Kind("measurements", "figure",
        rf"{NOT_WITHIN}[-−+±]?{NUMBER}{GAP}{UNIT}"
        rf"|{NOT_WITHIN}[-−+±]?{NUMBER}(?:{SHORT_UNIT}|{GAP}{SHORT_UNIT}(?!\s*\w))",
        ("5 km/h", "-3 °C", "50 %", "3l", "15-20 kg"),
        ("1 mi amigo, 3 ha ha, 10 W street, 5 l of it", "20 minutes later")),
    Kind("codes", "figure", CODE,
        ("LM-204", "OR-2024-118/B", "AB12345", "HTTP/1.1", "CO2", "H2O", "B2B", "A4", "5G", "§ 5"),
        ("USB-C, T-shirts, 3D-Drucker", "12345xy")),
    Kind("signs and powers", "figure",
        rf"(?<![^\s(\[„“\"'\p{{Han}}])(?<![0-9]\s)[-−±+]{DECIMAL}(?![{WORD}:/-]|[.,][0-9])"
        rf"|{NOT_WITHIN}{DECIMAL}(?:[eE][+-]?[0-9]{{1,4}}|(?:[x×·]10)?\^\{{?-?[0-9]{{1,4}}\}}?){END}",
        ("-5", "−5", "±5", "+5", "1e5", "10^6"),
        ("1990 -1995, 3-4",)),
    Kind("numbers with five digits or more", "figure",
        rf"{NOT_WITHIN}[0-9]{{1,3}}(?: [0-9]{{3}}){{2,4}}(?![{WORD}]|[.,]?[0-9])"
        rf"|{NOT_WITHIN}(?<![0-9][:/'’\u00a0\u202f-])[0-9](?:[.,:/'’\u00a0\u202f-]?[0-9]){{4,}}+"
        rf"(?![{LETTER}])",
        ("12345", "1,234,567", "1 000 000", "2024-11-22", "12\u202f345"),
        ("In 2010, 2011 and 2012", "100; the 1990s; 19:30; page 3 of 5; 3.14; 1/2")),
    Kind("fractions, powers and numerals", SYMBOL,
        r"(?<![0-9])[0-9]{1,9}+[¼-¾⅐-⅞]|(?<![\p{L}\p{N}.,/])[0-9]{1,4}+(?:/[0-9]{1,4}+){1,2}(?![\p{L}/])|(?<![\p{L}\p{N}])(?:(?:[0-9]{1,9}+|\p{L}{1,2})[⁰¹²³⁴-ⁿ₀-ₜ]{1,9}+){1,6}"
        r"\p{L}{0,2}(?!\p{L})|\p{N}",
        ("½", "1½", "x²", "H₂O", "①")),
    Kind("signs before figures", SYMBOL,
        rf"(?:[±∓≈≤≥<>~∼≠√№¶&]|</){GAP}[0-9]{{1,9}}(?:[.,][0-9]{{1,9}})?"
        r"|(?<![\p{L}\p{N}])[\p{L}0-9]{0,2}[∀-⋿′″‖⟨⟩⌈⌉⌘⌥⌃⇧∂]++"
        r"(?:[\p{L}0-9]{1,2}[∀-⋿′″‖⟨⟩⌈⌉⌘⌥⌃⇧/∂]++){0,4}(?:[\p{L}0-9]{1,2}(?![\p{L}\p{N}]))?"
        r"|¯\\_\(ツ\)_/¯|\(╯°□°[)）]╯︵ ┻━┻|ʕ•ᴥ•ʔ|\\o/",
        ("≤ 5", "≈3.5", "x∈A", r"¯\_(ツ)_/¯")),
    Kind("tokens with symbols", SYMBOL,
        rf"{START}(?:[A-Z]{{1,5}}[/&][A-Z]{{1,5}}|[{NAME}.-]{{1,40}}+(?:/[{NAME}.-]{{1,40}}+){{2,9}}){END}"
        rf"|(?<!\S)[/&][A-Za-z][{NAME}]{{0,30}}{END}|(?<!\S)\|[{NAME}]{{1,30}}\|",
        ("TCP/IP", "R&D", "path/to/file", "|name|"),
        ("and or", "AC-DC")),
    Kind("symbols", SYMBOL,
        r"(?:[^\p{L}\p{M}\p{N}\p{Z}\p{C}\p{Pd}\p{Terminal_Punctuation}\p{Quotation_Mark}…¿¡]"
        r"|[\p{Co}\p{Cn}])\p{M}*+",
        ("★", "→", "≥", "✓", "•", "|"),
        ('So: "yes" – no…',)),
)  # fmt: skip

_GUARDS = {name: re.compile(guard) for name, (guard, _) in _GROUPS.items() if guard}
_TOKEN, _ALPHANUMERIC = re.compile(r"\S+"), re.compile(r"[^\W_]")
_MARKUP_PLACE = [*_GUARDS].index(MARKUP)
_SYMBOLS = regex.compile(
    "|".join(f"(?:{kind.pattern})" for kind in KINDS if kind.group == SYMBOL), regex.VERSION1
)


class TooLongToSearchError(Exception):
    """A text is so long that the search for its spans exceeds the memory of the regex library."""


class Span(NamedTuple):
    """A part of a text that must not change. Adjacent spans are merged into one."""

    start: int  # index of the first character in the text
    end: int  # index after the last character
    replacement: str  # text in the translation: the span itself, or the translation of a term
    # Whether the span consists of markup and symbols, which accompany words and are not words.
    is_markup: bool = False
    # For an inline tag that is removed before the translation and placed again: "open", "close" or
    # "void"; "space" for a tag that becomes a space; "" for spans that the model has to keep.
    role: str = ""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Protection:
    """The parts of a text that must not change.

    Attributes:
      protect: Keep URLs, tags, variables, code, prices, long numbers and emoji unchanged.

        The full list is on the page "Protected spans" of the documentation.
      protect_regex: Also keep text that matches this Python regex unchanged; repeatable.
    """

    protect: bool = True
    protect_regex: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in self.protect_regex:
            if problem := describe_bad_pattern(pattern):
                raise UserError(
                    f"the pattern {pattern!r} of `protect_regex` {problem}. Change the pattern"
                )

    @property
    def is_on(self) -> bool:
        """Whether anything is protected."""
        return self.protect or bool(self.protect_regex)

    def find(self, text: str, knows: Callable[[str], bool] | None = None) -> list[Span]:
        """Return the spans of a text in order, without overlapping or adjacent spans.

        Args:
          text: The text.
          knows: Whether a vocabulary contains a character. Without this function, no symbol is a
            span; with it, the symbols that the vocabulary lacks are spans.

        Raises:
          UserError: A pattern of the user matches an empty string, or takes too long.
          TooLongToSearchError: The text contains millions of characters, such as digits, that may
            belong to a single span.

        >>> text = "See <b>{name}</b>, 5 km away."
        >>> [span.replacement for span in Protection().find(text)]
        ['<b>{name}</b>', '5 km']
        >>> [span.replacement for span in Protection().find("Door ★★☆", str.isascii)]
        ['★★☆']
        """
        found = [
            Span(start, end, text[start:end])
            for pattern in self.protect_regex
            for start, end in find_matches(pattern, text)
        ]
        if self.protect:
            try:
                found += _find_kinds(text) if may_have_spans(text) else []
                found += _find_symbols(text, knows) if knows else []
            except MemoryError as error:
                raise TooLongToSearchError(
                    f"a text of {len(text):,} characters is too long to find its protected spans"
                ) from error
        return unite(text, found) if len(found) > 1 else found


def may_have_spans(text: str) -> bool:
    """Return whether a text may contain built-in spans that are no symbols; it is fast."""
    return _MAYBE_SPAN.search(text) is not None


def _find_kinds(text: str) -> list[Span]:
    """Return the spans that are no symbols. The first of overlapping spans wins."""
    found = []
    for place, (group, guard) in enumerate(_GUARDS.items()):
        if not guard.search(text):
            continue
        for start, end in _find_tokens(text, guard) if group == TOKEN else [(0, len(text))]:
            for each in _compile_group(group).finditer(text, start, end):
                found.append((each.start(), place, each.end()))
    spans: list[Span] = []
    for start, place, end in sorted(found):
        if not spans or start >= spans[-1].end:
            spans.append(Span(start, end, text[start:end], is_markup=place == _MARKUP_PLACE))
    return spans


def _find_tokens(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of the tokens that match, or of the rest after a drive."""
    for token in _TOKEN.finditer(text):
        if pattern.search(token[0]) and _ALPHANUMERIC.search(token[0]):
            if ":\\" in token[0]:  # "C:\Program Files" contains a space
                yield token.start(), len(text)
                return
            yield token.span()


@functools.cache
def _compile_group(group: str) -> regex.Pattern[str]:
    kinds = "|".join(kind.pattern for kind in KINDS if kind.group == group)
    return regex.compile(f"(?={_GROUPS[group][1]})(?:{kinds})", regex.DOTALL)


def _find_symbols(text: str, knows: Callable[[str], bool]) -> list[Span]:
    """Return the symbols with a character that the vocabulary lacks. Letters are never symbols."""
    unknown = {c for c in filter(_is_symbol, set(text)) if not knows(c)}
    return [
        Span(each.start(), each.end(), each[0], is_markup=not any(map(str.isalnum, each[0])))
        for each in (_SYMBOLS.finditer(text) if unknown else ())
        if not unknown.isdisjoint(each[0])
    ]


@functools.cache
def _is_symbol(character: str) -> bool:
    return not character.isalpha() and _SYMBOLS.fullmatch(character) is not None


def digest_patterns() -> str:
    """Return a digest of the built-in patterns, which changes if they may find other spans."""
    kinds = [(kind.group, kind.pattern) for kind in KINDS if kind.group != SYMBOL]
    patterns = repr((MAYBE_SPAN, kinds, _GROUPS, regex.__version__))
    return hashlib.blake2b(patterns.encode(), digest_size=8).hexdigest()


def unite(text: str, spans: Iterable[Span]) -> list[Span]:
    """Merge spans that overlap or are adjacent; overlapping spans keep the text unchanged."""
    groups: list[list[Span]] = []
    end = -1
    for span in sorted(spans):
        if span.start < span.end:
            if span.start > end:
                groups.append([])
            groups[-1].append(span)
            end = max(end, span.end)
    return [_merge(text, group) for group in groups]


def _merge(text: str, spans: Sequence[Span]) -> Span:
    """Return one span for spans that overlap or are adjacent, in order."""
    if len(spans) == 1:
        return spans[0]
    start, end = spans[0].start, max(span.end for span in spans)
    touches = all(before.end == after.start for before, after in itertools.pairwise(spans))
    replacement = "".join(span.replacement for span in spans) if touches else text[start:end]
    return Span(start, end, replacement, all(span.is_markup for span in spans))
