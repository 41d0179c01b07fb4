"""Summaries of folders as blocks, which a terminal and a page can display.

blocks        parts of a summary: facts, tables, texts, charts
histograms    values counted in bins
vocabularies  the tokens of a vocabulary
pairs         sample pairs and rejected pairs
batches       batches as training sees them: padding, words, unknown tokens, masks
dataset       a dataset folder
run           a run folder and its log, several runs side by side, the learning rate
model         a model folder
attention     the attention of a sentence
"""
