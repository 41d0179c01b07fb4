"""The forward pass, section 3 of the paper.

config       the architecture and its presets
attention    attention, heads and masks
layers       linear layers, normalization, dropout, embeddings, positions
transformer  encoder and decoder
decode       the search with a Transformer
"""
