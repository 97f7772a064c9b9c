"""What files of the tests name, and a file of one pipeline."""

from llama_retrieval_ext.config import Registry
from tests import test_arguments as expressions

_NAMES = ("MODEL", "LLM", "FOREIGN", "RANKER", "STORE", "NODE", "DOCSTORE", "GRAPH", "RULES")
LIVE = {name: vars(expressions)[name] for name in (*_NAMES, "a", "b", "best", "KNOWN")}
BOUND = Registry().bind(objects=LIVE)


def document(pipeline: str) -> str:
    return f"version: 1\npipeline: {pipeline}\n"
