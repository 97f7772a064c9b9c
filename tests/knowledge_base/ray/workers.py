"""A model that kills or delays its worker, and what a knowledge base holds."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from llama_retrieval_ext.testing import FakeEmbedding

EMBEDDED = pytest.mark.parametrize("engine", ["embedded"], indirect=True)


Ingest = Callable[..., IngestionReport]


N_BATCH = 64


class ObstructedEmbedding(FakeEmbedding):
    """Kills its process, or waits, at some texts: as long as a file says so, or always."""

    folder: Path

    def _embed(self, text: str) -> list[float]:
        if "poison" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if "deadly" in text and (self.folder / "deadly").exists():
            (self.folder / "deadly").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        while "slow" in text and (self.folder / "slow").exists():
            time.sleep(0.05)
        return super()._embed(text)


def stored(kb: KnowledgeBase, scope: Scope | None = None) -> dict[str, object]:
    """What is in a knowledge base: the nodes of each document, and its digest in the ledger."""
    contents: dict[str, object] = {}
    for document in kb.documents(scope=scope):
        kb_ids = ("",) if scope is None else scope.kb_ids or ("",)
        key = DocumentKey("", kb_ids[0], document.document_id)
        nodes = kb.get(document.document_id, scope=scope)
        contents[document.document_id] = (
            [(node.node_id, node.get_content(), node.metadata, related(node)) for node in nodes],
            list(kb._ledger.digests([key])),
        )
    return contents


def related(node: BaseNode) -> str:
    return str(sorted((str(kind), repr(each)) for kind, each in node.relationships.items()))


def added(
    documents: Any, model: FakeEmbedding, scope: Scope | None = None, **options: Any
) -> dict[str, object]:
    """What `KnowledgeBase.add` makes of documents."""
    with KnowledgeBase.open("embedded::memory:", embed_model=model, **options) as kb:
        kb.add(documents, scope=scope, show_progress=False)
        return stored(kb, scope)


def many(n: int, **texts: str) -> list[Document]:
    return [Document(id_=f"d{i}", text=texts.get(f"d{i}", f"leave {i}")) for i in range(n)]
