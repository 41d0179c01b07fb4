"""Texts to translations: what Parquet tables, lines and streams share.

options          how texts are treated
segments         texts cut into what a model can take
protecting       protected spans on their way through a translation
planning         what the model gets of each text
bisection        the failing items of a batch, found by bisection
choosing         which translation of a sentence is taken
translating      texts to translations with a status each
columns          names and values of what stands beside a text
lines            lines to translations, a line for a line
model_languages  the languages of a model against those of the texts
"""
