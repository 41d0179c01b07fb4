"""What is suspicious about a translation, or a pair.

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
