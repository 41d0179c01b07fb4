"""What of a model can be looked at: its attention and its positions.

attention  attention weights of a pair of sentences, of all layers and heads
labels     names of tokens, and fonts that can draw them
figures    heat maps of attention
positions  position encodings and how alike they are
"""
