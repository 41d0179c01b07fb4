"""Translate texts; tables, lines and streams share this package.

options      options for texts
segments     cut texts into pieces that fit into a model
protecting   protected spans: placeholders, and cuts around spans
planning     plan which pieces of each text the model translates
translating  translations with a status, a score and flags, and their columns
limits       names and thresholds of flags, and the usual values of a model
judging      flags of a sentence's translation
languages    detect languages, and warn about unexpected ones in a corpus or a table
"""
