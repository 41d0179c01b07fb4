"""Find the symbols and identifiers of a source that its translation has lost.

Symbols and identifiers have no translation, so a translation contains them as they are. The rules
use Unicode categories and the shapes of tokens. They accept the changes that translators make.
"""

from __future__ import annotations

import collections
import re
import unicodedata
from collections.abc import Iterator

import regex

from tt.model.text.spans import PLACEHOLDER

# Symbols, numbers other than digits, characters for private use, and rare punctuation.
_SYMBOL = regex.compile(
    r"[\p{S}\p{No}\p{Nl}\p{Co}\[\]{}_⌈-⌋⟨-⟯"
    r"[\p{Po}--\p{Terminal_Punctuation}--\p{Quotation_Mark}&&\p{Script=Common}]"
    r"--[%％&＆/／¡¿·・･‧‥…]]",  # languages exchange these characters
    regex.V1,
)
# Symbols that something else in the translation may replace.
_EXCHANGED = (
    ("[`´]", r"[`´′\p{Quotation_Mark}]"),
    ("[−˗]", "[-−‐-―]"),
    (
        r"\p{Sc}",
        r"\p{Sc}|\b[A-Z]{3}\b|(?i:d[oó]l+[aáy]r|д[ао]л+ар|ドル|달러|euro|евро|[元圆圓円镑鎊]|ユーロ|유로"
        r"|p(?:ou|fu|o)nd|sterl|li[vb]r[ae]|фунт|ポンド|yen|иен|엔|ru[pb]|рупи|рубл|fran[ck]|франк"
        r"|peso|песо|cent|цент|won\b|вон|원)",
    ),
)
_REPLACEABLE = [(regex.compile(own), regex.compile(other)) for own, other in _EXCHANGED]

# A token is a run of characters without white space, quotation marks and characters of scripts
# without spaces.
_TOKEN = regex.compile(r"[^\s\p{Lo}\p{Quotation_Mark},;，；。、：]++")
_CASED = r"\p{Lu}\p{Ll}\p{M}\d"
# Words with a capital or a digit inside, such as "camelCase" and "utf8", but not "3rd" and "1980s".
_NAME = regex.compile(
    rf"(?<![{_CASED}])[{_CASED}]*(?:\p{{Ll}}\p{{Lu}}|[A-Za-z]\d|\d(?:\p{{Lu}}|x))[{_CASED}]*"
)
# Such words that translators change: names as "McDonald", units and currencies before a figure.
_CHANGED = regex.compile(
    r"Ma?c\p{Lu}\p{Ll}.*|[kcdm]?m[23]|CO2|[km][VW]h?|(?:[A-Z]{2}D|RMB|EUR|GBP|RUB|CHF|JPY|CNY)\d+"
)
_BRAND = regex.compile(r"(?:\p{Lu}\p{Ll}*|\p{Ll})\p{Lu}[\p{Lu}\p{Ll}]*")  # not "getName"
_BREAK = re.compile(r"[\s-]")
# A mutation or a prefix before a capital, as in the Irish "gCoimisiún".
_PREFIXED = frozenset(["ga", "gd", "zu", "xh", "ss", "nd", "nr"])
_IDENTIFIER = regex.compile(
    r"[_@#\\]|://|::|\(\)$|\p{L}:\d|(?<!\d)%[\p{L}%(]"  # @name, std::move, run(), localhost:80, %s
    r"|&&|(?<!\w)&(?!amp|quot|[lg]t)\w|^[!:]\p{L}|^\?[:=!<]|^//|/\*|\*/"  # !VAR
    r"|^\p{Lu}{2}&\p{Lu}{1,2}$|^\p{Lu}{1,5}/\p{Lu}{1,5}$"  # AT&T, CI/CD
    r"|^[.~]{0,2}/\p{L}|\.\p{Ll}+/"  # /usr, t.me/a
    r"|[\p{L}\d]{2}\.\p{Ll}{2}|\p{Lu}{2}\.\p{Lu}{2}|^\.\p{L}{2}"  # Node.js, WWW.AB.COM, .NET
    r"|\p{L}\.\p{L}+\.\p{L}{2}|\p{Ll}\.\p{Lu}{3}|^\p{Ll}{2}-\p{Lu}{2}$"  # www.Ab.Org, en-US
    r"|^(?:application|audio|image|text|video)/\p{Ll}|^/?[ur]/\w"
    r"|^\p{Ll}+:\p{Ll}+$|\d:\d\d:\d\d[.,]\d"
)
_OPTION = regex.compile(r"(?<!\S)(?:--\p{L}[\w-]*|-\p{L}(?![\p{L}\d]))")
_EMOTICON = regex.compile(r"(?<!\S)[:;=8]['’]?-?[()|DP](?!\w)|:\p{Ll}+:")
# A number with two dots, unless it is a date or has dots between thousands.
_VERSION = regex.compile(
    r"(?<![\d.])(?!\d{1,3}(?:\.\d{3})+(?!\.?\d))"
    r"(?!(?:\d\d?\.\d\d?\.(?:\d{4}|\d\d)|\d{4}\.\d\d?\.\d\d?)(?!\d))\d+(?:\.\d+){2,}"
)
_SIGNED = regex.compile(r"(?<![^\s(])(?<!\d\s)[-−–](?=(\d))")
_KEPT = regex.compile(r"[-−–] ?(\d)")
_MINUS = regex.compile(r"(?i)minus|moins|menos|meno\b|минус|负|負|零下|マイナス|zero|null|нул")


