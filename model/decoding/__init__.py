"""Greedy and beam search.

options  how translations are searched for
scoring  scores of next tokens, the best extensions, the rank of hypotheses
loop     the loop over steps, in a batch that shrinks
search   greedy search and beam search over any step function
"""
