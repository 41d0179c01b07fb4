"""Regular expressions for spans: parts of the built-in patterns, and checks of users' patterns."""

from __future__ import annotations

import functools

import regex

from tt.model.errors import UserError

LETTER = r"\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}\p{Hebrew}\p{Devanagari}_"  # spaced scripts
WORD = rf"{LETTER}0-9"
START, END = rf"(?<![{WORD}])", rf"(?![{WORD}])"
NAME = "A-Za-z0-9_"
ID = rf"[A-Za-z_][{NAME}]*+"
PICTURES = (
    "\u00a9\u00ae\u203c\u2049\u20e3\u2122\u2139\u2190-\u21ff\u2300-\u27bf\u2900-\u2bff\u3030\u303d"
    "\u3297\u3299\U0001f000-\U0001faff"
)
# Names between "__" in Python. In Markdown, other words between "__" are bold.
DUNDERS = (
    "add|all|annotations|call|class|contains|del|dict|doc|enter|eq|exit|file|future|getattr|getitem"
    "|hash|init|iter|len|lt|main|module|mro|name|new|next|path|post_init|repr|setattr|slots|str"
    "|version"
)

STRING = r'"(?:[^"\\]|\\.)*+"'


def json_pattern(levels: int) -> str:
    """Return a pattern of JSON objects and arrays with at most so many levels."""
    inner = f"|{json_pattern(levels - 1)}" if levels > 1 else ""
    return rf'[\[{{](?:[^\[\]{{}}"]++|{STRING}{inner})*+[\]}}]'


# A tag has attributes with "=", or at most one other word: "if a <b then c> d" contains no tag.
TAG = (
    r"</?[A-Za-z][\w:.-]*(?:\s+[^<>\s=]+)?\s*/?>|<[A-Za-z][\w:.-]*\s[^<>=]*=[^<>]*>"
    r"|<[!?][A-Za-z\[-][^<>]*>"
)
PICTURE = r"\p{Extended_Pictographic}[\p{Emoji_Modifier}\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f]*"

# A URL ends before white space, quotation marks, letters of scripts without spaces, and punctuation
# of the sentence around it. A URL contains parentheses only in pairs.
URL_END = r"\s<>\"`“”„«»()\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\u3000-\u303f\uff00-\uffef"
IN_BRACKETS = rf"\([^{URL_END}]*+\)"
URL_REST = rf"(?:{IN_BRACKETS}|[^{URL_END}])*(?:{IN_BRACKETS}|[^{URL_END}.,;:!?…'’\]}}*_])"
LABELS = rf"(?:[{WORD}](?:[{WORD}-]{{0,61}}[{WORD}])?\.){{1,8}}"
DOMAINS = (
    "com|org|net|edu|gov|mil|int|info|io|dev|app|ai|biz|xyz|tv|eu|de|uk|fr|nl|ch|ru|cn|jp|br|au|ca"
    "|pl|se|dk|cz|gr|tr|kr|za|mx|рф|укр|shop|online|site|store|blog|cloud|tech|travel|museum|example"
)
# A host in a script that has no spaces between words, or in Korean.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}"
ASIAN_HOST = (
    rf"(?:www\.)?(?:[{UNSPACED}-]{{1,20}}+\.){{1,4}}(?:{DOMAINS}|中国|中國|香港|台灣|公司|网络|网址|在线|测试"
    r"|한국|みんな|ไทย)"
)
EXTENSIONS = (
    "7z|apk|avi|bash|bat|bib|bin|bmp|bz2|cfg|conf|cpp|cs|css|csv|dll|dmg|docx?|eps|epub|exe|flac"
    "|gif|gz|hpp|html?|ico|ini|ipynb|iso|jar|java|jpe?g|js|json|jsonl|jsx|kt|lock|log|md|mkv|mov"
    "|mp3|mp4|mpeg|odt|ogg|parquet|pdf|php|png|pptx?|ps1|psd|py|rar|rb|rs|rst|rtf|scala|sh|sqlite"
    "|sql|svg|swift|tar|tex|tgz|tiff?|toml|tsv|tsx|ttf|txt|vue|wav|webm|webp|whl|woff2?|xlsx?|xml|ya?ml"
    "|zip|crt|csproj|dart|eml|gguf|gradle|heic|ics|lua|msi|npy|npz|onnx|orc|pem|pkl|proto|safetensors|scss"
)

