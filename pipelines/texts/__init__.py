"""Translate texts; tables, lines and streams share this package.

options      options for texts
segments     cut texts into pieces that fit into a model
markup       detect Markdown and HTML, and find the regions of a text to translate
regions      regions, the marks inside them, and the pieces of text between them
html_regions
             find the regions of HTML
markdown_regions
             find the regions of Markdown
tags         tags and protected spans of the pieces of a text with structure
entities     decode HTML entities, and encode them again
capitals     translate sentences in capitals in lower case, and restore the capitals
protecting   protected spans: placeholders, and cuts around spans
cutting      cut texts into their structure and pieces
masking      turn pieces into the texts that the model receives
planning     choose the pieces of each text that the model translates
plans        the plan for a text, and how translations get their spans and tags back
calling      call a model on many sources, and find the sources at which it fails
aligning     find the words that belong together in a sentence and its translation
placing      place inline tags around the words that belong together
choosing     choose and combine the hypotheses that keep all spans
remembering  the interface of a translation memory
translating  translate texts, with a status, a score and flags; names of the added columns
limits       names and thresholds of flags, and the usual values of a model
judging      flag suspicious translations of sentences
symbols      find lost symbols and identifiers
figures      compare the figures of a sentence and its translation
doubts       find texts and translations in other languages, and unrelated translations
results      the translations of sources, from the translation memory or from the model
similarity   compare the meaning of texts in two languages
number_words
             words for numbers, by language
languages    detect languages, and warn about unexpected languages of a corpus or a table
"""
