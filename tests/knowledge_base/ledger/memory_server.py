"""A ledger on a server that is simulated in memory: its nodes, its records, and its clock."""

from collections.abc import Callable, Sequence
from threading import RLock

from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.errors import StoreUnavailableError
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.ledger.journal import Journal
from llama_retrieval_ext.knowledge_base.ledger.ledger import Ledger
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey, Prepared
from llama_retrieval_ext.knowledge_base.write import Writer
from llama_retrieval_ext.stores.encoding.node_json import SECOND, row_id, rows_of
from llama_retrieval_ext.stores.engine.records import IntentRecords

CONFIG = KnowledgeBaseConfig("model", tokenizer="t", dimension=1)


PATIENCE_S = 30.0


class Nodes:
    """Nodes in a dict, and what was read of it."""

    def __init__(self) -> None:
        self.nodes: dict[str, BaseNode] = {}
        self.reads: list[list[str] | MetadataFilters | None] = []
        self.is_down = False
        self.before_add: Callable[[], object] = lambda: None

    def check(self, documents: Sequence[object]) -> None:
        """It is never looked at before."""

    def add(self, nodes: Sequence[BaseNode]) -> None:
        if self.is_down:
            raise StoreUnavailableError("the server is down")
        self.before_add()
        self.nodes |= {node.node_id: node for node in nodes}

    def upsert(self, documents: Sequence[Prepared], slot: int) -> None:
        nodes = [node for document in documents for node in document.nodes]
        self.add([row_of(node, slot) for node in nodes])

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        self.reads.append(filters if node_ids is None else node_ids)
        condition = None if filters is None else parse_filters(filters)
        ids = self.nodes if node_ids is None else rows_of(node_ids)
        found = [self.nodes[id_] for id_ in ids if id_ in self.nodes]
        return [plain(node) for node in found if matches(condition, node.metadata)]

    def delete_nodes(self, node_ids: Sequence[str] | None = None) -> None:
        for node_id in node_ids or []:
            self.nodes.pop(node_id, None)

    def delete(self, node_ids: Sequence[str], slot: int) -> None:
        self.delete_nodes([row_id(node_id, slot) for node_id in node_ids])

    def count(self, filters: MetadataFilters | None = None) -> int:
        return len(self.get_nodes(filters=filters))

    def flush(self) -> None:
        pass

    def texts(self) -> dict[str, str]:
        return {id_.removesuffix(SECOND): node.get_content() for id_, node in self.nodes.items()}


def plain(node: BaseNode) -> BaseNode:
    return node.model_copy(update={"id_": node.node_id.removesuffix(SECOND)})


def row_of(node: BaseNode, slot: int) -> BaseNode:
    return node.model_copy(update={"id_": row_id(node.node_id, slot)})


class Server:
    """A store, the records beside it, and a clock that stands still."""

    def __init__(self) -> None:
        self.store = Nodes()
        self.beside = Nodes()
        self.now_s = 1e9
        self.ledger().update_config(lambda _: CONFIG)

    def ledger(self) -> Ledger:
        def clock() -> float:
            return self.now_s

        records = IntentRecords(self.beside, is_shared=True, clock=clock, patience_s=PATIENCE_S)  # type: ignore[arg-type]  # the methods that records need
        return Ledger(records, count_stored=self.store.count, clock=clock, patience_s=PATIENCE_S)

    def journal(self) -> Journal:
        return Journal(self.ledger(), lambda ids: self.store.get_nodes(list(ids)))

    def writer(self) -> Writer:
        return Writer([self.store], self.journal(), lock=RLock())

    def texts(self) -> dict[str, str]:
        return self.store.texts()


def prepared(ref: str, text: str = "text", *, n_nodes: int = 1) -> Prepared:
    nodes = [TextNode(id_=f"{ref}-{n}", text=text, embedding=[1.0]) for n in range(n_nodes)]
    for node in nodes:
        node.relationships = {"1": {"node_id": ref}}  # type: ignore[dict-item]  # pydantic's
    nodes = [TextNode.model_validate(node.model_dump()) for node in nodes]
    return Prepared(DocumentKey("", "", ref), f"{ref}: {text} {n_nodes}", tuple(nodes))
