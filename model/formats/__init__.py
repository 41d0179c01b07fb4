"""A trained model as files.

model_card              what a model is: its data, its training, its programs
model_folder            the files of a model folder and their digests
weights                 weights saved and loaded
exports                 copies, and exports to a SavedModel and a CTranslate2 model
foreign                 the files of a CTranslate2 model, and models of other programs
archives                limits for zip archives, and packages of Argos Translate
importing               a model of another program to a model folder
imported_model          arrays of another program to our variables
imported_vocabularies   tokens of another program and our ids
marian                  the files of a Marian model, its configuration and its names of arrays
"""
