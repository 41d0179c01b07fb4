"""A batch to an update of the weights, section 5 of the paper.

loss          label-smoothed cross-entropy
loss_scaling  the factor on the loss in float16
optimizer     Adam, the learning rate and the average of weights
strategies    one device, all GPUs, or several machines
step          the compiled training step
"""
