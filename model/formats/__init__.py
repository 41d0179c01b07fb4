"""Model folders and exports.

model_card         the model card: data, training and program versions of a model
model_folder       the files of a model folder, and their digests
weights            saving and loading weights
exports            copies of a model folder, SavedModels and CTranslate2 models
huggingface_export models in the layout of Hugging Face
foreign            CTranslate2 models that other programs wrote
archives           size limits for zip archives, and Argos Translate packages
"""
