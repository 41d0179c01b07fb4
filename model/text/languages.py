"""Language codes: validation, comparison, and the likely script of a language.

The package `langcodes` provides the codes, their synonyms and the likely scripts from IANA's
registry and Unicode's CLDR.
"""

from __future__ import annotations

import dataclasses
import functools
import re

from tt.model.errors import UserError

# Languages whose script is missing in CLDR, or differs from the script of today's texts.
_OWN_SCRIPTS = {
    "azb": "Arab", "blk": "Mymr", "grc": "Grek", "hmn": "Latn", "hyw": "Armn", "ie": "Latn",
    "nah": "Latn", "tok": "Latn", "xal": "Cyrl",
}  # fmt: skip

_UNREGISTERED = ("tok",)  # newer than the registry in langcodes

# Codes that name no single language (undetermined, multiple, uncoded, no language), and private-use
# codes for languages, scripts and regions. XK is not listed, because everyone uses it for Kosovo.
_NO_LANGUAGE = re.compile(r"und|mul|mis|zxx|q[a-t][a-z]|x-.*")
_NO_SCRIPT = re.compile(r"Qa[ab][a-x]|Z(inh|mth|sye|sym|xxx|yyy|zzz)")
_NO_REGION = re.compile(r"AA|Q[M-Z]|X[A-JL-Z]|ZZ")

# Languages with corpora in two scripts. A wrong guess of the script would reject a good corpus.
OF_TWO_SCRIPTS = ("sr", "uz", "ku", "ks", "crh")

