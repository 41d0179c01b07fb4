"""Load a model in a pipeline, share it between threads, and translate texts with it.

model_loading       find, check and load the model of a job
model_copies        one model per process, and the number of translations at once
side_by_side        divides one call of a model among all cores or GPUs
text_model          a model with text options, a glossary and limits; several target languages
lines               one translated line per source line
rows                rows with added translations
transforms          TranslateRows, and the parts that other steps with a model share
"""
