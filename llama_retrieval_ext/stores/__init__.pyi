from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore as EmbeddedVectorStore
from llama_retrieval_ext.stores.generic import GenericBackend as GenericBackend
from llama_retrieval_ext.stores.open import open_store as open_store
