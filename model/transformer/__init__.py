"""The model: the forward pass (section 3 of the paper), greedy and beam search.

config             the architecture and its presets
attention          attention, heads and masks
layers             linear layers, normalization, dropout, embeddings, positions
transformer        encoder and decoder
decode             the search with a Transformer
search_options     how translations are searched for
scoring            scores of next tokens, the best extensions, the rank of hypotheses
loop               the loop over steps, in a batch that shrinks
search             greedy search and beam search over any step function
attention_maps     attention weights of all layers and heads, with the labels of their tokens
attention_figures  pictures of attention maps
"""
