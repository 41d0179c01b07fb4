"""The Transformer of "Attention Is All You Need" (2017): layers, training and decoding.

errors       user errors, and functions that check values
extras       pip commands that install optional packages
folders      durable local files, and locks
storage      files on this machine and on object stores
json_files   JSON, and changed options
long_work    progress of long tasks
text         normalization, vocabularies and languages
dataset      the dataset folder: manifest, records, batches
transformer  the forward pass, greedy search and beam search
formats      model folders and exports
imports      models of other programs: Hugging Face and CTranslate2
engines      translation with TensorFlow or CTranslate2
training     the training loop, checkpoints and the run folder
inspection   summaries of folders, and attention weights of a sentence
recipes      measured training configurations in YAML
"""
