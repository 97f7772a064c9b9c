from llama_retrieval_ext.knowledge_base.conversations import (
    ConversationParser as ConversationParser,
)
from llama_retrieval_ext.knowledge_base.copy import copy_knowledge_base as copy_knowledge_base
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase as KnowledgeBase
from llama_retrieval_ext.knowledge_base.ray.ingest import ingest_with_ray as ingest_with_ray
from llama_retrieval_ext.knowledge_base.readers.files import read_documents as read_documents
