"""The Transformer of "Attention Is All You Need" (2017): its parts, its training, its decoding.

errors       user errors, and the one check that raises them
extras       how a user installs an optional package
folders      local folders: durable, locked, atomic
remote_files files on this machine or on gs://
json_files   JSON of other programs, and compared options
long_work    progress of tasks that take long
text         normalization, vocabularies and languages of texts
dataset      what passes from preprocessing to training
transformer  the forward pass, greedy and beam search
formats      a trained model as files
engines      what computes translations
training     the loop, its updates, and the run folder
inspection   summaries of folders as blocks to display, and the attention of a sentence
recipes      training configurations that were measured, as YAML
"""
