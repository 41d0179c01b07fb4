"""The commands.

preprocess        tt preprocess
train             tt train
training_reports  its reports in lines
average           tt average
export            tt export
translate_batch   tt translate-batch
translate         tt translate
evaluate          tt evaluate
demo              tt demo
"""
