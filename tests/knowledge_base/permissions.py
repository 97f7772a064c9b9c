"""Random documents, groups, shares and revocations, and an oracle of who sees what.

Each document names two of a few entities. The oracle keeps a dictionary of the documents with the
principals that they name, and every answer is compared with it: ids, counts, names and edges.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.errors import ScopeViolationError
from llama_retrieval_ext.graph import PassageLinks
from llama_retrieval_ext.testing import FakeEmbedding

WORDS = ("leave", "travel", "salary", "crane", "audit", "notice", "vault", "shift")
ENTITIES = ("Apex", "Borealis", "Cygnus", "Delta", "Elara")
GROUPS = tuple(f"group:{number}" for number in range(12))
TENANTS = ("acme", "globex")


@dataclass
class Stored:
    """What the oracle knows of a document."""

    text: str
    entities: frozenset[str]
    allowed: tuple[str, ...]  # empty for everyone

    def is_seen_by(self, principals: Sequence[str] | None) -> bool:
        return principals is None or not self.allowed or bool({*self.allowed} & {*principals})


@dataclass
class Fuzzer:
    """Changes a knowledge base at random, and checks its answers."""

    kb: KnowledgeBase
    random: Random
    known: dict[tuple[str, str], Stored] = field(default_factory=dict)
    queries: int = 0
    wrong: list[str] = field(default_factory=list)

    def run(self, queries: int, *, changes: int, users: int = 1) -> None:
        """Ask this many queries, in turns some changes and all questions of some users."""
        while self.queries < queries:
            for _ in range(changes):
                self.change()
            for _ in range(users):
                self.check()

    def change(self) -> None:
        """Add, change, share, delete or add again one document."""
        tenant, name = self.random.choice(TENANTS), f"doc{self.random.randrange(30)}"
        scope, before = Scope(tenant), self.known.get((tenant, name))
        action = self.random.random()
        if before is not None and action < 0.4:
            allowed = self._some()
            assert self.kb.share(name, allowed=allowed or None, scope=scope) == 1
            before.allowed = allowed
        elif before is not None and action < 0.55:
            assert self.kb.delete(name, scope=scope) == 1
            del self.known[tenant, name]
        else:
            allowed = self._some()
            entities = frozenset(self.random.sample(ENTITIES, 2))
            text = " ".join((*self.random.choices(WORDS, k=4), *sorted(entities)))
            stored = Stored(text, entities, allowed or (() if before is None else before.allowed))
            metadata = {"tags": sorted(entities)}
            document = Document(id_=name, text=text, metadata=metadata)
            report = self.kb.add(
                [document], scope=scope, allowed=allowed or None, show_progress=False
            )
            report.raise_for_failures()
            self.known[tenant, name] = stored

    def check(self) -> None:
        """Ask everything once for a random user."""
        tenant = self.random.choice(TENANTS)
        principals = self.random.choice([None, (), self._some(6), self._some(6), ("user:x",)])
        scope = Scope(tenant, principals=principals)
        seen = {
            n: d for (t, n), d in self.known.items() if t == tenant and d.is_seen_by(principals)
        }
        for what, found, expected in self._answers(scope, seen):
            self.queries += 1
            if found != expected:
                self.wrong.append(f"{what} for {scope}: {found} instead of {expected}")

    def _some(self, most: int = 2) -> tuple[str, ...]:
        return tuple(sorted(self.random.sample(GROUPS, self.random.randrange(most + 1))))

    def _answers(
        self, scope: Scope, seen: Mapping[str, Stored]
    ) -> Iterator[tuple[str, object, object]]:
        """Yield answers with what they ought to be."""
        words = self.random.sample(WORDS, 2)
        by_word = {n for n, d in seen.items() if {*words} & {*d.text.split()}}
        for mode, expected in (("vector", set(seen)), ("hybrid", set(seen)), ("keyword", by_word)):
            yield mode, self._found(mode, " ".join(words), scope), expected
        yield "documents", {d.document_id for d in self.kb.documents(scope=scope)}, set(seen)
        yield "count", self.kb.count(scope=scope), len(seen)
        name = f"doc{self.random.randrange(30)}"
        nodes = self.kb.get(name, scope=scope)
        yield "get", len(nodes), int(name in seen)
        yield "named by get", self._others(nodes, scope), set()
        fields = {"kb_id", "tags", "tenant_id"} - {"kb_id"} if seen else set()
        yield "fields", set(self.kb.metadata_fields(scope=scope)), fields
        if self.kb.graph is not None:
            yield from self._graph_answers(scope, seen)

    def _graph_answers(
        self, scope: Scope, seen: Mapping[str, Stored]
    ) -> Iterator[tuple[str, object, object]]:
        assert self.kb.graph is not None
        entities = {entity for each in seen.values() for entity in each.entities}
        named = {id_ for _, id_ in self.kb.graph.names(scope=scope) if id_ in ENTITIES}
        yield "names", named, entities
        near = self.kb.graph.neighbours(ENTITIES, scope=scope)
        yield "neighbours", set(near), entities
        mentions = sum(len(each.entities) for each in seen.values())
        yield "edges", sum(map(len, near.values())), mentions
        entity = self.random.choice(ENTITIES)
        hits = self._found("graph", entity, scope)
        yield "graph", hits - set(seen), set()
        said = {n for n, d in seen.items() if entity in d.entities}
        yield "graph finds", hits & said, said

    def _found(self, mode: str, text: str, scope: Scope) -> set[str]:
        try:
            hits = self.kb.retriever(mode, top_k=200, scope=scope).retrieve(text)  # type: ignore[call-overload]
        except ScopeViolationError as error:  # the engine was wrong; the gate was not
            return {f"violation: {error}"}
        others = self._others([hit.node for hit in hits], scope)
        return others | {hit.node.ref_doc_id or hit.node.node_id for hit in hits}

    def _others(self, nodes: Sequence[BaseNode], scope: Scope) -> set[str]:
        """Return the principals that nodes name beside those of the scope."""
        named = {name for node in nodes for name in node.metadata.get("allowed", ())}
        return set() if scope.principals is None else named - {*scope.principals}


@contextmanager
def opened(url: str, graph: str | None) -> Iterator[KnowledgeBase]:
    """Open a knowledge base, with a graph of the entities in its documents."""
    links = None if graph is None else PassageLinks(entity_fields=["tags"], phrases=False)
    model = FakeEmbedding(dim=16)
    with KnowledgeBase.open(url, embed_model=model, graph=graph, links=links) as kb:
        yield kb
