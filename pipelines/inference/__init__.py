"""A model in a pipeline: found, loaded once per process, and given texts.

model_loading       the model of a job: found, checked and loaded
models_for_workers  the model of a job for its workers, and how many copies work at once
model_sharing       one model per process for all steps
text_model          a model with its options, glossary and limits; several target languages
lines               one translated line per line
rows                rows with translations next to their texts
transforms          TranslateTexts, TranslateRows, and a model for RunInference
"""
