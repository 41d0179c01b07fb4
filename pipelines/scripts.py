"""Unicode scripts: which characters belong to one, and which one a language is written in.

The classes of characters come from RE2's tables of Unicode, which Arrow brings; they are looked
up once a process, in about half a second.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.errors import UserError

CODE_POINTS = 0x110000
_SURROGATES = range(0xD800, 0xE000)  # in no class: they are not characters

# Writing systems that use several scripts, in the names of ISO 15924.
_COMPOSED = {
    "Japanese": ("Hiragana", "Katakana", "Han"),
    "Korean": ("Hangul", "Han"),
}

# Languages whose corpora come in two scripts: a wrong guess would reject all of a good corpus.
_OF_TWO_SCRIPTS = ("sr", "uz", "ku", "ks", "crh")

# Primary subtags of BCP 47.
_LANGUAGES = {
    "Latin": (
        "aa ace af ak an ast ay az bar bcl bi bm br bs ca ceb ch co cs csb cy da de dsb ee "
        "en eo es et eu ff fi fil fj fo fr frp fur fy ga gd gl gn gv ha haw hil hmn ho hr hsb ht "
        "hu hz ia id ie ig ilo io is it jam jv kab kg ki kj kl kr kw la lb lg li lij ln lmo lt ltg "
        "lu lv mg mh mi min ms mt na nah nb nd nds ng nl nn no nr nso nv ny oc om pag pam pap pl "
        "pms pt qu rm rn ro rw sc scn sco se sg sk sl sm sn so sq ss st su sv sw szl tet tk tl tn "
        "to tpi tr ts tum tw ty ve vec vi vls vo wa war wo xh yo yua za zea zu"
    ),
    "Cyrillic": (
        "ab av ba be bg bua bxr ce chm cv inh kbd kk koi krc kum kv ky lbe lez mdf mhr mk mn mrj "
        "myv os ru rue sah tg tt tyv udm uk xal"
    ),
    "Arabic": "ar ary arz azb bal bqi ckb fa glk lrc mzn pnb prs ps sd skr ug ur",
    "Devanagari": "awa bh bho brx dgo doi hi hne kok mag mai mr ne new sa",
    "Bengali": "as bn bpy",
    "Ethiopic": "am ti tig",
    "Han": "cmn gan hak lzh nan wuu yue zh",
    "Hebrew": "he iw yi",
    "Tibetan": "bo dz",
    "Armenian": "hy hyw",
    "Georgian": "ka xmf",
    "Myanmar": "blk mnw my shn",
    "Greek": "el grc pnt",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Japanese": "ja",
    "Kannada": "kn tcy",
    "Khmer": "km",
    "Korean": "ko",
    "Lao": "lo",
    "Malayalam": "ml",
    "Oriya": "or ory",
    "Ol_Chiki": "sat",
    "Sinhala": "si",
    "Syriac": "syr",
    "Tamil": "ta",
    "Telugu": "te",
    "Thaana": "dv",
    "Thai": "th",
    "Tifinagh": "zgh",
}

# Script subtags (ISO 15924) in front of a language's own script: sr-Latn, zh-Hant.
_SUBTAGS = {
    "arab": "Arabic", "armn": "Armenian", "beng": "Bengali", "cyrl": "Cyrillic",
    "deva": "Devanagari", "ethi": "Ethiopic", "geor": "Georgian", "grek": "Greek",
    "gujr": "Gujarati", "guru": "Gurmukhi", "hang": "Hangul", "hani": "Han", "hans": "Han",
    "hant": "Han", "hebr": "Hebrew", "jpan": "Japanese", "khmr": "Khmer", "knda": "Kannada",
    "kore": "Korean", "laoo": "Lao", "latn": "Latin", "mlym": "Malayalam", "mong": "Mongolian",
    "mymr": "Myanmar", "olck": "Ol_Chiki", "orya": "Oriya", "sinh": "Sinhala", "syrc": "Syriac",
    "taml": "Tamil", "telu": "Telugu", "tfng": "Tifinagh", "thaa": "Thaana", "thai": "Thai",
    "tibt": "Tibetan",
}  # fmt: skip


def script_of_language(code: str) -> str:
    """Returns the script of a language code, or "" where it is not known or not one alone.

    Args:
      code: ISO 639-1 or BCP 47, such as "en", "pt-BR", "zh_TW" or "sr-Latn", in any letter case.

    >>> script_of_language("en"), script_of_language("zh_TW"), script_of_language("sr-Latn")
    ('Latin', 'Han', 'Latin')
    >>> script_of_language("sr"), script_of_language("tlh")
    ('', '')
    """
    language, *subtags = _subtags(code)
    for subtag in subtags:
        if len(subtag) == 1:
            break  # an extension or private use begins
        if len(subtag) == 4 and subtag.isalpha():
            return _SUBTAGS.get(subtag, "")
    return _scripts_by_language().get(language, "")


def is_language(code: str) -> bool:
    """Says whether a language is one of those known here, which are most of those with corpora.

    >>> is_language("sr-Latn"), is_language("xx")
    (True, False)
    """
    language = _subtags(code)[0]
    return language in _OF_TWO_SCRIPTS or language in _scripts_by_language()


def _subtags(code: str) -> list[str]:
    return re.split("[-_]", code.strip().lower())


@functools.cache
def _scripts_by_language() -> dict[str, str]:
    return {code: script for script, codes in _LANGUAGES.items() for code in codes.split()}


def check_script(name: str) -> None:
    """Raises unless a name is one of a script.

    Raises:
      UserError: It is no script of Unicode, in its long name, nor "Japanese" or "Korean".
    """
    if name in _COMPOSED:
        return
    # RE2 takes \p{Lu} and \p{Any} too: those are no scripts, and Yi is the only short name.
    is_name = re.fullmatch("[A-Z][A-Za-z_]{2,}|Yi", name)
    if is_name and name not in ("Any", "Common", "Inherited"):
        try:
            pc.match_substring_regex(pa.array([""]), rf"\p{{{name}}}")
        except pa.ArrowInvalid:
            pass
        else:
            return
    raise UserError(
        'script must be a long name of Unicode, such as "Latin", "Cyrillic", "Arabic", "Greek", '
        f'"Devanagari" or "Han", or "Japanese" or "Korean". Received: {name!r}'
    )


@functools.cache
def letters() -> npt.NDArray[np.bool_]:
    r"""Says of each code point whether it is a letter or a mark that letters bear: \p{L}, \p{M}."""
    return _members(r"[\p{L}\p{M}]")


@functools.cache
def white_space() -> npt.NDArray[np.bool_]:
    """Says of each code point whether `str.isspace` takes it for white space."""
    return _members(r"[\p{Z}\x09-\x0d\x1c-\x1f\x85]")


def in_script(script: str) -> npt.NDArray[np.bool_]:
    """Says of each code point whether it is in a script, or in none alone.

    Those in none alone, Unicode's "Common" and "Inherited", are digits, punctuation, accents as
    characters of their own, the Japanese mark of length and the like.
    """
    names = (*_COMPOSED.get(script, (script,)), "Common", "Inherited")
    return _members("[" + "".join(rf"\p{{{name}}}" for name in names) + "]")


def _members(pattern: str) -> npt.NDArray[np.bool_]:
    members = np.zeros(CODE_POINTS, np.bool_)
    matches = pc.match_substring_regex(_characters(), pattern).to_numpy(zero_copy_only=False)
    members[: _SURROGATES.start] = matches[: _SURROGATES.start]
    members[_SURROGATES.stop :] = matches[_SURROGATES.start :]
    return members


@functools.lru_cache(maxsize=1)
def _characters() -> pa.Array:
    return pa.array(map(chr, [*range(_SURROGATES.start), *range(_SURROGATES.stop, CODE_POINTS)]))
