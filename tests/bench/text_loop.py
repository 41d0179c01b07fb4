"""Translate rows on request with a decoder that returns at once; see `texts.py`.

The argument is a file that `texts.write_inputs` wrote. Each line of the input is a JSON object:
{"kind": NAME, "workers": N, "are_threads": BOOL, "repeats": N}. The answer contains the seconds of
the wall clock, the CPU seconds without those of the decoder, the CPU seconds of the encoder among
them, and the numbers of rows with another status than "ok" and with flags.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import multiprocessing
import pkgutil
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tt import pipelines
from tt.model.engines import translator as interface
from tt.model.engines.translator import Hypothesis, ScoredText, Translation, Work
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import UNK_ID, Vocabulary
from tt.model.transformer.search_options import Decoding

_SENTENCE_END = re.compile(r"(?<=[.?!]) ")
_WORD = re.compile(r"\S+")
_TOKEN_SCORE, _LOST_SCORE = -0.2, -5.0


def find(name: str) -> Any:
    """Return an object of the package of texts, in whichever file it is."""
    package = importlib.import_module(f"{pipelines.__name__}.texts")
    for module in pkgutil.iter_modules(package.__path__):
        found = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), name, None)
        if found is not None:
            return found
    raise LookupError(name)


def _equal_start(text: str, other: str) -> int:
    """Return the length of the beginning that two texts share."""
    different = (i for i, pair in enumerate(zip(text, other, strict=False)) if len({*pair}) > 1)
    return next(different, min(len(text), len(other)))


def _timed(name: str) -> Callable[[Any], Any]:
    """Add the CPU time of a method to an attribute."""

    def decorate(method: Any) -> Any:
        @functools.wraps(method)
        def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return method(self, *args, **kwargs)
            finally:
                setattr(self, name, getattr(self, name) + time.process_time() - start)

        return measured

    return decorate


class Lookup:
    """A translator with a real vocabulary, and a given translation for each sentence.

    A word is a token of the target, and belongs to the source words at the same relative place. The
    class has the methods of two versions of the interface.

    Args:
      vocabulary: The vocabulary.
      translations: The translations of sentences, as the model receives them. The words of other
        sentences change their order.
    """

    decoding = Decoding()

    def __init__(self, vocabulary: Vocabulary, translations: dict[str, str]) -> None:
        self._vocabulary = vocabulary
        self._made = {
            normalized: Translation((Hypothesis(text, _TOKEN_SCORE * size, True, size),))
            for normalized, text in zip(
                vocabulary.normalization([*translations]), translations.values(), strict=True
            )
            for size in [len(text.split()) + 1]
        }
        self._texts: dict[tuple[int, ...], str] = {}  # the texts of encoded sentences
        self.encoding = self.decoded = 0.0  # CPU seconds

    @_timed("encoding")
    def prepare(self, texts: list[str], **_: Any) -> list[Any]:
        """Encode texts."""
        ids = self._vocabulary.encode(texts)
        create: Any = interface.__dict__["Input"]
        return [
            create(
                text=text,
                length=len(each) - 2,
                unknown=(*self._vocabulary.find_unknown(text),) if UNK_ID in each else (),
                encoded=each,
            )
            for text, each in zip(texts, ids, strict=True)
        ]

    @_timed("decoded")
    def translate(self, inputs: list[Any]) -> tuple[list[Translation], Work]:
        """Look the translations up."""
        return self._translate([each.text for each in inputs])

    @_timed("decoded")
    def score(self, pairs: list[tuple[Any, str]]) -> list[ScoredText]:
        """Score translations."""
        return self._score([(source.text, text) for source, text in pairs])

    @_timed("encoding")
    def encode(self, texts: list[str]) -> list[list[int]]:
        """Encode texts."""
        return self._vocabulary.encode(texts)

    @_timed("decoded")
    def translate_ids(self, source_ids: list[list[int]]) -> tuple[list[Translation], Work]:
        """Look the translations up."""
        return self._translate(self._vocabulary.decode(source_ids))

    @_timed("decoded")
    def score_texts(self, source_ids: list[list[int]], texts: list[str]) -> list[ScoredText]:
        """Score translations."""
        sources = self._vocabulary.decode(source_ids)
        return self._score([*zip(sources, texts, strict=True)])

    def count_unknown(self, text: str) -> Any:
        """Count unknown parts of a text."""
        return self._vocabulary.count_unknown(text)

    def is_input_error(self, error: Exception) -> bool:
        """Stop at any error."""
        return False

    def _translate(self, texts: list[str]) -> tuple[list[Translation], Work]:
        found = map(self._find, self._vocabulary.normalization(texts))
        return [*found], Work(sources=len(texts))

    def _find(self, text: str) -> Translation:
        """Return the translation of a sentence, of several sentences, or of unknown words."""
        if text not in self._made:
            parts = _SENTENCE_END.split(text)
            best = [self._find(each).hypotheses[0] for each in parts] if len(parts) > 1 else []
            made = " ".join(each.text for each in best) or " ".join(reversed(text.split()))
            size = len(made.split()) + 1
            self._made[text] = Translation((Hypothesis(made, _TOKEN_SCORE * size, True, size),))
        return self._made[text]

    def _score(self, pairs: list[tuple[str, str]]) -> list[ScoredText]:
        """Give low scores to the words of a target whose source words are missing.

        The whole source precedes the sources without some words, as `find_links` sends them.
        """
        made: list[ScoredText] = []
        whole = ("", "")
        for source, target in pairs:
            if target != whole[1] or len(source) >= len(whole[0]):
                whole = source, target
            size = max(1, len(whole[0]))
            first = _equal_start(source, whole[0])
            last = max(first, size - _equal_start(source[::-1], whole[0][::-1]))
            first, last = (place * len(target) // size for place in (first, last))
            words = [word.span() for word in _WORD.finditer(target)]
            scores = [
                _LOST_SCORE if first <= (start + end) // 2 < last else _TOKEN_SCORE
                for start, end in words
            ]
            made.append(ScoredText([end for _, end in words], scores))
        return made


class Loop:
    """Translates the rows of a file."""

    def __init__(self, inputs: dict[str, Any]) -> None:
        vocabulary = Vocabulary(inputs["vocabulary"], TextNormalization())
        self._rows = inputs["rows"]
        self._translator = Lookup(vocabulary, inputs["translations"])
        self._translate = functools.partial(
            find("translate_texts"),
            translator=self._translator,
            options=find("TextOptions")(
                source_language="en", target_language="de", placeholders=8
            ),
            limits=find("Limits")(
                target_script="Latin", source_language="en", target_language="de", shortest=0.2,
                usual=1.1, longest=4.0, least_score=-3.0,
            ),
        )  # fmt: skip

    def measure(
        self, kind: str, *, workers: int, are_threads: bool, repeats: int
    ) -> dict[str, Any]:
        """Translate the rows of a kind several times with each worker."""
        rows = self._rows[kind]
        decoder = self._translator
        decoder.encoding = decoder.decoded = 0.0
        made: list[Any] = []

        def work() -> None:
            for _ in range(repeats):
                made[:] = self._translate(rows).translations

        began, cpu_began = time.perf_counter(), time.process_time()
        if workers == 1:
            work()
        else:
            context: Any = threading if are_threads else multiprocessing.get_context("fork")
            create = context.Thread if are_threads else context.Process
            started = [create(target=work) for _ in range(workers)]
            for each in started:
                each.start()
            for each in started:
                each.join()
        return {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - cpu_began - decoder.decoded,
            "encoding": decoder.encoding,
            "not_ok": sum(each.status != "ok" for each in made),
            "flagged": sum(bool(each.flags) for each in made),
        }


def main() -> None:
    """Answer requests until the input ends."""
    loop = Loop(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    gc.freeze()  # as jobs do after loading
    for line in sys.stdin:
        print(json.dumps(loop.measure(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
