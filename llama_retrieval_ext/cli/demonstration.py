"""Parts of the quickstart that import LlamaIndex: sample documents, and a query engine."""

from collections.abc import Callable, Iterable

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import Document, NodeWithScore

from llama_retrieval_ext.ingest.readers.files import Reading
from llama_retrieval_ext.samples.python_topics import python_topics
from llama_retrieval_ext.samples.regulations import zh_safety_laws


def samples(watched: Callable[[list[Document]], Iterable[Document]] = iter) -> Reading:
    """Return Python's language reference and four Chinese laws.

    Args:
        watched: Wraps the documents while they are read, for a progress bar.
    """
    return Reading(watched(sample_documents()))


def sample_documents() -> list[Document]:
    """Return all sample documents."""
    return [*python_topics(), *zh_safety_laws()]


def query_engine_sources(retriever: BaseRetriever, question: str) -> list[NodeWithScore]:
    """Return the nodes that LlamaIndex's query engine passes to an LLM; no LLM is needed.

    Args:
        retriever: Any LlamaIndex retriever.
        question: The question to the engine.

    Returns:
        The source nodes of the engine's response.
    """
    # Never called; without an LLM LlamaIndex tries OpenAI's.
    synthesizer = NoText(llm=MockLLM())
    engine = RetrieverQueryEngine(retriever, response_synthesizer=synthesizer)
    return engine.query(question).source_nodes