# Script codes of ISO 15924, and Unicode's long names of the scripts.
_SCRIPT_NAMES = {
    "Adlm": "Adlam", "Arab": "Arabic", "Armn": "Armenian", "Beng": "Bengali",
    "Cans": "Canadian_Aboriginal", "Cher": "Cherokee", "Copt": "Coptic", "Cyrl": "Cyrillic",
    "Deva": "Devanagari", "Ethi": "Ethiopic", "Geor": "Georgian", "Goth": "Gothic",
    "Grek": "Greek", "Gujr": "Gujarati", "Guru": "Gurmukhi", "Hang": "Hangul", "Hani": "Han",
    "Hans": "Han", "Hant": "Han", "Hebr": "Hebrew", "Jpan": "Japanese", "Khmr": "Khmer",
    "Knda": "Kannada", "Kore": "Korean", "Laoo": "Lao", "Latn": "Latin", "Lisu": "Lisu",
    "Mlym": "Malayalam", "Mong": "Mongolian", "Mtei": "Meetei_Mayek", "Mymr": "Myanmar",
    "Nkoo": "Nko", "Olck": "Ol_Chiki", "Orya": "Oriya", "Sinh": "Sinhala", "Syrc": "Syriac",
    "Taml": "Tamil", "Telu": "Telugu", "Tfng": "Tifinagh", "Thaa": "Thaana", "Thai": "Thai",
    "Tibt": "Tibetan", "Vaii": "Vai", "Yiii": "Yi",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Language:
    """A language with its code and its script."""

    code: str  # the code as the user wrote it, such as "zh_TW" or "cmn"
    primary: str  # the usual code without script and region, such as "zh" for both examples
    # Unicode's long name of the script, such as "Latin"; "Japanese" and "Korean" for languages that
    # mix several scripts; "" if the script is unknown or the language has more than one.
    script: str

    @property
    def macrolanguage(self) -> str:
        """The ISO 639-3 code of the language's macrolanguage, or its own code without one."""
        from langcodes.data_dicts import MACROLANGUAGES

        found: str = MACROLANGUAGES.get(self.primary, self.primary)
        return found


def read_language(code: str, *, name: str) -> Language:
    """Return the language of a code that a user gave for an option.

    Args:
      code: A code of BCP 47 or ISO 639, such as "en", "deu", "pt-BR" or "sr_Latn", in any case.
      name: The option, for the message, such as "`source_language`".

    Raises:
      UserError: The code does not exist, or does not name a single language.

    >>> read_language("cmn", name="`target_language`")
    Language(code='cmn', primary='zh', script='Han')
    """
    language = find_language(code)
    if language is None or not is_one_language(code):
        raise UserError(
            f"{name} must be the code of one language, such as en, de or zh-Hant. Received: {code}"
        )
    return language


def is_one_language(code: str) -> bool:
    """Return whether a code names a single language.

    >>> is_one_language("de"), is_one_language("mul"), is_one_language("English")
    (True, False, False)
    """
    import langcodes

    if find_language(code) is None:
        return False
    tag = langcodes.Language.get(code.strip())
    special = ((_NO_LANGUAGE, tag.language or "und"), (_NO_SCRIPT, tag.script),
               (_NO_REGION, tag.territory))  # fmt: skip
    return not any(part and pattern.fullmatch(part) for pattern, part in special)


def are_same(code: str, other: str) -> bool:
    """Return whether two codes name one language, or members of one macrolanguage.

    Bokmål and Norwegian count as one language, and so do Cantonese and Chinese, because corpora and
    models often use either code. Members with different scripts are different languages. Models
    that distinguish members have separate language tokens; see `tt.model.text.tokenization`.

    >>> are_same("en-GB", "eng"), are_same("nb", "no"), are_same("ckb", "kmr"), are_same("", "")
    (True, True, False, False)
    """
    one, another = (find_language(each) if each else None for each in (code, other))
    if one is None or another is None:
        return False
    has_one_script = not (one.script and another.script) or one.script == another.script
    return one.primary == another.primary or (
        has_one_script and one.macrolanguage == another.macrolanguage
    )


def are_different(code: str, other: str) -> bool:
    """Return whether two codes name different languages; False if a code is unknown or empty.

    >>> are_different("en", "de"), are_different("en-GB", "eng"), are_different("en", "")
    (True, False, False)
    """
    are_known = all(each and find_language(each) for each in (code, other))
    return are_known and not are_same(code, other)


def named_script(code: str) -> str:
    """Return the ISO 15924 script that a code contains or its region implies, or "".

    >>> named_script("sr-Latn"), named_script("zh-TW"), named_script("zho_Hans"), named_script("sr")
    ('Latn', 'Hant', 'Hans', '')
    """
    import langcodes

    tag = langcodes.Language.get(code.strip())
    return tag.maximize().script or "" if tag.territory and not tag.script else tag.script or ""


def language_and_script(code: str) -> str:
    """Return the usual codes of a language and its script, for the comparison of codes.

    A code that does not exist is returned as it is.

    >>> language_and_script("en-US"), language_and_script("eng"), language_and_script("zh-TW")
    ('en-Latn', 'en-Latn', 'zh-Hant')
    """
    import langcodes

    language = find_language(code)
    if language is None:
        return code
    script = langcodes.Language.get(code.strip()).maximize().script
    return f"{language.primary}-{script}" if script else language.primary


@functools.lru_cache(maxsize=256)
def find_language(code: str) -> Language | None:
    """Return the language of a code, or None if the code does not exist.

    >>> find_language("sr-Latn").script, find_language("sr").script, find_language("English")
    ('Latin', '', None)
    """
    import langcodes  # here, so that `tt COMMAND --help` does not load the registry
    from langcodes.tag_parser import LanguageTagError

    try:
        tag = langcodes.Language.get(code.strip())
    except LanguageTagError:
        return None
    given = tag.language or "und"
    if not tag.is_valid() and given not in _UNREGISTERED:
        return None
    wide = tag.prefer_macrolanguage().language or "und"  # "zh" for "cmn"
    if tag.script:
        script = tag.script
    elif given in (*OF_TWO_SCRIPTS, "und"):
        script = ""
    else:
        script = _OWN_SCRIPTS.get(given) or _likely_script(given) or _likely_script(wide)
    return Language(code, wide, _SCRIPT_NAMES.get(script, ""))


def _likely_script(language: str) -> str:
    # `maximize` would return Latin for languages that CLDR does not contain.
    from langcodes.data_dicts import LIKELY_SUBTAGS

    _, _, rest = str(LIKELY_SUBTAGS.get(language, "")).partition("-")
    return rest.split("-")[0]
