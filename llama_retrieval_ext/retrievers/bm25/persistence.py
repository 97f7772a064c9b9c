"""Writes a BM25 retriever to a directory and reads it back."""

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict
from uuid import uuid4

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import BaseNode, IndexNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.retrievers.bm25.docstore_sync import DocstoreLimits
from llama_retrieval_ext.retrievers.bm25.postings import Postings
from llama_retrieval_ext.stores.encoding.node_json import SHAPES, node_from_text, node_to_text
from llama_retrieval_ext.text.tokenizer import Tokenizer


class BM25Options(TypedDict, total=False):
    """Keyword arguments of `BM25Retriever`, documented there."""

    top_k: int
    tokenizer: Tokenizer | None
    filters: MetadataFilters | None
    scope: Scope | None
    normalise: bool
    k1: float
    b: float
    name: str


class DocstoreOptions(BM25Options, total=False):
    """Keyword arguments of `BM25Retriever.from_docstore`, documented there."""

    cache_ttl_s: float | None
    max_chunks: int | None
    show_progress: bool


class BM25Settings(TypedDict):
    """Settings of a retriever that are stored: all except its scope."""

    top_k: int
    tokenizer: Tokenizer
    filters: MetadataFilters | None
    normalise: bool
    k1: float
    b: float
    name: str


def settings_to_json(settings: BM25Settings) -> dict[str, object]:
    """Return the settings as JSON."""
    filters = settings["filters"]
    return {
        **settings,
        "tokenizer": settings["tokenizer"].to_dict(),
        "filters": None if filters is None else filters.model_dump(mode="json"),
    }


def settings_from_json(data: Mapping[str, Any]) -> BM25Settings:  # Any: JSON
    """Return the settings from the output of `settings_to_json`."""
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


FILE_NAME: Final = "bm25_retriever.npz"
FORMAT: Final = "llama_retrieval_ext.BM25Retriever"
FORMAT_VERSION: Final = 2

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]  # Any: each has its own dtype
_COLUMNS: Final = ("terms", "starts", "documents", "counts", "lengths")


class Stored(NamedTuple):
    """Contents of one file."""

    settings: BM25Settings
    limits: DocstoreLimits | None
    scoped: bool
    nodes: Mapping[str, BaseNode]
    postings: Postings


def write(path: Path, stored: Stored) -> None:
    """Write a retriever into a directory atomically."""
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "settings": settings_to_json(stored.settings),
        "docstore": None if stored.limits is None else asdict(stored.limits),
        "scoped": stored.scoped,
    }
    columns = {
        "header": _bytes(json.dumps(header)),
        "nodes": _bytes("\n".join(map(node_to_line, stored.nodes.values()))),
        **{name: getattr(stored.postings, name) for name in _COLUMNS},
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
        _replace(path / FILE_NAME, columns)
    except OSError as error:
        raise StoreUnavailableError(
            f"cannot write to {path}: {error}; what was there is as it was"
        ) from error


def read(path: Path) -> Stored:
    """Return the contents of the file in a directory."""
    file_path = path / FILE_NAME
    try:
        # Opened here because np.load leaves a damaged file open.
        with file_path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            return _stored(columns, file_path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreFormatError(
            f"{path} holds no BM25 retriever of ours: there is no {FILE_NAME} in it. "
            "BM25Retriever(nodes).persist(path) writes one; LlamaIndex's own cannot be read"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(f"cannot read {file_path}: {error}") from error
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        raise StoreFormatError(
            f"{file_path} cannot be read, {error}; make the retriever from its nodes again"
        ) from error


def _replace(file_path: Path, columns: Columns) -> None:
    temporary = file_path.with_name(f".{file_path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            np.savez(file, **dict[str, Any](columns))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(file_path)
    finally:
        temporary.unlink(missing_ok=True)


def _stored(columns: Columns, file_path: Path) -> Stored:
    header = json.loads(columns["header"].tobytes())
    if header["format"] != FORMAT:
        raise ValueError(f"it says that it is a {header['format']!r}")
    if header["version"] != FORMAT_VERSION:
        raise StoreFormatError(
            f"{file_path} has format version {header['version']} and this release reads version "
            f"{FORMAT_VERSION}; use the release that wrote it, or index the nodes again"
        )
    nodes = [node_from_line(line.decode()) for line in columns["nodes"].tobytes().splitlines()]
    postings = Postings(*(columns[name] for name in _COLUMNS))
    ids = [node.node_id for node in nodes]
    if ids != sorted(set(ids)) or not postings.fit(len(ids)):
        raise ValueError("its parts do not go together")
    by_id = dict(zip(ids, nodes, strict=True))
    settings, docstore = settings_from_json(header["settings"]), header.get("docstore")
    limits = None if docstore is None else DocstoreLimits(**docstore)
    return Stored(settings, limits, header["scoped"], by_id, postings)


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def node_to_line(node: BaseNode) -> str:
    """Return a node as one line of JSON with its embedding.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> node_from_line(node_to_line(TextNode(id_="n1", text="..."))).node_id
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
    return f"{node_to_text(node)}\t{json.dumps(node.embedding)}"


def node_from_line(line: str) -> BaseNode:
    """Return the node that `node_to_line` wrote."""
    text, embedding = line.split("\t")
    node = node_from_text(text)
    node.embedding = json.loads(embedding)
    return node
