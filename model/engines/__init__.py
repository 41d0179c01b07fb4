"""What computes translations.

translator          which engine computes, and what each takes and gives
batching            texts to batches of like length
tensorflow_engine   translation by TensorFlow
ctranslate2_engine  translation by CTranslate2
tokens              texts to the tokens of CTranslate2, and back
machine             cores, threads and memory
gpus                the GPUs of a machine, and one model on several of them
progress            how much of a call is done
loading             a model folder to a translator of any engine
"""
