"""What computes translations.

translator          what every engine takes and gives
batching            texts to batches of like length
tensorflow_engine   translation by TensorFlow
ctranslate2_engine  translation by CTranslate2
machine             cores, threads and memory
gpus                the GPUs of a machine
pool                one model on several GPUs
under_way           how much of a call is done
options             which engine computes, and in which type
loading             a model folder to a translator of any engine
"""
