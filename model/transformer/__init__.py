"""The model: the forward pass (section 3 of the paper), greedy and beam search.

config             the architecture and its presets
attention          attention, heads and masks
layers             linear layers, normalization, dropout, embeddings, positions
transformer        encoder and decoder
decode             the search with a Transformer
search_options     how translations are searched for
loop               scores of next ids, and the loop over steps in a batch that shrinks
search             greedy search and beam search over any step function
attention_figures  attention weights of all layers and heads, and pictures of them
"""
