"""Translate texts; tables, lines and streams share this package.

options      options for texts
sentences    cut texts into sentences, and long sentences into parts
markup       a file for each format: Markdown, HTML and plain text
tags         tags and protected spans of the pieces of a text with structure
capitals     translate sentences in capitals in lower case, and restore the capitals
segments     cut texts into segments: structure, white space, sentences and attributes
placeholders hide spans from the model, and restore them in a translation
drafts       unfinished translations of texts
inputs       cut texts, and prepare the inputs of the model
batch        the steps: prepare, translate, translate again, receive
calling      call a model on many texts, and find the texts at which it fails
known        the translations of inputs, from a memory or from the model
receiving    accept the hypotheses that keep all spans, and flag the best one
results      results, statuses, and the names of the added columns
translating  translate texts, with a status, a score and flags
explaining   explain a translation: segments, hypotheses, rules of flags
word_links   find the words that belong together in a sentence and its translation
inline_tags  place inline tags around the words that belong together
flags        the flags: names, order, rules, limits, and the usual values of a model
numbers      compare the numbers of a sentence and its translation
symbols      find lost symbols and identifiers
similarity   compare the meaning of texts in two languages
languages    detect languages, and warn about unexpected languages of texts
"""
