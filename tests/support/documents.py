"""Read the Markdown of the project: its blocks, its inline code and its links."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))
]  # fmt: skip
SHELLS = ("sh", "bash", "shell", "console", "zsh")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>.*)$")
_NOT_RUN = re.compile(r"^<!-- not run: (?P<reason>.+) -->$")
_ELSEWHERE = "<!-- in a new folder -->"
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# The first group is a quoted word, which may contain a #.
_COMMENT = re.compile(r"""('[^']*'|"[^"]*")|(?:^|(?<=\s))#.*$""", re.M)
_HEADING = re.compile(r"^#+ (.+)$")


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
      document: Path of the file, relative to the root of the project.
      line: Number of the line with the opening fence.
      language: The word after the opening fence.
      text: The lines between the fences.
      not_run: The reason on the line above the block, or "".
      is_elsewhere: Whether the line above the block requests a new folder for it.
    """

    document: str
    line: int
    language: str
    text: str
    not_run: str
    is_elsewhere: bool

    @property
    def is_shell(self):
        return self.language in SHELLS

    def __str__(self):
        return f"{self.document}:{self.line}"


def type_script(text, *, folder, options, seconds):
    """Run a text in a shell that finds the programs of this Python; return stdout and stderr.

    `options` are options of the shell, such as "-euo pipefail". Processes that the text started end
    with the shell.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = subprocess.Popen(
        ["bash", *options.split(), "-c", text],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PATH": path, "XDG_CACHE_HOME": str(folder / ".cache")},
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, said = script.communicate(timeout=seconds)
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
    assert script.returncode == 0, said
    return printed, said


def name_of(document):
    return str(document.relative_to(ROOT))


def blocks_of(document):
    """Return the fenced blocks of a document, in order."""
    blocks = []
    lines = document.read_text("utf-8").split("\n")
    first = None
    for number, line in enumerate(lines, 1):
        if not (fence := _FENCE.match(line)):
            continue
        if first is None:
            first, language = number, fence["language"].strip()
            above = lines[number - 2] if number > 1 else ""
        else:
            text = "\n".join(lines[first : number - 1]) + "\n"
            mark = _NOT_RUN.match(above)
            blocks.append(
                Block(
                    name_of(document), first, language, text,
                    not_run=mark["reason"] if mark else "",
                    is_elsewhere=above == _ELSEWHERE,
                )
            )  # fmt: skip
            first = None
    assert first is None, f"{document}: the block in line {first} has no end"
    return blocks


def prose_of(document):
    """Return the lines of a document that are outside of blocks, by line number."""
    is_inside = False
    found = {}
    for number, line in enumerate(document.read_text("utf-8").split("\n"), 1):
        if _FENCE.match(line):
            is_inside = not is_inside
        elif not is_inside:
            found[number] = line
    return found


def paragraphs_of(document):
    """Return paragraphs, list items and table rows, each on one line."""
    found = [""]
    for line in prose_of(document).values():
        is_start = not line.strip() or re.match(r"^(#|\||\s*[-*] |\s*\d+\. )", line)
        if is_start:
            found.append("")
        found[-1] = f"{found[-1]} {line.strip()}".strip()
    return [text for text in found if text]


def inline_code_of(text):
    return _INLINE.findall(text)


def links_of(document):
    return [link for line in prose_of(document).values() for link in _LINK.findall(line)]


def anchors_of(document):
    """Return the anchors of a document's headings, in the form of GitHub and MkDocs."""
    headings = filter(None, map(_HEADING.match, prose_of(document).values()))
    return {
        re.sub(r"[^\w\- ]", "", heading[1].strip().lower()).replace(" ", "-")
        for heading in headings
    }


def commands_of(text):
    """Return the simple commands of a shell text as lists of words, without here-documents."""
    text = re.sub(r"<<'(\w+)'(.*?)\n.*?\n\1\n", r"\2\n", text, flags=re.S)
    text = _COMMENT.sub(lambda found: found[1] or "", text.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>()\n")
    lexer.whitespace = " \t"
    lexer.commenters = ""
    lexer.wordchars += "{}[]$%^,@:"
    commands = [[]]
    for token in lexer:
        if set(token) <= set("|&;<>()\n") and set(token) & set("|&;()\n"):
            commands.append([])
        else:
            commands[-1].append(token)
    return [command for command in commands if command]


def tt_commands_of(text):
    """Return the arguments of each call of `tt` in a shell text."""
    return [words[1:] for words in commands_of(text) if Path(words[0]).name == "tt"]