NUMBER = r"[0-9]{1,30}(?:[.,:/'’\u00a0\u202f-][0-9]{1,30}){0,9}"
DECIMAL = r"[0-9]{1,9}(?:[.,][0-9]{1,9})?"
CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|RUB|AUD|CAD"
CURRENCY = rf"(?:(?<![A-Za-z])[A-Z]{{1,3}}\$|\p{{Sc}}|(?:{CODES})(?![A-Za-z]))"
UNIT = (
    r"(?:%(?!\()|[‰°′″]|°[CF]|℃|℉|k?m/[hs]|(?:[kcmµμnd]?m|[kmµμ]?g|[cdm][lL])[²³]?|mph|[kMG]W|kWh"
    r"|[km]V|mA|m?Ah|[kMGT]?Hz|dB|[hkM]?Pa|mbar|psi|[kKMGTP]i?B(?:/s)?|[kMG]?Ω|[kMG]?bit(?:/s)?|[kMG]bps|px|pt"
    r"|dpi|fps|rpm|kcal|kJ|kN|Nm|lbs?|oz|ft|min|[mµμn]s|h)(?![\p{Latin}\p{Greek}\p{Cyrillic}0-9])"
)
# Units that look like words must follow the number directly, or not precede a word.
SHORT_UNIT = r"(?:[lLWVJN]|ha|mi)(?![\p{Latin}\p{Greek}\p{Cyrillic}0-9])"
NOT_WITHIN = rf"(?<![{WORD}.,])"
GAP = r"[ \u00a0\u202f]?"
FOLDER = r"[^\s\\/:*?\"<>|]{1,99}+"

