from llama_retrieval_ext.capabilities import *
from llama_retrieval_ext.config import *
from llama_retrieval_ext.embeddings import *
from llama_retrieval_ext.embeddings import LocalEmbedding as LocalEmbedding
from llama_retrieval_ext.errors import *
from llama_retrieval_ext.errors import RetrievalExtError as RetrievalExtError
from llama_retrieval_ext.evaluation import *
from llama_retrieval_ext.execution import *
from llama_retrieval_ext.graph import *
from llama_retrieval_ext.knowledge_base import *
from llama_retrieval_ext.knowledge_base import KnowledgeBase as KnowledgeBase
from llama_retrieval_ext.knowledge_base import read_documents as read_documents
from llama_retrieval_ext.pipeline import *
from llama_retrieval_ext.pipeline import Refine as Refine
from llama_retrieval_ext.pipeline import Retriever as Retriever
from llama_retrieval_ext.pipeline import Rewrite as Rewrite
from llama_retrieval_ext.pipeline.branches import branches as branches
from llama_retrieval_ext.query import Query as Query
from llama_retrieval_ext.results import Contribution as Contribution
from llama_retrieval_ext.results import Hit as Hit
from llama_retrieval_ext.results import SearchResult as SearchResult
from llama_retrieval_ext.retrievers import *
from llama_retrieval_ext.retrievers import BM25Retriever as BM25Retriever
from llama_retrieval_ext.retrievers import HybridRetriever as HybridRetriever
from llama_retrieval_ext.retrievers import KeywordRetriever as KeywordRetriever
from llama_retrieval_ext.retrievers import Route as Route
from llama_retrieval_ext.retrievers import RouterRetriever as RouterRetriever
from llama_retrieval_ext.retrievers import RouteRule as RouteRule
from llama_retrieval_ext.retrievers import RuleSelector as RuleSelector
from llama_retrieval_ext.retrievers import VectorRetriever as VectorRetriever
from llama_retrieval_ext.schema import Schema as Schema
from llama_retrieval_ext.scope import Scope as Scope
from llama_retrieval_ext.serve import *
from llama_retrieval_ext.services import *
from llama_retrieval_ext.stages import *
from llama_retrieval_ext.stages import MMR as MMR
from llama_retrieval_ext.stages import RRF as RRF
from llama_retrieval_ext.stages import Collapse as Collapse
from llama_retrieval_ext.stages import Ranking as Ranking
from llama_retrieval_ext.stages import RuleRerank as RuleRerank
from llama_retrieval_ext.stages import Top as Top
from llama_retrieval_ext.stages import WeightedSum as WeightedSum
from llama_retrieval_ext.stores import *
from llama_retrieval_ext.stores import open_store as open_store
from llama_retrieval_ext.text import *

__version__: str
