"""Writes a BM25 retriever to a directory, its index in bm25s's format, and reads it back."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict
from uuid import uuid4

import bm25s
from llama_index.core.schema import BaseNode, IndexNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.retrievers.bm25.docstore_sync import DocstoreLimits
from llama_retrieval_ext.retrievers.bm25.index import BuiltIndex
from llama_retrieval_ext.stores.encoding.node_json import SHAPES, node_from_text, node_to_text
from llama_retrieval_ext.text.tokenizer import Tokenizer

FILE_NAME: Final = "retriever.json"
FORMAT: Final = "llama_retrieval_ext.BM25Retriever"
FORMAT_VERSION: Final = 1


class BM25Settings(TypedDict):
    """Arguments of a retriever that are stored: all except its scope."""

    top_k: int
    tokenizer: Tokenizer
    filters: MetadataFilters | None
    normalise: bool
    k1: float
    b: float
    name: str


class Stored(NamedTuple):
    """Contents of one directory."""

    settings: BM25Settings
    limits: DocstoreLimits | None
    scoped: bool
    built: BuiltIndex


def write(path: Path, stored: Stored) -> None:
    """Write a retriever into a directory atomically.

    Each retriever has its index in a folder of its own; the file that names the folder is replaced
    last.
    """
    corpus = [node_to_json(node) for node in stored.built.nodes]
    folder, previous = path / f"index-{uuid4().hex}", _folder_in(path)
    try:
        stored.built.engine.save(folder, corpus=corpus, show_progress=False)
        for file in folder.iterdir():
            _flush(file)
        _replace(path / FILE_NAME, json.dumps(_header(stored, folder.name), indent=2))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise StoreUnavailableError(
            f"cannot write to {path}: {error}; what was there is as it was"
        ) from error
    if previous is not None:
        shutil.rmtree(previous, ignore_errors=True)


def read(path: Path) -> Stored:
    """Return the contents of a directory."""
    file_path = path / FILE_NAME
    try:
        text = file_path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreFormatError(
            f"{path} holds no BM25 retriever of ours: there is no {FILE_NAME} in it. "
            "BM25Retriever(nodes).persist(path) writes one"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(f"cannot read {file_path}: {error}") from error
    try:
        return _stored(json.loads(text), path)
    except (OSError, AttributeError, EOFError, KeyError, TypeError, ValueError) as error:
        raise StoreFormatError(
            f"{file_path} and its index cannot be read, {error}; make the retriever from its nodes "
            "again. LlamaIndex's own BM25Retriever cannot be read"
        ) from error


def _header(stored: Stored, folder: str) -> dict[str, object]:
    settings = stored.settings
    filters = settings["filters"]
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "index": folder,
        "settings": {
            **settings,
            "tokenizer": settings["tokenizer"].to_dict(),
            "filters": None if filters is None else filters.model_dump(mode="json"),
        },
        "docstore": None if stored.limits is None else asdict(stored.limits),
        "scoped": stored.scoped,
    }


def _stored(header: Mapping[str, Any], path: Path) -> Stored:  # Any: JSON
    if header["format"] != FORMAT:
        raise ValueError(f"it says that it is a {header['format']!r}")
    if header["version"] != FORMAT_VERSION:
        raise ValueError(
            f"it has format version {header['version']} and this release reads {FORMAT_VERSION}"
        )
    engine = bm25s.BM25.load(path / header["index"], load_corpus=True, show_progress=False)
    nodes = [node_from_json(each) for each in engine.corpus]
    engine.corpus = None
    if engine.scores["num_docs"] != max(1, len(nodes)):
        raise ValueError("its index is not that of its nodes")
    limits, settings = header["docstore"], header["settings"]
    return Stored(
        _settings(settings),
        None if limits is None else DocstoreLimits(**limits),
        header["scoped"],
        BuiltIndex(nodes, engine),
    )


def _settings(data: Mapping[str, Any]) -> BM25Settings:  # Any: JSON
    filters = data["filters"]
    return BM25Settings(
        top_k=data["top_k"],
        tokenizer=Tokenizer.from_dict(data["tokenizer"]),
        filters=None if filters is None else MetadataFilters.model_validate(filters),
        normalise=data["normalise"],
        k1=data["k1"],
        b=data["b"],
        name=data["name"],
    )


def _folder_in(path: Path) -> Path | None:
    """Return the folder of the index that a directory holds; None if it holds none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        header = json.loads((path / FILE_NAME).read_text("utf-8"))
        if header["format"] == FORMAT:
            return path / Path(header["index"]).name
    return None


def _replace(file_path: Path, text: str) -> None:
    temporary = file_path.with_name(f".{file_path.name}.{uuid4().hex}")
    try:
        temporary.write_text(text, "utf-8")
        _flush(temporary)
        temporary.replace(file_path)
    finally:
        temporary.unlink(missing_ok=True)


def _flush(file_path: Path) -> None:
    with file_path.open("rb") as file:
        os.fsync(file.fileno())


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
