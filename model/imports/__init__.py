"""Models of other programs: Hugging Face without PyTorch, and CTranslate2 folders.

importing               the requests of `tt import`
hub                     addresses such as hf:ORG/NAME, downloads, and licenses
fetching                the converted copy of a model from Hugging Face in the cache
huggingface             the configuration, the generation settings and the tokens of such a model
huggingface_weights     its arrays, from safetensors or PyTorch files
pytorch_files           a reader of PyTorch files that executes nothing
huggingface_conversion  its conversion for CTranslate2 and for TensorFlow
imported_model          model folders from the arrays of another program
imported_vocabularies   vocabularies with our ids from the tokens of another program
"""
