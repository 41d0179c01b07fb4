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
limits           the flags, their thresholds, and what a model's training says of its translations
judging          the flags of a sentence's translation
loops            words or characters that come in a loop
copies           sentences that came back untranslated
ends             ends of sentences that are missing
signs            letters of another script, and figures that are lost
languages        the language that texts seem to be in
language_sample  which pairs tell the languages of corpora
wrong_languages  what is said of a corpus in another language than was named
"""
