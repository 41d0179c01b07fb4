"""The embedded corpus: English to Spanish, written by a small grammar.

lexicon   nouns, verbs and adjectives in both languages
grammar   inflection, phrases and clauses
choices   random choices of words and events
spans     sentences with variables, tags, prices and the like
corpus    templates, the split, the pairs
baseline  translation word for word
"""
