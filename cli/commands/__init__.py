"""The commands.

preprocess       tt preprocess
train            tt train
average          tt average
export           tt export
import_model     tt import
translate_batch  tt translate-batch
translate_stream tt translate-stream
translate        tt translate
"""
