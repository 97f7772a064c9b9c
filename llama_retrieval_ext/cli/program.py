"""The program in five lines that does what the quickstart does."""

import json
from pathlib import Path

_OF_SAMPLES = """\
from llama_retrieval_ext import {names}
from llama_retrieval_ext.samples.python_topics import python_topics
kb = KnowledgeBase.open("embedded::memory:", embed_model={model})
kb.add(python_topics())
print(kb.retriever("hybrid", top_k=3).retrieve({question})[0].text)"""
_OF_FILES = """\
from llama_retrieval_ext import {names}, read_documents
documents = read_documents({paths})
kb = KnowledgeBase.open("embedded::memory:", embed_model={model})
kb.add(documents)
print(kb.retriever("hybrid", top_k=3).retrieve({question})[0].text)"""
_OF_KNOWLEDGE_BASE = """\
from llama_retrieval_ext import {names}
kb = KnowledgeBase.open({url}, embed_model={model}, must_exist=True)
retriever = kb.retriever("hybrid", top_k=3)
for hit in retriever.retrieve({question}):
    print(hit.score, hit.text)"""


def five_lines(question: str, *paths: Path, embed_model: str = "local") -> str:
    """Python that answers a question from the English samples, or from files and folders.

    Args:
        question: The question.
        paths: Files and folders; none for the samples.
        embed_model: Notation of the embedding model.

    Examples:
        >>> print(five_lines("What is a tuple?").splitlines()[-1])
        print(kb.retriever("hybrid", top_k=3).retrieve("What is a tuple?")[0].text)

    """
    program = _OF_FILES if paths else _OF_SAMPLES
    literals = [_literal(str(path)) for path in paths]
    return program.format(
        paths=literals[0] if len(literals) == 1 else f"[{', '.join(literals)}]",
        question=_literal(question),
        **_model(embed_model),
    )


def opening_lines(question: str, url: str, embed_model: str) -> str:
    """Python that answers a question from a knowledge base that exists.

    Examples:
        >>> print(opening_lines("What is a tuple?", "embedded:./kb", "openai:m").splitlines()[1])
        kb = KnowledgeBase.open("embedded:./kb", embed_model="openai:m", must_exist=True)

    """
    return _OF_KNOWLEDGE_BASE.format(
        question=_literal(question), url=_literal(url), **_model(embed_model)
    )


def _model(embed_model: str) -> dict[str, str]:
    """The model as Python, and the names to import."""
    if embed_model == "local":
        return {"model": "LocalEmbedding()", "names": "KnowledgeBase, LocalEmbedding"}
    return {"model": _literal(embed_model), "names": "KnowledgeBase"}


def _literal(text: str) -> str:
    # As repr, but always in the quotes that the rest of the program has.
    return json.dumps(text, ensure_ascii=False)
