"""Translate texts; tables, lines and streams share this package.

options      options for texts
segments     cut texts into pieces that fit into a model
protecting   protected spans: placeholders, and cuts around spans
planning     choose the pieces of each text that the model translates
remembering  the interface of a translation memory
translating  translate texts, with a status, a score and flags; names of the added columns
limits       names and thresholds of flags, and the usual values of a model
judging      flag suspicious translations of sentences
figures      compare the figures of a sentence and its translation
languages    detect languages, and warn about unexpected languages of a corpus or a table
"""
