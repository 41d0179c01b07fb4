"""Folders and models to look at: on a terminal, as pages and pictures, and as scores.

requests    the options of tt report, tt attention and tt evaluate
folders     the kind of a folder; checks that need no TensorFlow
summaries   the summary of a folder of any kind
tfds_names  the datasets that a tfds: name offers
translated  the summary of a translated folder
texts       texts and their translations: statuses, flags, lengths, scores, outliers
report      a page on folders
attention   a page or a picture of a sentence's attention
page        blocks as HTML, and the page around them
charts      charts as SVG in the colors of the page
html        HTML elements whose texts are escaped
output      the file to write
evaluate    translations scored against references
outputs     the Parquet files of a folder in the order of the input
lines       texts of files and pipes, one per line
"""
