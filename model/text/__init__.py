"""Processing of texts before and after translation.

normalization        normalization of texts
augmentation         changes that imitate careless writers
vocabulary           conversion of texts to token ids and back, and counts of unknown parts
languages            language codes and scripts
scores               BLEU and chrF
glossary             terms and their translations
spans                protected text: URLs, tags, variables, prices
tokenization         the tokens that foreign models expect
"""
