"""Language codes: the one place that reads them, for all commands.

Which codes there are, which are the same language, and what script it is most likely written in
comes from `langcodes`, that is from IANA's registry and Unicode's CLDR.
"""

from __future__ import annotations

import dataclasses
import functools
import re

from tt.model.errors import UserError

# Languages for which CLDR has no script, or another one than their texts have today.
_OWN_SCRIPTS = {
    "azb": "Arab", "blk": "Mymr", "grc": "Grek", "hmn": "Latn", "hyw": "Armn", "ie": "Latn",
    "nah": "Latn", "tok": "Latn", "xal": "Cyrl",
}  # fmt: skip

_UNREGISTERED = ("tok",)  # newer than the registry that langcodes brings

# Codes that stand for no single language (undetermined, several, uncoded, none), and private codes
# of languages, scripts and regions. XK is not among them: it is Kosovo everywhere.
_NO_LANGUAGE = re.compile(r"und|mul|mis|zxx|q[a-t][a-z]|x-.*")
_NO_SCRIPT = re.compile(r"Qa[ab][a-x]|Z(inh|mth|sye|sym|xxx|yyy|zzz)")
_NO_REGION = re.compile(r"AA|Q[M-Z]|X[A-JL-Z]|ZZ")

# Languages whose corpora come in two scripts: a wrong guess would reject all of a good corpus.
OF_TWO_SCRIPTS = ("sr", "uz", "ku", "ks", "crh")

# ISO 15924 to Unicode's long names; Japanese and Korean texts use several of these.
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
    """A language by its code."""

    code: str  # as it was given, such as "zh_TW" or "cmn"
    primary: str  # the usual code of the language alone, by which its rules are found: "zh" of both
    # What it is written in, as Unicode's long name ("Latin") or "Japanese" or "Korean", which use
    # several; "" where that is not known or not one alone.
    script: str

    @property
    def macrolanguage(self) -> str:
        """The code of the macrolanguage of ISO 639-3 that it is a member of, else its own."""
        from langcodes.data_dicts import MACROLANGUAGES

        found: str = MACROLANGUAGES.get(self.primary, self.primary)
        return found


def read_language(code: str, *, name: str) -> Language:
    """Reads a language code that a user gave for the option `name`, such as "`source_language`".

    It is one of BCP 47 or ISO 639 ("en", "deu", "pt-BR", "sr-Latn"), with - or _, in any case.

    Raises:
      UserError: There is no such code, or it stands for no one language.

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
    """Says whether a code stands for one language.

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
    """Says whether two codes are of one language, or of members of one macrolanguage.

    Such as Bokmål and Norwegian, or Cantonese and Chinese: corpora and models are often named by
    either. Members that are written in different scripts are different languages. A model that
    tells them apart by tokens has a token for each, see `tt.model.text.tokenization`.

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
    """Says whether two codes are of different languages; of what is no code, nobody knows.

    >>> are_different("en", "de"), are_different("en-GB", "eng"), are_different("en", "")
    (True, False, False)
    """
    are_known = all(each and find_language(each) for each in (code, other))
    return are_known and not are_same(code, other)


def named_script(code: str) -> str:
    """Returns the script of ISO 15924 that a code names, or that its region has; else "".

    >>> named_script("sr-Latn"), named_script("zh-TW"), named_script("zho_Hans"), named_script("sr")
    ('Latn', 'Hant', 'Hans', '')
    """
    import langcodes

    tag = langcodes.Language.get(code.strip())
    return tag.maximize().script or "" if tag.territory and not tag.script else tag.script or ""


@functools.lru_cache(maxsize=256)
def find_language(code: str) -> Language | None:
    """Returns the language of a code that was saved unchecked; None where there is no such code.

    >>> find_language("sr-Latn").script, find_language("sr").script, find_language("English")
    ('Latin', '', None)
    """
    import langcodes  # here, so that the help of a command needs no registry
    from langcodes.tag_parser import LanguageTagError

    try:
        tag = langcodes.Language.get(code.strip())
    except LanguageTagError:
        return None
    given = tag.language or "und"
    if not tag.is_valid() and given not in _UNREGISTERED:
        return None
    wide = tag.prefer_macrolanguage().language or "und"  # "zh" of "cmn"
    if tag.script:
        script = tag.script
    elif given in (*OF_TWO_SCRIPTS, "und"):
        script = ""
    else:
        script = _OWN_SCRIPTS.get(given) or _likely_script(given) or _likely_script(wide)
    return Language(code, wide, _SCRIPT_NAMES.get(script, ""))


def _likely_script(language: str) -> str:
    # Not `maximize`: of a language that CLDR does not know, that makes one in Latin.
    from langcodes.data_dicts import LIKELY_SUBTAGS

    _, _, rest = str(LIKELY_SUBTAGS.get(language, "")).partition("-")
    return rest.split("-")[0]
