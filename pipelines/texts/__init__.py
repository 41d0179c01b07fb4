"""Translate texts: shared by tables, lines and streams.

options      how texts are treated
segments     cut texts into pieces that a model can take
protecting   protected spans: placeholders, and cuts around spans
planning     what the model gets of each text
translating  translations with a status, a score and flags, and their columns
limits       names and thresholds of flags, and the usual values of a model
judging      the flags of a sentence's translation
languages    detected languages, against those of a corpus or a model
"""
