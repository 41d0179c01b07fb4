"""The training of a model.

options        the options of a training, and the configuration of a run
choices        the preset and the options that fit a dataset's size
initial_model  the model whose weights a run begins with
request        a training as the user asks for it, planned and run
splits         the batches of the train and validation splits
strategies     one device, all GPUs, or several machines
loss           label-smoothed cross-entropy
step           the compiled training step, with Adam and the learning rate
run_folder     the run folder: its files, its lock
reports        progress and validations, in train.jsonl and TensorBoard
state          the state of a run next to its weights
checkpoints    the last checkpoints, the best weights, and exports of a run in progress
validation     the loss and the scores of the validation split
stops          signals and errors that stop a training
trainer        the loop over batches
exporting      checkpoints and models exported after the training
"""
