"""A trained model as files.

model_card         what a model is: its data, its training, its programs
model_folder       the files of a model folder and their digests
weights            weights saved, loaded and copied
saved_model        export to a TensorFlow SavedModel
to_ctranslate2     export to a CTranslate2 model
ctranslate2_files  the files of a CTranslate2 model: sizes and tokens
foreign            models of other programs for CTranslate2, found by their files
argos              packages of Argos Translate, unpacked
archives           limits for zip archives
marian             models of Marian, in and out
importing          a model of another program to a model folder
"""
