"""The commands.

preprocess        tt preprocess
train             tt train
models            tt average, tt export, tt import
translate_batch   tt translate-batch
back_translate    tt back-translate
memory            tt memory
translate_stream  tt translate-stream
translate         tt translate
look              tt show, tt report, tt attention, tt evaluate
demo              tt demo
doctor            tt doctor
init              tt init
blocks            tables, charts and texts on a terminal
"""
