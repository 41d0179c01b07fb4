"""The Transformer of the paper (section 3), with greedy search and beam search.

config             the architecture and its presets
attention          attention, heads and masks
layers             linear layers, normalization, dropout, embeddings and positions
transformer        encoder, decoder, and a decoding step
decode             the search with a Transformer
search_options     options of the search
loop               the search loop, which shrinks the batch, and functions for scores
search             greedy search and beam search for any step function
attention_figures  attention weights of all layers and heads, and pictures of them
"""
