"""Texts before any model sees them.

normalization        the normalization of a text
vocabulary           text to token ids and back, and the parts of a text that it lacks
languages            language codes, their names and scripts
scores               BLEU and chrF
glossary             terms, and what they are in the other language
spans                what no translation may change: URLs, tags, variables, prices
tokenization         how a text becomes the tokens of a foreign model
"""
