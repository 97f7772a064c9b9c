"""The default hybrid by the script of the question: ``python -m tests.benchmarks.bench_scripts``.

For each set of ``../shared/data``, nDCG@10 with `LocalEmbedding` of keyword search, of the hybrid
with equal weights for all questions, and of the default, which weighs vectors less for questions in
scripts that the model does not know. Beside it the largest difference of a score in English, which
must be 0. Up to 500 questions a set; a file of questions about the laws is added by
`bench_graph`.
"""

import sys
from typing import Final

from llama_index.core.schema import TextNode

from llama_retrieval_ext import LocalEmbedding
from llama_retrieval_ext.evaluation.experiment import Experiment
from llama_retrieval_ext.evaluation.judgements import Judgements
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.retrievers.store_retriever import KeywordRetriever
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.benchmarks.bench_graph import load

