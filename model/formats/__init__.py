"""Model folders, exports and imports.

model_card              the model card: data, training and program versions of a model
model_folder            the files of a model folder, and their digests
weights                 saving and loading weights
exports                 copies of a model folder, SavedModels and CTranslate2 models
foreign                 CTranslate2 models that other programs wrote
archives                size limits for zip archives, and Argos Translate packages
importing               the requests of `tt import`
imported_model          model folders from the arrays of another program
imported_vocabularies   vocabularies with our ids from the tokens of another program
marian                  Marian models: files, configuration and names of arrays
"""
