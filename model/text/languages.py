"""Language codes: the one place that reads them, for all commands.

Which codes there are, which are the same language, and what script it is most likely written in
comes from `langcodes`, that is from IANA's registry and Unicode's CLDR.
"""

from __future__ import annotations

import dataclasses
import functools
import re

from model.errors import UserError

# Languages for which CLDR has no script, or another one than their texts have today.
_OWN_SCRIPTS = {
    "azb": "Arab", "blk": "Mymr", "grc": "Grek", "hmn": "Latn", "hyw": "Armn", "ie": "Latn",
    "nah": "Latn", "tok": "Latn", "xal": "Cyrl",
}  # fmt: skip

_UNREGISTERED = ("tok",)  # newer than the registry that langcodes brings

# Codes of ISO 639 that stand for no single language; and private ones, whose meaning nobody else
# knows: of languages, scripts and regions. XK is not among them: it is Kosovo everywhere.
_NO_LANGUAGE = {
    "und": "for an undetermined language", "mul": "for several languages",
    "mis": "for languages without a code", "zxx": "for what is no language",
}  # fmt: skip

_PRIVATE_LANGUAGE = re.compile(r"q[a-t][a-z]|x-.*")
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

# English names of languages with large corpora: what is typed where a code is wanted.
_NAMES = {
    "afrikaans": "af", "albanian": "sq", "amharic": "am", "arabic": "ar", "armenian": "hy",
    "azerbaijani": "az", "basque": "eu", "belarusian": "be", "bengali": "bn", "bosnian": "bs",
    "bulgarian": "bg", "burmese": "my", "cantonese": "yue", "catalan": "ca", "chinese": "zh",
    "croatian": "hr", "czech": "cs", "danish": "da", "dutch": "nl", "english": "en",
    "esperanto": "eo", "estonian": "et", "farsi": "fa", "filipino": "fil", "finnish": "fi",
    "french": "fr", "galician": "gl", "georgian": "ka", "german": "de", "greek": "el",
    "gujarati": "gu", "hausa": "ha", "hebrew": "he", "hindi": "hi", "hungarian": "hu",
    "icelandic": "is", "igbo": "ig", "indonesian": "id", "irish": "ga", "italian": "it",
    "japanese": "ja", "kannada": "kn", "kazakh": "kk", "khmer": "km", "klingon": "tlh",
    "korean": "ko", "kurdish": "ku", "kyrgyz": "ky", "latin": "la", "latvian": "lv",
    "lithuanian": "lt", "macedonian": "mk", "malay": "ms", "malayalam": "ml", "maltese": "mt",
    "mandarin": "zh", "marathi": "mr", "mongolian": "mn", "nepali": "ne", "norwegian": "no",
    "pashto": "ps", "persian": "fa", "polish": "pl", "portuguese": "pt", "punjabi": "pa",
    "romanian": "ro", "russian": "ru", "serbian": "sr", "sinhala": "si", "slovak": "sk",
    "slovene": "sl", "slovenian": "sl", "somali": "so", "spanish": "es", "swahili": "sw",
    "swedish": "sv", "tagalog": "tl", "tajik": "tg", "tamil": "ta", "telugu": "te", "thai": "th",
    "tibetan": "bo", "turkish": "tr", "ukrainian": "uk", "urdu": "ur", "uzbek": "uz",
    "vietnamese": "vi", "welsh": "cy", "xhosa": "xh", "yiddish": "yi", "yoruba": "yo",
    "zulu": "zu",
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
    if language is None:
        raise UserError(
            f"{name} must be a language code such as en, de or zh-Hant. Received: {code}"
            f"{suggestion(code)}"
        )
    if meaning := _special_meaning(code):
        raise UserError(
            f"{name} must be the code of one language, such as en, de or zh-Hant, or be left out. "
            f"Received: {code}, which stands {meaning}"
        )
    return language


def is_one_language(code: str) -> bool:
    """Says whether a code stands for one language.

    >>> is_one_language("de"), is_one_language("mul"), is_one_language("English")
    (True, False, False)
    """
    return find_language(code) is not None and not _special_meaning(code)


def are_same(code: str, other: str) -> bool:
    """Says whether two codes are of one language, or of members of one macrolanguage.

    Such as Bokmål and Norwegian, or Cantonese and Chinese: corpora and models are often named by
    either. Members that are written in different scripts are different languages. A model that
    tells them apart by tokens has a token for each, see `model.text.tokenization`.

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


def _special_meaning(code: str) -> str:
    """Says what a valid code stands for where that is not one language; else ""."""
    import langcodes

    tag = langcodes.Language.get(code.strip())
    language = tag.language or "und"
    if language in _NO_LANGUAGE:
        return _NO_LANGUAGE[language]
    for pattern, part, kind in (
        (_PRIVATE_LANGUAGE, language, "language"),
        (_NO_SCRIPT, tag.script, "script"),
        (_NO_REGION, tag.territory, "region"),
    ):
        if part and pattern.fullmatch(part):
            return f"for a {kind} that is private or unknown"
    return ""


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
    _, _, rest = _likely_subtags().get(language, "").partition("-")
    return rest.split("-")[0]


def _likely_subtags() -> dict[str, str]:
    from langcodes.data_dicts import LIKELY_SUBTAGS

    found: dict[str, str] = LIKELY_SUBTAGS
    return found


def suggestion(code: str) -> str:
    """Returns the end of a message on a wrong code: the code that was meant, if it can be guessed.

    >>> suggestion("English"), suggestion("jp"), suggestion("xx")
    (' (did you mean en?)', ' (did you mean ja?)', '')
    """
    word = code.strip().lower()
    meant = _NAMES.get(word) or _likely_subtags().get(f"und-{word.upper()}", "").split("-")[0]
    return f" (did you mean {meant}?)" if meant else ""
