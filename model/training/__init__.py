"""Train a model.

options        training options and the configuration of a run
defaults       the preset and the options that fit a dataset's size
initial_model  the model whose weights a new run starts from
request        a training request: planned, checked and run
splits         the batches of the training and validation splits
strategies     distribution over one device, all GPUs or several machines
loss           label-smoothed cross-entropy
schedule       the learning rate of each update
optimizer      Adam, and the sum of gradients
step           the compiled training step
run_folder     the files and the lock of a run folder
reports        progress and validation reports, in train.jsonl and TensorBoard
state          the training state that is saved next to the weights
checkpoint_files
               the files of one checkpoint
checkpoints    the last checkpoints, the best weights, and the exports of a run in progress
validation     the loss and the scores on the validation split
stops          signals and errors that stop a training
trainer        the training loop
exporting      exports of checkpoints and models after the training
"""
