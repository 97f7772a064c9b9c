"""Nodes that are searched by keyword while they change."""

from collections.abc import Collection, Iterable, Mapping
from threading import Lock

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.basic.bm25.parameters import Parameters
from llama_retrieval_ext.basic.bm25.postings import Postings
from llama_retrieval_ext.basic.bm25.snapshot import Counted, Snapshot
from llama_retrieval_ext.errors import ConfigurationError, DuplicateNodeError, ScopeError
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.stores.backend import Found
from llama_retrieval_ext.stores.nodes.keyword_text import keyword_text
from llama_retrieval_ext.text.tokenizer import Tokenizer


class KeywordIndex:
    """Holds the current snapshot, and replaces it as a whole when nodes come or go.

    Threads may share it: who searches has one snapshot from beginning to end and waits for nobody;
    who changes it waits for others who do.

    Args:
        tokenizer: Cuts nodes and queries.
        snapshot: What to begin with.
    """

    def __init__(self, tokenizer: Tokenizer, snapshot: Snapshot) -> None:
        self.tokenizer = tokenizer
        self.snapshot = snapshot
        self._changing = Lock()

    @classmethod
    def empty(cls, tokenizer: Tokenizer, parameters: Parameters) -> "KeywordIndex":
        """An index without nodes."""
        return cls(tokenizer, Snapshot({}, Postings.of([]), parameters))

    def __len__(self) -> int:
        return len(self.snapshot.nodes)

    def __getstate__(self) -> dict[str, object]:
        return {"tokenizer": self.tokenizer, "snapshot": self.snapshot}  # a lock stays where it is

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _changing=Lock())

    def search(self, text: str, *, top_k: int, condition: Condition | None) -> list[Found]:
        """The best nodes for a text; see `Snapshot.search`."""
        terms = self.tokenizer.query_terms(text)
        return self.snapshot.search(terms, top_k=top_k, condition=condition)

    def replace(
        self,
        *,
        gone: Collection[str] = (),
        nodes: Iterable[BaseNode] = (),
        within: Condition | None = None,
    ) -> int:
        """Take out some nodes and put in others, which replace those of the same id.

        Args:
            gone: Ids of the nodes to take out; unknown ones are passed over.
            nodes: What to put in; of a repeated id the last.
            within: What the caller may see. It cannot put in anything else, nor take out or replace
                what it cannot see.

        Returns:
            How many nodes were taken out.

        Raises:
            ScopeError: A node to put in is not within.
            DuplicateNodeError: A node to be replaced is not within.
        """
        came = {counted.node.node_id: counted for counted in map(self._counted, nodes)}
        _check_within(came.values(), within)
        with self._changing:
            known = self.snapshot.nodes
            _check_replaced(came, known, within)
            out = {i for i in gone if i in known and matches(within, known[i].metadata)}
            if out or came:
                self.snapshot = self.snapshot.changed(gone=out, came=came)
            return len(out)

    def _counted(self, node: BaseNode) -> Counted:
        if not isinstance(node, BaseNode):
            raise ConfigurationError(
                f"expected LlamaIndex nodes, got {type(node).__name__}; "
                "write [TextNode(text=...)] for texts and [hit.node ...] for hits"
            )
        return Counted(node, self.tokenizer.term_counts(keyword_text(node)))


def _check_within(came: Iterable[Counted], within: Condition | None) -> None:
    outside = [each.node.node_id for each in came if not matches(within, each.node.metadata)]
    if outside:
        raise ScopeError(
            f"{len(outside)} nodes are outside the scope of this retriever: {outside[:5]}; "
            "put Scope.metadata() into their metadata, or add them to the unbound retriever"
        )


def _check_replaced(
    came: Collection[str], known: Mapping[str, BaseNode], within: Condition | None
) -> None:
    for node_id in came:
        if node_id in known and not matches(within, known[node_id].metadata):
            raise DuplicateNodeError(
                f"the id {node_id!r} is in use outside the scope of this retriever; "
                "give the node another id",
                node_id,
            )