# A file name with an extension, or a path of Unix or Windows.
PATH = (
    rf"(?<![{WORD}./\\~-])(?:(?:~|\.{{1,2}}|[A-Za-z]:)?[/\\])?"
    rf"(?:[{WORD}.@-]{{1,99}}+[/\\]){{0,30}}+"
    rf"[{WORD}-]{{1,99}}(?:\.[{WORD}-]{{1,40}}){{0,4}}\.(?i:{EXTENSIONS}){END}(?:[#?][{NAME}=&%/-]*[{NAME}]|(?:::?[{NAME}]+)+)?"
    rf"|(?<![{WORD}/.~])(?:~|\.{{1,2}})/[{NAME}.@/-]*[{NAME}]/?"  # ~/notes
    rf"|(?<![{WORD}/.~<])/[A-Za-z_][{NAME}.-]*+(?:/[{NAME}.*@+-]*[{NAME}*@+-])++/?"  # /usr/bin
    rf"|(?<![{WORD}/.~<])/(?:etc|usr|var|tmp|home|opt|dev|mnt|proc|sys|srv|root)/?{END}"
    rf"|(?<![{WORD}*])\*\.[a-z][a-z0-9]{{0,7}}(?:\.[a-z0-9]{{1,7}})?(?![{WORD}*])"  # *.tar.gz
    rf"|(?<!\S)/?[ur]/[A-Za-z0-9_]{{3,30}}{END}"  # r/python
    rf"|{START}(?:src|usr|etc|var|bin|lib|home|docs?|app|build|dist|opt|tmp|api)"
    rf"(?:/[{NAME}.-]{{0,99}}[{NAME}]){{1,20}}"
    rf"|{START}(?:[A-Za-z]:|(?<!\\)\\|%[A-Z]{{2,30}}%)\\(?:{FOLDER}(?: {FOLDER}){{0,3}}+\\){{0,30}}"
    rf"[{NAME}.$%-]{{0,99}}[{NAME}]"  # C:\Program Files\x
    rf"|{START}[A-Z]:(?:\\(?!\w)|(?:/[{NAME}.-]{{0,99}}[{NAME}]){{1,20}})"  # C:/a, D:\
    rf"|{START}[A-Za-z][{NAME}-]*+(?:(?:\\[A-Z][{NAME}-]*+)+|(?:\\[A-Za-z][{NAME}-]*+){{2,}})"
    rf"|(?<![{WORD}.])\.(?:[a-z]{{0,12}}(?:rc|ignore|env|config|profile)(?:\.[a-z]{{2,12}})?|{EXTENSIONS}){END}"
)
ARGUMENTS = r"\([^()\s]{0,80}+\)"  # of a call
# An identifier of a program: snake_case, camelCase, calls and names with dots.
IDENTIFIER = (
    rf"{START}(?![A-Z][a-z]++_in(?:nen)?{END})"  # snake_case, but not "Autor_in" in German
    rf"(?:_*+[A-Za-z0-9]++(?:_++[A-Za-z0-9]++)++_*+|__(?:{DUNDERS})__)(?:{ARGUMENTS}|/)?{END}"
    # getUserName; "bhF" and the others begin Irish and Zulu words
    rf"|(?<![{WORD}-])(?:(?!bhF|isi[A-Z]|ama[A-Z]|kwa[A-Z])[a-z]{{2,30}}+[0-9]{{0,9}}+"
    r"(?:[A-Z][a-z0-9]{1,30}+|[A-Z]{2,9}(?![a-z])){1,9}+|(?:[A-Z][a-z0-9]{1,30}+){3,9}+)"
    rf"(?:{ARGUMENTS})?"
    rf"(?![{WORD}-])|{START}{ID}(?:(?:\.{ID}){{0,20}}\(\)|(?:\.{ID}){{1,9}}{ARGUMENTS}|(?:(?:::|->){ID})++(?:\(\))?)"
    rf"|{START}[A-Zb-z]\([a-z0-9](?:, ?[a-z0-9]){{0,3}}\)|{START}{ID}\[[0ijknxy]\]"
    rf"|{START}[a-z_][{NAME}]++(?:\.[a-z_][{NAME}]++){{2,}}+{END}"
    rf"|{START}(?:[A-Za-z]\+\+|[CF]\#)(?![{WORD}+\#])|(?<![{WORD}.])\.NET{END}"
    rf"|{START}[A-Za-z]{{1,9}}\^\{{?-?[A-Za-z0-9]{{1,4}}\}}?{END}"
    rf"|(?<![{WORD}-])(?:[a-z]{{1,6}}[0-9]{{2,9}}|(?!in[0-9]|[a-z]?[mt][23])[a-z]{{2,6}}[0-9]|[A-Za-z][0-9]{{1,2}}[a-z])"
    rf"{END}"
)
# A UUID, a JWT, a digest, or a number in base 16.
DIGEST = (
    rf"{START}(?:[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}"
    r"|(?:sha[0-9]{1,3}|md5)[:-][0-9a-fA-F]{8,128}+|0b[01]{1,64}+|0o[0-7]{1,32}+"
    rf"|eyJ[{NAME}-]{{4,}}+\.[{NAME}-]++(?:\.[{NAME}-]*+)?"
    r"|(?=[a-f]*+[0-9])(?=[0-9]*+[a-f])[0-9a-f]{7,128}+"
    r"|(?=[A-F]*+[0-9])(?=[0-9]*+[A-F])[0-9A-F]{7,128}+|0[xX][0-9a-fA-F]{1,64}+"
    r"|U\+[0-9A-Fa-f]{4,6}+|(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}"
    rf"|(?:[0-9a-f]{{1,4}}:){{1,6}}(?::[0-9a-f]{{1,4}}){{1,6}}|(?:[0-9a-f]{{1,4}}:){{7}}"
    rf"[0-9a-f]{{1,4}}){END}|(?<![{WORD}:])::[0-9a-f]{{1,4}}{END}"
)
# An option, an assignment, a combination of keys, or a media type.
OPTION = (
    rf"(?<![{WORD}-])(?:--[a-z][{NAME}-]*+(?:=[!-~]{{1,99}}(?<![.,;:!?)]))?"
    r"|(?<!\S)-(?:[A-Za-z]|O[0-3])(?![^\s.,;:!?]))"
    rf"|(?<![{WORD}=<>!?&./-])(?:{ID}\?|\?)?{ID}[<>~!=]?="
    rf"[{NAME}%/\"'\[-](?:[{NAME}%./:;\"'\]+=&-]{{0,200}}[{NAME}%/\"'\]+-])?"
    r"(?!\p{No})"
    rf"|{START}(?:Ctrl|Cmd)-[A-Z0-9]{END}|{START}(?:Ctrl|Alt|Shift|Cmd|Win|Fn|UTC|GMT)(?:\+[A-Za-z0-9]{{1,9}}){{1,4}}"
    rf"|{START}(?:text/(?:html|plain|css|csv|xml)|image/(?:png|jpeg|gif|webp)"
    r"|application/[a-z0-9.+-]+[a-z0-9])"
)
# Data in base 64, or a key of a service.
DATA = (
    r"(?<![A-Za-z0-9+/=_-])(?:(?=[A-Za-z+/]*+[0-9])(?=[A-Z0-9+/]*+[a-z])(?=[a-z0-9+/]*+[A-Z])"
    rf"(?:[A-Za-z0-9]{{20,}}+|[A-Za-z0-9+/]{{40,}}+)|(?=[a-z]*+[A-Z])(?:[A-Za-z0-9+/]{{4}})+"
    r"(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)|[A-Za-z0-9+/]{10,}+={1,2}"
    r"|(?=[A-Z]*+[0-9])[A-Z0-9]{16,}+|(?=[A-Z]*+[0-9])(?=[0-9]*+[A-Z])[A-Z0-9]{7,}+"
    r"|(?:[a-z]{2,8}[_-]){1,3}(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{12,}+"
    r"|(?=[a-z]*+[A-Z])(?=[A-Z]*+[a-z])(?:[A-Za-z]++[0-9]++){2,}+[A-Za-z]*+(?<=[A-Za-z0-9]{12}))"
    rf"(?![{WORD}=/+])"
)
# An expression of a program, or a calculation.
EXPRESSION = (
    rf"{START}[{NAME}.]{{1,40}} (?:[=!]==?|[<>+*/-]=|&&) [{NAME}.]{{0,40}}[{NAME}]"
    rf"|{START}[A-Za-z]{{1,2}} [=-]> [{NAME}]{{1,20}}(?: [+*/-] [{NAME}]{{1,20}}){{0,3}}"
    rf"|(?<![{WORD}.,/]){DECIMAL}(?: ?[+−×÷·*=] ?{DECIMAL}){{1,9}}(?![{WORD}/]|[.,][0-9])"
    rf"|{START}(?:rgba?|hsla?|cmyk)\([0-9.,% /-]{{1,60}}\)"
    rf"|{START}(?:List|Map|Set|Array|Dict|Vec|Option|Optional|Promise|HashMap)"
    r"<[A-Za-z, ]{1,40}>"
)
# A version.
VERSION = (
    rf"(?:(?:(?<!\S)[~^]|(?<![{WORD}<>=!~])[<>=!~]=)[0-9]{{1,9}}+(?:\.[0-9]{{1,9}}+){{1,8}}|{NOT_WITHIN}"
    r"(?:[vV]?[0-9]{1,9}+(?:\.[0-9]{1,9}+){2,8}|v[0-9]{1,4}+(?:\.[0-9]{1,9}+){0,8}"
    r"|V[0-9]{1,4}+(?:\.[0-9]{1,9}+){1,8}|[0-9]{1,4}+(?:\.[0-9]{1,4}+){0,3}\.x))(?:[-.+]?(?:alpha|beta|rc|dev|pre|post|SNAPSHOT)"
    rf"(?:[.-]?[0-9]{{1,9}})?)?(?:\+[{NAME}.-]{{0,40}}[{NAME}])?(?:/[0-9]{{1,3}}|:[0-9]{{2,5}})?(?![{WORD}]|[.,/-][0-9])"
)
# A phone number, or an account.
PHONE = (
    r"\+[0-9](?:[ ()./-]{0,2}[0-9]){6,14}(?![0-9])"
    rf"|{NOT_WITHIN}(?:\([0-9]{{2,5}}\)|[0-9]{{2,5}})(?:[ /-][0-9]{{2,5}}){{2,5}}"
    rf"(?![{WORD}-]|[.,][0-9])"
    rf"|{START}[A-Z]{{2}}[0-9]{{2}}(?: ?[A-Z0-9]{{4}}){{3,7}}(?: ?[0-9]{{1,3}})?{END}"
)
# A price.
PRICE = (
    rf"(?:(?<!\S)[-−])?{CURRENCY}{GAP}{NUMBER}(?:{GAP}(?:[kKMB]|bn|mn)(?![{WORD}]))?"
    rf"|{NOT_WITHIN}[-−+]?{NUMBER}{GAP}{CURRENCY}(?![{WORD}{{])"
    rf"|{NOT_WITHIN}[0-9]{{1,6}}[€$£][0-9]{{2}}{END}"
    rf"|{NOT_WITHIN}(?:{CURRENCY}{GAP})?{NUMBER}[.,][-–—]+(?![{WORD}-])"
)
# A code, such as LM-204, or a section.
CODE = (
    rf"{NOT_WITHIN}(?<!-)(?:HTTP/[0-9]\.[0-9]|(?=[0-9_/-]{{0,20}}[A-Z])(?=[A-Z_/-]{{0,20}}[0-9])"
    r"[A-Z0-9]{1,20}+(?:[-_/][A-Z0-9]{1,20}+){1,5}+|[A-Z]{1,6}[0-9]{3,}+"
    r"|[A-Z]{1,6}[0-9]{1,2}+|[0-9]{1,3}(?![AP]M)[A-Z]{1,2}|[A-Z]{1,4}[0-9]{1,4}[A-Z]{1,4}[0-9]{0,4})"
    rf"(?![{WORD}]|-[{WORD}])|{NOT_WITHIN}§{{1,2}}{GAP}[0-9]{{1,5}}[a-z]?{END}"
)

