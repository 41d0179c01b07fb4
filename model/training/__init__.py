"""The training of a model.

request        a training as it is asked for, planned and run
options        how a model is trained
choices        the preset and the training that fit a dataset's size
splits         the batches of the train and validation splits
state          where a run stands beside its weights
validation     the validation split, scored
saving         checkpoints and exported models of a run
stops          why a training stops early
trainer        the loop over batches
loss           label-smoothed cross-entropy
optimizer      Adam, the learning rate and the average of weights
strategies     one device, all GPUs, or several machines
step           the compiled training step
run_folder     the run folder: its files, its lock
identity       what tells one run from another
initial_model  the model whose weights a run begins with
checkpoints    the last checkpoints and the best weights
reports        progress and validations
reporter       reports to train.jsonl and TensorBoard
averaging      checkpoints averaged into an exported model
exporting      a run or model folder to what other programs load
"""
