"""Summaries of folders as blocks, which a terminal and a page can display.

blocks   parts of a summary: facts, tables, texts, histograms, curves
batches  batches as training sees them: padding, words, unknown tokens, masks
dataset  a dataset folder: sources, rejected pairs, lengths, samples
run      a run folder and its log, several runs side by side, the learning rate
model    a model folder, and its vocabularies
"""
