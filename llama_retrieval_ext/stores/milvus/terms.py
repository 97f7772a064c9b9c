"""The terms of our tokenizer, as Milvus's analysers leave them whole.

Milvus Lite has no analyser that cuts at spaces alone: ``c++`` would become ``c``. So terms go in by
their numbers in hexadecimal, for which every analyser does.
"""

from collections.abc import Mapping

from llama_retrieval_ext.text.tokenizer import Tokenizer


def document_terms(text: str, tokenizer: Tokenizer) -> str:
    """The terms of a document, each as often as it occurs.

    Examples:
        >>> len(document_terms("R or C or R", Tokenizer()).split())
        5

    """
    return _written(tokenizer.term_counts(text))


def query_terms(text: str, tokenizer: Tokenizer) -> str:
    """The terms to look for; empty where there is none."""
    return _written(tokenizer.query_terms(text))


def _written(counts: Mapping[int, int]) -> str:
    return " ".join(f"{term:x}" for term, count in counts.items() for _ in range(count))
