"""A model at work in a pipeline: found, loaded once a process, and given texts.

model_loading       the model of a job, found, checked and loaded
model_sharing       one model a process, however many steps ask for it
models_for_workers  the model of a job, converted once for all workers
model_copies        copies of the model on a machine
text_model          a model, with what it needs to translate texts
languages           texts into several languages
rows                rows with translations beside their texts
transforms          TranslateTexts, TranslateRows, and the base of all steps that translate
run_inference       a model for Beam's RunInference
"""
