"""Folders and models to look at: on a terminal, as pages and pictures, and as scores.

requests    the options of tt report, tt attention and tt evaluate
folders     the kind of a folder; checks that need no TensorFlow; the file to write
tfds_names  the datasets that a tfds: name offers
translated  a translated folder: its units, and its texts with their translations
report      the content of a folder of any kind, a page on folders, the attention of a sentence
page        blocks as HTML, charts as SVG in the colors of the page, and the page around them
evaluate    translations scored against references
"""
