"""The embedded corpus: English and Spanish sentences that a small grammar generates.

lexicon   nouns, verbs and adjectives in both languages
grammar   inflection, phrases and clauses
choices   random choices of words and events
spans     sentences with variables, tags, prices and similar spans
corpus    templates, the split, and the pairs
baseline  word-for-word translation
"""
