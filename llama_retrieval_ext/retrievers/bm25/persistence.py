"""Writes a BM25 retriever to a directory, its index in bm25s's format, and reads it back."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import uuid4

import bm25s
from llama_index.core.schema import BaseNode, IndexNode
from llama_index.core.vector_stores.types import MetadataFilters
from pydantic import Field, TypeAdapter

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


# A pattern, because the folder of the previous index is deleted.
Folder: TypeAlias = Annotated[str, Field(pattern="^index-[0-9a-f]{32}$")]


@dataclass(frozen=True)
class Header:
    """Contents of the JSON file: all of a retriever except its index."""

    settings: BM25Settings
    docstore: DocstoreLimits | None
    scoped: bool
    folder: Folder = field(default_factory=lambda: f"index-{uuid4().hex}")
    format: Literal["llama_retrieval_ext.BM25Retriever"] = "llama_retrieval_ext.BM25Retriever"
    version: Literal[1] = 1


_HEADER: Final = TypeAdapter(Header)


def write(path: Path, header: Header, built: BuiltIndex) -> None:
    """Write a retriever into a directory atomically.

    Each retriever has its index in a folder of its own; the file that names the folder is replaced
    last.
    """
    corpus = [node_to_json(node) for node in built.nodes]
    folder, previous = path / header.folder, _folder_in(path)
    try:
        built.engine.save(folder, corpus=corpus, show_progress=False)
        draft = folder / FILE_NAME
        draft.write_bytes(_HEADER.dump_json(header, indent=2))
        for file_path in folder.iterdir():
            with file_path.open("rb") as file:
                os.fsync(file.fileno())
        draft.replace(path / FILE_NAME)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise StoreUnavailableError(
            f"cannot write to {path}: {error}; what was there is as it was"
        ) from error
    if previous is not None:
        shutil.rmtree(previous, ignore_errors=True)


def read(path: Path) -> tuple[Header, BuiltIndex]:
    """Return the contents of a directory."""
    file_path = path / FILE_NAME
    try:
        text = file_path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreFormatError(
            f"{path} holds no BM25 retriever of ours: there is no {FILE_NAME} in it. "
            "BM25Retriever(nodes).persist(path) writes one"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(f"cannot read {file_path}: {error}") from error
    try:
        header = _HEADER.validate_json(text)
        return header, _built(path / header.folder)
    except (OSError, AttributeError, EOFError, KeyError, TypeError, ValueError) as error:
        raise StoreFormatError(
            f"{file_path} and its index cannot be read, {error}; make the retriever from its nodes "
            "again. LlamaIndex's own BM25Retriever cannot be read"
        ) from error


def _built(folder: Path) -> BuiltIndex:
    engine = bm25s.BM25.load(folder, load_corpus=True, show_progress=False)
    nodes = [node_from_json(each) for each in engine.corpus or ()]
    engine.corpus = None
    if engine.scores["num_docs"] != max(1, len(nodes)):
        raise ValueError("the index is not that of the nodes")
    return BuiltIndex(nodes, engine)


def _folder_in(path: Path) -> Path | None:
    """Return the folder of the index that a directory holds; None if it holds none."""
    with suppress(OSError, ValueError):
        return path / _HEADER.validate_json((path / FILE_NAME).read_bytes()).folder
    return None


def node_to_json(node: BaseNode) -> dict[str, object]:
    """Return a node with its embedding, as bm25s stores it.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> node_from_json(node_to_json(TextNode(id_="n1", text="..."))).node_id
        'n1'

    """
    shape = SHAPES.get(type(node).__name__)
    if shape is None or shape.type is not type(node):
        raise ConfigurationError(
            f"node {node.node_id!r} is a {type(node).__name__}; only LlamaIndex's own node classes "
            f"can be written: {', '.join(SHAPES)}"
        )
    if isinstance(node, IndexNode) and not isinstance(node.obj, BaseNode | None):
        raise ConfigurationError(
            f"node {node.node_id!r} stands for a {type(node.obj).__name__}, which cannot be "
            "written; give it an index_id instead of obj"
        )
    try:
        json.dumps(node.metadata)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"node {node.node_id!r} cannot be written as JSON: {error}; metadata may hold strings, "
            "numbers, booleans, None, lists and dicts"
        ) from error
    return {"node": node_to_text(node), "embedding": node.embedding}


def node_from_json(data: Mapping[str, Any]) -> BaseNode:  # Any: JSON
    """Return the node from the output of `node_to_json`."""
    node = node_from_text(data["node"])
    node.embedding = data["embedding"]
    return node
