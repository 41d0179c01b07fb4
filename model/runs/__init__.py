"""What a training leaves on the disk.

run_folder     the run folder: its files, its lock
identity       what tells one run from another
initial_model  the model whose weights a run begins with
checkpoints    the last checkpoints and the best weights
reports        progress and validations
reporter       reports to train.jsonl and TensorBoard
averaging      checkpoints averaged into an exported model
exporting      a run or model folder to what other programs load
"""