def _plain_pattern() -> str:
    """Return a fast pattern for sentences of words, which contain no symbol or identifier."""
    letters = [*map(chr, range(0x530))]
    upper, lower = ("".join(filter(test, letters)) for test in (str.isupper, str.islower))
    word = rf"[{upper}]*+[{lower}\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fa5]*+"
    word = rf"(?:(?<![-–])[0-9]++|{word})"
    marks = (
        r"(?:[ ,?'\"“”„‘’«»)–—…，、。！？；]++|[.:;](?![\w(|)-])|!(?!\w)|(?<! )-|-(?= )|\((?!\)))"
    )
    marks = rf"(?:{marks}|{PLACEHOLDER.pattern})++"
    return f"{word}(?:{marks}{word})*+"


_PLAIN = re.compile(_plain_pattern())


def find_lost_symbol(
    text: str, *, source: str, source_language: str = "", target_script: str = ""
) -> str:
    """Return a symbol, a sign or an identifier of a source that its translation lacks, or "".

    Args:
      text: The translation.
      source: The source.
      source_language: The code of the source language; "" if it is unknown.
      target_script: The script of the target language; "" if it is unknown. Scripts other than
        Latin may spell out brands such as "WeChat".

    >>> find_lost_symbol("A größer B", source="A ≥ B"), find_lost_symbol("5 €", source="€5")
    ('≥', '')
    >>> find_lost_symbol("Rufe getname auf.", source="Call getName.")
    'getName'
    """
    if _PLAIN.fullmatch(source):
        return ""
    folded, own = fold(text), fold(source)
    for symbol in dict.fromkeys(_SYMBOL.findall(source)):
        form = fold(symbol)
        is_kept = text.count(symbol) >= source.count(symbol) or (
            not (form.isalpha() and len(form) == 1)  # "a" is no trace of "ⓐ"
            and folded.count(form) >= own.count(form)
        )
        if not is_kept and not _is_exchanged(symbol, text):
            return str(symbol)
    if lost := next((name for name in _find_identifiers(own) if name not in folded), ""):
        return lost
    lost = _find_lost_name(
        folded, own, source_language=source_language, target_script=target_script
    )
    if lost or _MINUS.search(text):
        return lost
    signs = collections.Counter(_SIGNED.findall(source)) - collections.Counter(_KEPT.findall(text))
    return next((f"-{digit}" for digit in signs), "")


def fold(text: str) -> str:
    """Return the compatibility form of a text, which some models write."""
    is_same = text.isascii() or unicodedata.is_normalized("NFKC", text)
    return text if is_same else unicodedata.normalize("NFKC", text)


def _find_lost_name(text: str, source: str, *, source_language: str, target_script: str) -> str:
    """Return a name that a translation lacks, or ""; it may have other spaces and hyphens.

    The case of a brand may change, too.
    """
    names = [name for name in _NAME.findall(source) if not _CHANGED.fullmatch(name)]
    joined = _BREAK.sub("", text)
    lower = joined.casefold()
    for name in names:
        is_brand = _BRAND.fullmatch(name)
        if is_brand and target_script not in ("", "Latin"):
            continue
        if source_language.partition("-")[0] in _PREFIXED and name[0].islower():
            continue
        if name not in joined and not (is_brand and name.casefold() in lower):
            return str(name)
    return ""


def _is_exchanged(symbol: str, text: str) -> bool:
    return any(own.match(symbol) and other.search(text) for own, other in _REPLACEABLE)


def _find_identifiers(text: str) -> Iterator[str]:
    yield from _OPTION.findall(text)
    yield from _VERSION.findall(text)
    yield from _EMOTICON.findall(text)
    for word in _TOKEN.findall(text):
        token = word.rstrip(".:!?…*")
        token = token if token.endswith("()") else token.rstrip(".:!?…)*[]").lstrip("(*[]…")
        is_path = token.count("/") > 1 and any(map(str.isalpha, token))
        if is_path or _IDENTIFIER.search(token):
            yield token
