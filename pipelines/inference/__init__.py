"""A model at work in a pipeline: found, loaded once a process, and given texts.

model_loading  the model of a job, found, checked and loaded
model_sharing  one model a process, however many steps ask for it
model_copies   copies of the model on a machine
transforms     the steps that translate, and what they count
"""