# Values of databases, spreadsheets and programs, codes such as "SKU-4711", sizes, and languages.
VALUE = regex.compile(
    r"\s*(?:(?=\S*[0-9])[A-Z0-9]+(?:[-_./:#][A-Z0-9]+)*|#?N/A|n/a|N\.A\.|n\.a\.|null|NULL|NaN|nan"
    r"|#(?:REF|VALUE|NAME|NULL|NUM|DIV/0)[!?]|true|false|True|False|TRUE|FALSE|None|nil|undefined"
    r"|[SML]|X{1,4}[SL]|[0-9]XL|[a-z]{2,3}[-_](?:[A-Z]{2}|[0-9]{3}|[A-Z][a-z]{3}(?:[-_][A-Z]{2})?)"
    rf"|{CODES})\s*"
)

_LONGEST_SEARCH = 30  # seconds that a pattern may take for a text
_MATCHES_NOTHING = "matches an empty string"
_PROBE_SECONDS, _PROBE_LENGTH, _MOST_PROBES = 2, 200, 64  # limits for `describe_bad_pattern`


def find_matches(pattern: str, text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each match of a user's pattern.

    Raises:
      UserError: The pattern matches an empty string, or takes too long.
    """
    try:
        found = [each.span() for each in regex.finditer(pattern, text, timeout=_LONGEST_SEARCH)]
    except (TimeoutError, RecursionError, MemoryError) as error:
        raise UserError(
            f"the pattern {pattern!r} of `protect_regex` takes more than {_LONGEST_SEARCH} s for a "
            f"text with {len(text):,} characters. Write the pattern without nested repetitions. If "
            "the model stores the pattern, remove it from the model's config.json or about.json"
        ) from error
    if any(start == end for start, end in found):
        raise UserError(
            f"the pattern {pattern!r} of `protect_regex` {_MATCHES_NOTHING}. Replace * with +"
        )
    return found


@functools.cache
def describe_bad_pattern(pattern: str) -> str:
    """Return why a pattern of a user or a model cannot be used, or "" if it can be used.

    The function searches texts that repeat one character of the pattern. In these texts, patterns
    with nested repetitions are slower than other patterns by many orders of magnitude.

    >>> describe_bad_pattern("ACME-[0-9]+"), describe_bad_pattern("(a|a)+$")
    ('', 'takes too long for a short text')
    """
    try:
        compiled = regex.compile(pattern)
        characters = dict.fromkeys([*"aA0 ", *pattern])
        for character in list(characters)[:_MOST_PROBES]:
            # A rare character at the end makes a pattern with nested repetitions try everything.
            for text in ("", character * _PROBE_LENGTH, f"{character * _PROBE_LENGTH}⟦"):
                matches = compiled.finditer(text, timeout=_PROBE_SECONDS)
                if any(each.start() == each.end() for each in matches):
                    return _MATCHES_NOTHING
    except (TimeoutError, MemoryError):
        return "takes too long for a short text"
    except (regex.error, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"is not a regular expression ({reason})"
    return ""
