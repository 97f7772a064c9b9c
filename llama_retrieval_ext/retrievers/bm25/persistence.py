"""Writes a BM25 retriever to a directory in bm25s's format, beside its settings, and reads it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import bm25s
from llama_index.core.vector_stores.types import MetadataFilters
from pydantic import TypeAdapter

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.retrievers.bm25.docstore_sync import DocstoreLimits
from llama_retrieval_ext.retrievers.bm25.index import BuiltIndex
from llama_retrieval_ext.stores.encoding.node_json import SHAPES, node_from_text, node_to_text
from llama_retrieval_ext.text.tokenizer import Tokenizer

FILE_NAME: Final = "retriever.json"


@dataclass(frozen=True)
class BM25Settings:
    """Arguments of a retriever that are stored: all except its scope."""

    top_k: int
    tokenizer: Tokenizer
    filters: MetadataFilters | None
    normalise: bool
    k1: float
    b: float
    name: str


@dataclass(frozen=True)
class Header:
    """Contents of the JSON file: all of a retriever except its index."""

    settings: BM25Settings
    docstore: DocstoreLimits | None
    scoped: bool
    format: Literal["llama_retrieval_ext.BM25Retriever"] = "llama_retrieval_ext.BM25Retriever"
    version: Literal[2] = 2


_HEADER: Final = TypeAdapter(Header)


def write(path: Path, header: Header, built: BuiltIndex) -> None:
    """Write a retriever into a directory; the settings last, so that half of one is not read."""
    for node in built.nodes:
        shape = SHAPES.get(type(node).__name__)
        if shape is None or shape.type is not type(node):
            raise ConfigurationError(
                f"node {node.node_id!r} is a {type(node).__name__}; only LlamaIndex's own node "
                f"classes can be written: {', '.join(SHAPES)}"
            )
    corpus = [{"node": node_to_text(node), "embedding": node.embedding} for node in built.nodes]
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / FILE_NAME).unlink(missing_ok=True)
        built.engine.save(path, corpus=corpus, show_progress=False)
        (path / FILE_NAME).write_bytes(_HEADER.dump_json(header, indent=2))
    except OSError as error:
        raise StoreUnavailableError(
            f"cannot write to {path}: {error}; persist the retriever again, or elsewhere"
        ) from error


def read(path: Path) -> tuple[Header, BuiltIndex]:
    """Return the contents of a directory."""
    try:
        header = _HEADER.validate_json((path / FILE_NAME).read_bytes())
        engine = bm25s.BM25.load(path, load_corpus=True, show_progress=False)
        nodes = []
        for record in engine.corpus or ():
            node = node_from_text(record["node"])
            node.embedding = record["embedding"]
            nodes.append(node)
    except PermissionError as error:
        raise StoreUnavailableError(f"cannot read {path}: {error}") from error
    except (OSError, AttributeError, EOFError, KeyError, TypeError, ValueError) as error:
        raise StoreFormatError(
            f"{path} holds no BM25 retriever of ours that can be read, {error}; make it from its "
            "nodes again: BM25Retriever(nodes).persist(path). LlamaIndex's own cannot be read"
        ) from error
    engine.corpus = None
    if engine.scores["num_docs"] != max(1, len(nodes)):
        raise StoreFormatError(f"the index in {path} is not that of its nodes; persist it again")
    return header, BuiltIndex(nodes, engine)
