"""What a training leaves on the disk.

run_folder        the run folder: its files, its lock
identity          what tells one run from another
checkpoints       the last checkpoints and the best weights
reports           progress and validations
reporter          reports to train.jsonl and TensorBoard
average           what is asked for where checkpoints are averaged
averaging         checkpoints to one exported model
attention_images  heat maps of cross-attention
"""
