"""A batch to an update of the weights, section 5 of the paper.

loss          label-smoothed cross-entropy
optimizer     Adam, the learning rate and the average of weights
strategies    one device, all GPUs, or several machines
step          the compiled training step
"""
