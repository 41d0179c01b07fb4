"""Reports on folders and models: on a terminal, as pages and pictures, and as scores.

requests    the options of tt report, tt attention and tt evaluate
folders     recognize the kind of a folder, check requests, and write files
tfds_names  list the datasets of a tfds: name
translated  a translated folder: its units, and its texts with their translations
sections    sections about a folder of any kind
report      a page about folders, and the attention for a sentence
page        blocks as HTML, charts as SVG in the colors of the page, and the page around them
evaluate    score translations against references
evaluation  the result of an evaluation, as tables and as JSON
lengths     group rows by the length of their sources
scorer      score translations with a program in another environment
"""
