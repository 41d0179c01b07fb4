"""The keys of entries, which cover everything that decides a translation.

The key of a translation of the model covers the model, its engine, the options of the search, the
languages, and the text for the model. This text already contains the effects of all other options:
of the splitting into sentences, protected spans and the glossary, because spans and terms are
placeholders in the text. The key of a human translation covers the exact text and the languages.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tt.model.engines.translator import Languages
from tt.model.text.languages import language_and_script
from tt.model.transformer.search_options import Decoding

FORMAT = 2  # part of each key, so that entries of other formats are ignored
KEY_BYTES = 16
_NOT_DECIDING = ("batch_tokens",)  # options of the search that change only its speed


def model_context(*, fingerprint: str, engine: Mapping[str, Any], decoding: Decoding) -> str:
    """Return a hexadecimal digest of a model and the options of its search.

    Args:
      fingerprint: The fingerprint of the model.
      engine: The engine and its options, in the form of a job's plan.
      decoding: The options of the search.
    """
    search = {k: v for k, v in dataclasses.asdict(decoding).items() if k not in _NOT_DECIDING}
    return _start([FORMAT, fingerprint, engine, search]).hexdigest()


class Keys:
    """Makes the keys of texts from the texts and from content that all of them share."""

    def __init__(self, content: list[Any]) -> None:
        self._start = _start(content)

    @classmethod
    def of_model(cls, context: str, languages: Languages) -> Keys:
        """Return the keys of texts that the model translates.

        Args:
          context: The result of `model_context`.
          languages: Codes of the source and the target language, or "". They are compared as they
            are, because a model may have several tokens for one language.
        """
        return cls([context, *languages])

    @classmethod
    def of_people(cls, languages: Languages) -> Keys:
        """Return the keys of texts with human translations.

        Regions do not matter, but scripts do: en-US is en, and zh-TW is zh-Hant.

        Args:
          languages: Codes of the source and the target language.
        """
        return cls([FORMAT, "human", *map(language_and_script, languages)])

    def make(self, text: str) -> bytes:
        """Return the key of a text."""
        digest = self._start.copy()
        digest.update(text.encode(errors="surrogatepass"))
        return digest.digest()


def _start(content: list[Any]) -> hashlib.blake2b:
    """Return a digest of JSON content, which ends with a byte that JSON cannot contain."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode() + b"\0", digest_size=KEY_BYTES)
