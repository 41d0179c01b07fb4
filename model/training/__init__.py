"""The training of a model.

request     a training as it is asked for, planned and run
options     how a model is trained
choices     the preset and the training that fit a dataset's size
splits      the batches of the train and validation splits
state       where a run stands beside its weights
validation  the validation split, scored
saving      checkpoints and exported models of a run
stops       why a training stops early
trainer     the loop over batches
"""
