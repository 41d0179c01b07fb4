"""Regions of Markdown and HTML are exact, and everything outside them stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tt.pipelines.texts.markup import AUTO, HTML, MARKDOWN, PLAIN, detect_format, find_regions
from tt.pipelines.texts.regions import Region, Role

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
FORMATS = st.sampled_from([PLAIN, MARKDOWN, HTML, AUTO])


def regions_of(text, format):  # noqa: A002
    """Return the text of each region."""
    return [text[region.start : region.end] for region in find_regions(text, format=format)]


def marks_of(text, format):  # noqa: A002
    """Return the role and the text of each mark of all regions."""
    return [
        (mark.role.name, text[mark.start : mark.end])
        for region in find_regions(text, format=format)
        for mark in region.marks
    ]


@pytest.mark.parametrize(
    ("text", "regions"),
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
    ],
)  # fmt: skip
def test_regions_of_markdown(text, regions):
    assert regions_of(text, MARKDOWN) == regions
    windows = text.replace("\n", "\r\n")
    assert regions_of(windows, MARKDOWN) == [each.replace("\n", "\r\n") for each in regions]


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("a *b* **c** __d__ _e_ ~~f~~", [
            ("OPEN", "*"), ("CLOSE", "*"), ("OPEN", "**"), ("CLOSE", "**"), ("OPEN", "__"),
            ("CLOSE", "__"), ("OPEN", "_"), ("CLOSE", "_"), ("OPEN", "~~"), ("CLOSE", "~~")]),
        ("**a [b c_ `d", []),
        ("5 * 3 * 2, snake_case_name, \\*a\\*", []),
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
    ],
)  # fmt: skip
def test_marks_of_markdown(text, marks):
    assert marks_of(text, MARKDOWN) == marks


@pytest.mark.parametrize(
    ("text", "regions"),
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
    ],
)  # fmt: skip
def test_regions_of_html(text, regions):
    assert regions_of(text, HTML) == regions


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
        ("<p>a\n   b\nc\r\nd", [("SPACE", "\n   ")]),
    ],
)  # fmt: skip
def test_marks_of_html(text, marks):
    assert marks_of(text, HTML) == marks


def test_attributes_of_blocks_and_lone_images_are_regions():
    text = (
        "<div title=' A title ' data-title='no'><img src='x' ALT=\"A dog\" title=''></div>"
        "<input placeholder='Your name' value='no'><meta name='description' content='A page'>"
        "<meta name='author' content='Ann'><p title=word translate=no>no</p>"
        "<button aria-label='Close it'></button>"
    )
    found = find_regions(text, format=HTML)
    assert [text[region.start : region.end] for region in found] == [
        "A title", "A dog", "Your name", "A page", "Close it"]  # fmt: skip
    assert all(region.is_attribute for region in found)


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
    assert find_regions(text, format=AUTO) == [Region(0, len(text))]


@given(TEXTS, FORMATS)
def test_regions_and_marks_are_in_order_and_disjoint(text, format):  # noqa: A002
    position = 0
    for region in find_regions(text, format=format):
        assert position <= region.start <= region.end <= len(text)
        position = region.start
        for mark in region.marks:
            assert position <= mark.start < mark.end <= region.end
            position = mark.end
            for start, end in mark.attributes:
                assert mark.start < start < end < mark.end
            assert mark.role is not Role.SPACE or text[mark.start : mark.end] not in ("\n", "\r\n")
        position = region.end
        if format in (MARKDOWN, HTML):
            content = text[region.start : region.end]
            assert content == content.strip() != ""


@given(st.lists(MARKUP, max_size=40).map("".join))
def test_line_ends_do_not_change_regions(text):
    text = text.replace("\r", "")
    windows = text.replace("\n", "\r\n")
    assert [each.replace("\r", "") for each in regions_of(windows, MARKDOWN)] == regions_of(
        text, MARKDOWN
    )
    assert [(role, mark.replace("\r", "")) for role, mark in marks_of(windows, MARKDOWN)] == (
        marks_of(text, MARKDOWN)
    )


@given(st.lists(MARKUP, max_size=30).map("".join))
def test_regions_contain_the_text_of_the_parser(text):
    """The visible words of paragraphs are in regions, and code is not."""
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
    regions = find_regions(text, format=MARKDOWN)
    found = sum(text.count("word", region.start, region.end) for region in regions)
    coded = sum(
        text.count("word", mark.start, mark.end)
        for region in regions
        for mark in region.marks
        if mark.role is Role.CODE
    )
    assert words <= found <= words + code
    assert coded <= code
