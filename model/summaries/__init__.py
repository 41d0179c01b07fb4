"""What lies in a dataset, model or run folder, as plain data: for a screen, a page, or JSON.

histograms    values counted in bins
vocabularies  what tokens a vocabulary has
rejected      pairs that were left out, with examples
pairs         sample pairs as texts, tokens and ids
batches       batches as training sees them: padding, words, unknown tokens
dataset       all of a dataset folder
training_log  train.jsonl as curves and sample translations
models        a model folder: architecture, parameters, origin
run           all of a run folder
training_plan what a training will do, as text: learning rate, masks
"""
