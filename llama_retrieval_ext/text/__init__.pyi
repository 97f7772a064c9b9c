from llama_retrieval_ext.text.tokenizer import Tokenizer as Tokenizer
