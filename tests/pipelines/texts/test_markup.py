"""Segments of Markdown and HTML are exact, and everything outside them stays as it is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tt.pipelines.texts.markup.formats import FORMATS, HTML, MARKDOWN, PLAIN, detect_format
from tt.pipelines.texts.markup.regions import Block, Role, find_partners

# Parts of texts, including unclosed and misplaced ones.
MARKUP = st.sampled_from(
    ["word ", "two words", "\n", "\n\n", "\r\n", "\r", "\t", "    ", "  \n", "\\\n", "\0", "\f",
     "\u200b", "\u2028", "\xa0", "😀", "# ", "## a ##", "- ", "* ", "1. ", "> ", "> > ", "- [ ] ",
     "```", "~~~\n", "`", "``", "`a`", "*", "**", "_", "__", "~~", "[", "]", "](u)", "](u \"a t\")",
     "![", "[a]: http://u 'x'\n", "[a]", "[b][a]", "|", "\\|", "| a | b |\n", "|---|---|\n",
     "---\n",
     "===\n", "+++\n", "---\nk: v\n---\n", "<", ">", "<b>", "</b>", "<br>", "<br/>", "<p>", "</p>",
     "<div title=\"a b\">", "</div>", "<img alt='a b' src=x>", "<a title=\"", "\"", "'", "<code>",
     "</code>", "<pre>", "</pre>", "<script>", "</script>", "<!--", "-->", "<![CDATA[", "]]>", "<?",
     "?>", "<span translate=\"no\">", "</span>", "<p translate=no>", "<svg>", "</svg>",
     "<https://u>",
     "<textarea placeholder='a b'>", "&amp;", "&lt;", "&lt;b&gt;", "&lt;/b&gt;", "&lt;br&gt;", "&",
     "&#x;", "&nbsp;", "&nothing;", "\\", "{x}", "https://a.b/c"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(MARKUP, max_size=40).map("".join))
NAMES = st.sampled_from([*FORMATS])


def segments_of(text, name):
    """Return the text of each segment."""
    found = FORMATS[name].find_segments(text)
    return [text[segment.start : segment.end] for segment in found]


def marks_of(text, name):
    """Return the role and the text of each mark of all segments, except simple line breaks."""
    return [
        (mark.role.name, text[mark.start : mark.end])
        for segment in FORMATS[name].find_segments(text)
        for mark in segment.marks
        if text[mark.start : mark.end] not in ("\n", "\r\n")
    ]


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("# A title #\n\nA text\nin two lines\n", ["A title", "A text\nin two lines"]),
        ("- one\n- two\n\n  more\n  1. three\n* four", ["one", "two", "more", "three", "four"]),
        ("- [ ] open\n- [x] done\n- [y] text", ["open", "done", "[y] text"]),
        ("a\n\n    code\n\n```py\ncode\n```\n~~~\ncode\n~~~\nb", ["a", "b"]),
        ("---\ntitle: x\n---\n# One", ["One"]),
        ("[a]: http://u.org 'title'\n\nOne [a].", ["One [a]."]),
        ("| a | b |\n|---|:-:|\n| c \\| d | e |\n| f |\n|g|h|i|\n\nj",
         ["a", "b", "c \\| d", "e", "f", "g", "h", "j"]),
        ("| a dog | a brown dog runs |", ["a dog", "a brown dog runs"]),
        ("<div>\nOne <b>two</b>\n</div>\n\nThree", ["One <b>two</b>", "Three"]),
        ("One<p>two</p> *three*", ["One", "two", "*three*"]),
        ("<script>\none\n\ntwo\n</script>\nThree", ["Three"]),
        ("`code`\n\n![](u)\n\n:-)", []),
        ("+++\ntitle = 'x'\n+++\nOne", ["One"]),
        ("| a | `b|c` |\n| d | e |", ["a", "d", "e"]),
        ("> " * 100 + "One", ["One"]),
        ("One\n| a | b |\n|---|---|\n| c | d |", ["One", "a", "b", "c", "d"]),
        ("> <div>\n> One\n>\n> <p>two <b\n> x>three</b>", ["One", "two <b\n> x>three</b>"]),
        ("[Ann]: Hello\n\n> [Bob]: Hi\n\n[c]: /u", ["[Ann]: Hello", "[Bob]: Hi"]),
        ("- One\n  ***\n  two", ["One", "two"]),
        ("See <https://u.org>", ["See <https://u.org>"]),
        ("| a dog |", ["| a dog |"]),
        ("> One <p>\n> two", ["One", "two"]),
    ],
)  # fmt: skip
def test_segments_of_markdown(text, segments):
    assert segments_of(text, MARKDOWN) == segments
    windows = text.replace("\n", "\r\n")
    assert segments_of(windows, MARKDOWN) == [each.replace("\n", "\r\n") for each in segments]


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("a *b* **c** __d__ _e_ ~~f~~", [
            ("OPEN", "*"), ("CLOSE", "*"), ("OPEN", "**"), ("CLOSE", "**"), ("OPEN", "__"),
            ("CLOSE", "__"), ("OPEN", "_"), ("CLOSE", "_"), ("OPEN", "~~"), ("CLOSE", "~~")]),
        ("**a [b c_ `d", []),
        ("5 * 3 * 2, snake_case_name, \\*a\\*", [("CODE", "\\*"), ("CODE", "\\*")]),
        ("a [b *c*](u(1) 'd e') [f]", [
            ("OPEN", "["), ("OPEN", "*"), ("CLOSE", "*"), ("CLOSE", "](u(1) 'd e')")]),
        ("[r]: /u\n\na [b][r] [r][] [r]", [
            ("OPEN", "["), ("CLOSE", "][r]"), ("OPEN", "["), ("CLOSE", "][]"), ("OPEN", "["),
            ("CLOSE", "]")]),
        ("a `b *c*` ``d`e`` f", [("CODE", "`b *c*`"), ("CODE", "``d`e``")]),
        ("a  \nb\\\nc\nd", [("VOID", "  \n"), ("VOID", "\\\n")]),
        ("- a\n  b \n  c", [("SPACE", "\n  "), ("SPACE", " \n  ")]),
        ("> a [b\n> c](u\n> 'd') `e\n> f`", [
            ("OPEN", "["), ("SPACE", "\n> "), ("CLOSE", "](u\n> 'd')"), ("CODE", "`e\n> f`")]),
        ("a <b>c</b><br>d <code>e *f*</code>", [
            ("OPEN", "<b>"), ("CLOSE", "</b>"), ("VOID", "<br>"), ("CODE", "<code>e *f*</code>")]),
        ("a <!-- b --> c &lt;b&gt;d&lt;/b&gt;", [
            ("VOID", "<!-- b -->"), ("OPEN", "&lt;b&gt;"), ("CLOSE", "&lt;/b&gt;")]),
        ("a\0*b*\r\n> c\r\n> *d*", [
            ("OPEN", "*"), ("CLOSE", "*"), ("SPACE", "\r\n> "), ("OPEN", "*"), ("CLOSE", "*")]),
        ("a ![b *c*](u) d", [("OPEN", "!["), ("OPEN", "*"), ("CLOSE", "*"), ("CLOSE", "](u)")]),
        ("a <https://u.org> <x@y.org>", [("CODE", "<https://u.org>"), ("CODE", "<x@y.org>")]),
        ("~5 to 6~, 7~8~9", []),
        ("# a *b*\t", [("OPEN", "*"), ("CLOSE", "*")]),
        (r"a \\_b", [("CODE", r"\\")]),
        ("> a <b\n> c='d'>e</b>", [("OPEN", "<b\n> c='d'>"), ("CLOSE", "</b>")]),
        ("> [Über\n> uns][] [über uns]\n\n[über uns]: /é", [
            ("OPEN", "["), ("SPACE", "\n> "), ("CLOSE", "][]"), ("OPEN", "["), ("CLOSE", "]")]),
        ("\\[a\\] é \\_*b\\**", [
            ("CODE", "\\["), ("CODE", "\\]"), ("CODE", "\\_"), ("OPEN", "*"), ("CODE", "\\*"),
            ("CLOSE", "*")]),
    ],
)  # fmt: skip
def test_marks_of_markdown(text, marks):
    assert marks_of(text, MARKDOWN) == marks


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("<p>One <b>two</b><p>Three</p>Four<hr>", ["One <b>two</b>", "Three", "Four"]),
        ("<ul>\n  <li> One\n  <li>Two <br></ul>", ["One", "Two"]),
        ("<br><br>One<br>two<!-- three -->", ["One<br>two"]),
        ("<!DOCTYPE html><head><title>One</title><style>b {}</style></head>", ["One"]),
        ("<script>'<p>One</p>'</script><pre>Two</pre><textarea>Three</textarea>Four", ["Four"]),
        ("<div translate='no'><div>One</div>two</div>Three", ["Three"]),
        ("<p>&nbsp;</p><p>-</p><p><code>x</code></p>", []),
        ("if a < b and c > d", ["if a < b and c > d"]),
        ("<p <b>One</b>", ["<p <b>One</b>"]),
        ("<SCRIPT>one</SCRIPT >Two<pre>three", ["Two"]),
        ("<p class='a notranslate'>One</p>Two", ["Two"]),
        ("<p data-x='a > b'>One</p>", ["One"]),
        ("One <!-- two", ["One"]),
        ("<img alt='a b'> One <img alt='c d'>", ["a b", "One", "c d"]),
    ],
)  # fmt: skip
def test_segments_of_html(text, segments):
    assert segments_of(text, HTML) == segments


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("<b>a</b> <i>c<br/>d</b>", [
            ("OPEN", "<b>"), ("CLOSE", "</b>"), ("OPEN", "<i>"), ("VOID", "<br/>"),
            ("CLOSE", "</b>")]),
        ("a <code class=x>b <i>c</i></code> <kbd>d</kbd>", [
            ("CODE", "<code class=x>b <i>c</i></code>"), ("CODE", "<kbd>d</kbd>")]),
        ("a <span translate=no>b <span>c</span> d</span> e", [
            ("CODE", "<span translate=no>b <span>c</span> d</span>")]),
        ("a &lt;a href=&quot;u&quot;&gt;b&lt;/a&gt;&lt;br/&gt; &lt; c &gt; &lt;x&gt;", [
            ("OPEN", "&lt;a href=&quot;u&quot;&gt;"), ("CLOSE", "&lt;/a&gt;"),
            ("VOID", "&lt;br/&gt;"), ("CODE", "&lt;x&gt;")]),
        ("<p>a\n   b\nc\r\nd  \ne", [("SPACE", "\n   "), ("SPACE", "  \n")]),
        ("a&nbsp;b&#160;c&#xA0;d &lt;b&gt;", [
            ("SPACE", "&nbsp;"), ("SPACE", "&#160;"), ("SPACE", "&#xA0;"), ("CODE", "&lt;b&gt;")]),
    ],
)  # fmt: skip
def test_marks_of_html(text, marks):
    assert marks_of(text, HTML) == marks


def test_attributes_of_blocks_and_lone_images_are_segments():
    text = (
        "<div title=' A title ' data-title='no'><img src='x' ALT=\"A dog\" title=''></div>"
        "<input placeholder='Your name' value='no'><meta name='description' content='A page'>"
        "<meta name='author' content='Ann'><p title=word translate=no>no</p>"
        "<button aria-label='Close it'></button>"
    )
    found = FORMATS[HTML].find_segments(text)
    assert [text[segment.start : segment.end] for segment in found] == [
        "A title", "A dog", "Your name", "A page", "Close it"]  # fmt: skip
    assert all(segment.is_attribute for segment in found)


@pytest.mark.parametrize(
    "text",
    ["# A title", "## x\ntext", "```\na\n```", "a\n~~~\n", "| a | b |\n|---|---|", "a | b\n-|-",
     "| dog | a brown dog runs |", "[x](y)", "![x](y.png)", "a **b c** d", "see `x = 1`.",
     "- a red ball", "* x", "+ x", "- [ ] task", "1. x\n2. y", "> quoted text", "> \"Quoted\"",
     "a ~~b~~ c", "a *word* b", "an _old word_.", "Title\n=====\n", "这是**重点**内容",
     "<b>a</b> [x](y)", "- <b>a</b>", "# a\n<p>b", "[a]: https://u.org\n\n[a]",
     "---\ntitle: x\n---\ntext"],
)  # fmt: skip
def test_markdown_is_detected(text):
    assert detect_format(text) == MARKDOWN


@pytest.mark.parametrize(
    "text",
    ["<b>a</b>", "a<br>b", "a<br/>b", "<p>a", "<P CLASS='x'>a", "a <a href=\"u\">b</a>",
     "<!-- a -->b",
     "<!DOCTYPE html>\n- a", "<html>\n# a", "&lt;b&gt;a&lt;/b&gt;", "a &lt;br/&gt; b",
     "**a** <i>b</i>",
     "<script>\n * a\n # b\n</script><p>c", "<address class='x'>a", "<code>a</code>"],
)  # fmt: skip
def test_html_is_detected(text):
    assert detect_format(text) == HTML


@pytest.mark.parametrize(
    "text",
    ["", "A sentence.", "Two\nlines", "if a <b then c> d", "<name>", "Enter <address> here",
     "a < b > c",
     "AT&T & co", "5 * 3 * 2", "2**3**4", "snake_case_name", "_private and _other",
     "#1 in the list", "#hashtag", "- 5 °C", "-5", "1990. I was born", "3. Oktober 1990", "> 5 kg",
     "> = 5", "a - b", "price* and cost*", "don`t and won`t", "|x| + |y|", "a[0] (x)", "[sic]",
     "<3",
     "a || b", "~5", "5 ~~ 6", "__init__", "--- a ---", "Yours\n--\nAnn", "[Ann]: Hello", "*",
     "* * *"],
)  # fmt: skip
def test_plain_text_is_detected(text):
    assert detect_format(text) == PLAIN
    assert FORMATS[PLAIN].find_segments(text) == [Block(0, len(text))]


@given(TEXTS, NAMES)
def test_segments_and_marks_are_in_order_and_disjoint(text, name):
    position = 0
    for segment in FORMATS[name].find_segments(text):
        assert position <= segment.start <= segment.end <= len(text)
        position = segment.start
        for mark in segment.marks:
            assert position <= mark.start < mark.end <= segment.end
            position = mark.end
            for start, end in mark.attributes:
                assert mark.start < start < end < mark.end
        position = segment.end
        if name in (MARKDOWN, HTML):
            content = text[segment.start : segment.end]
            assert content == content.strip() != ""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a [b](u 'c d') ![e](<f g> \"h\") [i](u (j) )", ["c d", "h", "j"]),
        ("a [b](u 'c\nd') [e](u ' ') [f]('g') [h](i'j')", []),
        ("> a [b](u\n> 'c d'\n> )", ["c d"]),
        ("a [b] [c][b]\n\n[b]: /u 'c d'", []),
        ("a <img alt='b\nc' title='d e'> f", ["d e"]),
    ],
)
def test_attributes_of_markdown(text, values):
    [segment] = FORMATS[MARKDOWN].find_segments(text)
    found = [text[slice(*value)] for mark in segment.marks for value in mark.attributes]
    assert found == values


def test_only_formats_with_marks_decode_entities():
    decoded = {name: each.decode("a &amp; b", [], is_attribute=False)[0] for name, each in
               FORMATS.items()}  # fmt: skip
    assert decoded == {PLAIN: "a &amp; b", MARKDOWN: "a & b", HTML: "a & b"}


@pytest.mark.parametrize(
    ("text", "name", "pairs"),
    [
        ("a<br>\nb <b>b <i>c</b> d</i> <b>e</b>", HTML, [("<b>", "</b>"), ("<b>", "</b>")]),
        ("&lt;b&gt;a&lt;/b&gt; &lt;i&gt;", HTML, [("&lt;b&gt;", "&lt;/b&gt;")]),
        ("**a *b*** [c](u)", MARKDOWN, [("**", "**"), ("*", "*"), ("[", "](u)")]),
    ],
)
def test_pairs_of_tags(text, name, pairs):
    [segment] = FORMATS[name].find_segments(text)
    tags = [
        (mark.role, text[mark.start : mark.end])
        for mark in segment.marks
        if mark.role in (Role.OPEN, Role.CLOSE)
    ]
    partners = sorted(find_partners(tags).items())
    assert [(tags[i][1], tags[j][1]) for i, j in partners if i < j] == pairs
    assert all(text in pairs[0] for _, text in tags if text.startswith("&lt;"))


LONG = [
    "![", "[](", "[a](b 'c' ", "[a]: b\n", "[a]:", "[a]\n\n[a]: /u\n", "*a_ ", "**", "`` a `",
    "~~a~", "> ", "> - ", "- <b>\n", "> <div>\n", "# *a* \t", "|", "|a|\n", "|a|\n|-|\n", "\\*",
    "a\\\n", " \t", "\r", "é*a*", "<b>", "</b><b>", "<a \" =\"", "<!--", "<code>",
    "<p translate=no>", "&lt;b ", "&lt;b&gt;", "&nbsp;", "\0",
]  # fmt: skip


@pytest.mark.parametrize("pump", LONG)
def test_long_text_takes_linear_time(pump):
    text = pump * (60_000 // len(pump))
    for markup in FORMATS.values():
        start = time.process_time()
        detect_format(text)
        markup.find_segments(text)
        # 0.4 s on a slow machine. Quadratic time in Python would take minutes.
        assert time.process_time() - start < 5


@given(st.lists(MARKUP, max_size=40).map("".join))
def test_line_ends_do_not_change_segments(text):
    text = text.replace("\r", "")
    windows = text.replace("\n", "\r\n")
    assert [each.replace("\r", "") for each in segments_of(windows, MARKDOWN)] == segments_of(
        text, MARKDOWN
    )
    assert [(role, mark.replace("\r", "")) for role, mark in marks_of(windows, MARKDOWN)] == (
        marks_of(text, MARKDOWN)
    )


@given(st.lists(MARKUP, max_size=30).map("".join))
def test_segments_contain_the_text_of_the_parser(text):
    """The visible words of paragraphs are in segments, and code is not."""
    text = "".join(text.split("<")).replace("&", "").replace("+++", "").replace("---", "")
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    words = sum(
        child.content.count("word")
        for token in tokens
        if token.type == "inline"
        for child in token.children
        if child.type in ("text", "image")
    )
    code = sum(
        child.content.count("word")
        for token in tokens
        for child in token.children or ()
        if child.type == "code_inline"
    )
    segments = FORMATS[MARKDOWN].find_segments(text)
    found = sum(text.count("word", segment.start, segment.end) for segment in segments)
    coded = sum(
        text.count("word", mark.start, mark.end)
        for segment in segments
        for mark in segment.marks
        if mark.role is Role.CODE
    )
    assert words <= found <= words + code
    assert coded <= code
