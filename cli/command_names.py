"""The commands by their names, each with the first line of its help."""

from __future__ import annotations

COMMANDS = {
    "preprocess": "Make a dataset folder from a parallel corpus.",
    "train": "Train a Transformer on a dataset folder, and export it.",
    "average": "Average checkpoints of a run into a model folder.",
    "export": "Write a trained model to a folder for other programs.",
    "import": "Make a model folder from a model of another program.",
    "translate-batch": "Translate text columns of tables in bulk.",
    "translate-stream": "Translate messages, or files of a folder, as they come.",
    "translate": "Translate stdin to stdout, a line for a line.",
    "evaluate": "Score translations against references by BLEU and chrF.",
    "demo": "Run the three commands on the embedded corpus.",
    "attention": "Draw what a model looks at as it translates.",
    "report": "Write a report that a browser opens offline.",
    "show": "Show the content of a folder, or the datasets of a tfds: name.",
    "doctor": "Show versions, devices and extras of this machine.",
    "init": "Write tt.yaml, a file of options for the files of this folder.",
}

# As `tt --help` shows them.
GROUPS = {
    "Begin": ("doctor", "init", "demo"),
    "From a corpus to translations": ("preprocess", "train", "translate-batch"),
    "Other ways to translate": ("translate", "translate-stream", "evaluate"),
    "Models": ("average", "export", "import"),
    "Look inside": ("show", "report", "attention"),
}
