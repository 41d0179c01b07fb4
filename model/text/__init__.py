"""Processing of texts before and after translation.

normalization        normalization of texts
augmentation         changes that imitate careless writers
vocabulary           conversion of texts to token ids and back, and counts of unknown parts
languages            language codes and scripts
scores               BLEU and chrF
glossary             terms and their translations
spans                kinds of protected text, such as URLs, tags and prices; values
patterns             parts of the patterns of spans, and checks of users' patterns
tokenization         the tokens that foreign models expect
"""
