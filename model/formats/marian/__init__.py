"""Import Marian models: a `.npz` of arrays and a configuration, with vocabularies.

archive       the `.npz`
architecture  Marian's configuration and that of our Transformer
pieces        the file of a SentencePiece model
vocabularies  Marian's tokens and our ids
yaml_text     YAML without aliases
weights       which arrays make up which of our variables
importing     a model of Marian's to a model folder
"""
