"""Find the text in Markdown, HTML and plain text. Add a format with a file and a line in `formats`.

formats      the formats, and how to detect them
plain        plain text
html         HTML
markdown     Markdown: CommonMark with tables, strikethrough and task lists
regions      blocks of a text, and the marks inside them
entities     decode HTML entities, and encode them again
"""
