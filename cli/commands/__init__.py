"""The commands.

preprocess        tt preprocess
train             tt train
average           tt average
export            tt export
import_model      tt import
translate_batch   tt translate-batch
translate_stream  tt translate-stream
translate         tt translate
attention         tt attention
report            tt report
show              tt show
evaluate          tt evaluate
demo              tt demo
doctor            tt doctor
init              tt init
blocks            tables, bars and texts on a terminal
"""
