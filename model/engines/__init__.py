"""The engines that compute translations.

translator          the choice of an engine, its input and its output
batching            texts to batches of like length, and the progress of a call
tensorflow_engine   translation by TensorFlow
ctranslate2_engine  translation by CTranslate2
tokens              texts to the tokens of CTranslate2, and back
machine             cores, threads, memory and GPUs
loading             a model folder to a translator of any engine, also on several GPUs
"""
