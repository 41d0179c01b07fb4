"""A trained model as files.

model_card           what a model is: its data, its training, its programs
model_folder         the files of a model folder and their digests
weights              weights saved, loaded and copied
saved_model          export to a TensorFlow SavedModel
to_ctranslate2       export to a CTranslate2 model
ctranslate2_files    the files of a CTranslate2 model: sizes and tokens
foreign              models of other programs for CTranslate2, found by their files
argos                packages of Argos Translate, unpacked
archives             limits for zip archives
importing            a model of another program to a model folder
marian_archive       the `.npz`
marian_architecture  Marian's configuration and that of our Transformer
marian_pieces        the file of a SentencePiece model
marian_vocabularies  Marian's tokens and our ids
marian_yaml_text     YAML without aliases
marian_weights       which arrays make up which of our variables
marian_import        a model of Marian's to a model folder
"""
