"""The commands.

preprocess       tt preprocess
train            tt train
average          tt average
export           tt export
translate_batch  tt translate-batch
translate        tt translate
evaluate         tt evaluate
demo             tt demo
"""
