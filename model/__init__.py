"""The Transformer of "Attention Is All You Need" (2017): its parts, its training, its decoding.

errors       user errors, and the one check that raises them
extras       how a user installs an optional package
folders      folders of ours, on this machine or on gs://
text         normalization, vocabularies and languages of texts
dataset      what passes from preprocessing to training
transformer  the forward pass
decoding     greedy and beam search over any step function
formats      a trained model as files
engines      what computes translations
runs         what a training leaves on the disk
views        what of a model can be looked at
updates      a batch to an update of the weights
training     the loop, its options and its state
summaries    what lies in a folder, as plain data
recipes      training configurations that were measured, as YAML
"""
