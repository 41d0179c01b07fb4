"""Texts before any model sees them.

normalization        the normalization of a text
vocabulary           text to token ids and back
languages            language codes, their names and scripts
scores               BLEU and chrF
glossary             terms, and what they are in the other language
placeholders         spans on both sides of a pair to placeholders
spans                what no translation may change: URLs, tags, variables, prices
unknown              how much of a text a vocabulary lacks
tokenization         how a text becomes the tokens of a foreign model
"""
