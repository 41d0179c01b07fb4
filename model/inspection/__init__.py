"""Summaries of folders, as blocks that a terminal and a web page can display.

blocks   parts of a summary: facts, tables, texts, histograms, curves
batches  training batches: padding and lengths
masks    the masks of a training batch
dataset  dataset folders: sources, rejected pairs, lengths, samples
run      run folders and their logs, comparisons of runs, the learning rate
model    model folders and their vocabularies
"""
