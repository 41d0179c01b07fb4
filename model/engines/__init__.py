"""Engines that compute translations.

translator          the choice of an engine, and the interface of all engines
batching            batches of sources with similar lengths, and counts of translated sources
tensorflow_engine   translation with TensorFlow
ctranslate2_engine  translation with CTranslate2
tokens              conversion of texts to CTranslate2's tokens and back
machine             cores, threads, memory and GPUs of this machine
loading             loading a model into an engine, on one or more devices
"""
