"""HTML elements whose texts are escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

_VOID = ("meta", "link", "br")


class Html(str):
    """Text that is HTML; all other text is escaped."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: str) -> Html:
    """Return an element; attributes and children that are not `Html` are escaped.

    In names of attributes "_" stands for "-", and a final "_" is dropped.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """Return parts one after the other, escaped unless they are `Html`."""
    return Html("".join(p if isinstance(p, Html) else html.escape(str(p)) for p in parts))


def script_data(name: str, value: Any) -> Html:
    """Return data for the page's script; no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')
