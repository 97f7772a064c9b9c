"""What knowledge bases on all engines promise: facets, filters in words, pages."""
# ruff: noqa: D102 - the names of the tests say what they say

from collections.abc import Collection, Hashable, Iterable
from datetime import date
from functools import partial
from random import Random
from typing import Any, ClassVar, Final
from unicodedata import normalize

from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.dates import instant
from llama_retrieval_ext.errors import ConfigurationError, ScopeError
from llama_retrieval_ext.filter_syntax import parse_filter_texts
from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.interpreter import Interpreter
from llama_retrieval_ext.knowledge_base.facets import Facets
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.scope import Scope, document_of
from llama_retrieval_ext.testing.with_pytest import case, pytest

FIELDS = ("genres", "year", "day", "mixed", "nobody")
_FILTERS = ("year>=2000", "genres=drama or year<1990", "not mixed=1", 'mixed in ("1", "true")')
SCOPES = (
    None,
    Scope("acme"),
    Scope("acme", principals=["ann"]),
    Scope("globex", principals=[]),
    Scope("nobody"),
)


def facets_by_hand(
    stored: Iterable[BaseNode], query: Query, *, top: int, nodes: bool
) -> dict[str, dict[str, Any]]:  # Any: values, ranges or their number
    """Return what facets of `FIELDS` must say of all nodes that a query may see."""
    seen = [node for node in stored if matches(query.condition, node.metadata)]
    return {field: _by_hand(field, seen, top, count_nodes=nodes) for field in FIELDS}


def _by_hand(
    field: str, nodes: Iterable[BaseNode], top: int, *, count_nodes: bool
) -> dict[str, Any]:
    units: dict[tuple[type, object], set[Hashable]] = {}
    for node in nodes:
        value: Any = node.metadata.get(field)
        is_list = isinstance(value, list)
        for given in value if is_list else [value]:
            item = normalize("NFC", given) if isinstance(given, str) else given
            if isinstance(item, str | int | float) and not (is_list and isinstance(item, bool)):
                kind = bool if isinstance(item, bool) else str if isinstance(item, str) else float
                unit = node.node_id if count_nodes else document_of(node)
                units.setdefault((kind, item), set()).add(unit)
    ordered = sorted(units, key=_order)
    best = sorted(ordered, key=lambda value: -len(units[value]))[:top]
    parts: list[list[tuple[type, object]]] = []
    if {_order(value)[0] for value in ordered} in ({0}, {1}):  # numbers alone, or dates alone
        total, before, is_full = sum(map(len, units.values())), 0, True
        for at, value in enumerate(ordered):
            if is_full and (not at or _order(value)[:2] != _order(ordered[at - 1])[:2]):
                parts, is_full = [*parts, []], False
            parts[-1].append(value)
            count = before + len(units[value])
            is_full, before = is_full or count * 5 // total > before * 5 // total, count
    lows = [part[0][1] for part in parts]
    counts = [len({unit for value in part for unit in units[value]}) for part in parts]
    return {
        "values": [(value[1], len(units[value])) for value in best],
        "ranges": [*zip(lows, [*lows[1:], None], counts, strict=True)] if parts else [],
        "distinct": len(units),
    }


def _order(value: tuple[type, object]) -> tuple[Any, ...]:  # Any: a number or a text
    kind, item = value
    moment = instant(item)
    if moment is not None:
        return 1, moment, item
    return {float: 0, str: 2, bool: 3}[kind], item


def as_data(facets: Facets) -> dict[str, dict[str, object]]:
    """Return facets in the form of `facets_by_hand`."""
    return {
        name: {
            "values": [(part.value, part.count) for part in facet.values],
            "ranges": [(part.low, part.high, part.count) for part in facet.ranges],
            "distinct": facet.distinct,
        }
        for name, facet in facets.items()
    }


def random_nodes(random: Random, count: int, start: int = 0) -> list[TextNode]:
    """Return passages of documents of two tenants, some for some principals only."""
    texts, nodes = ["crane", "crane audit", "leave", "audit notice leave"], []
    for number in range(count):
        tenant, document = random.choice(
            [(t, d) for t in ("acme", "globex") for d in range(start, start + count)]
        )
        listed = random.sample(["drama", "comedy", "caf\u00e9", "crime"], random.randrange(4))
        metadata = {
            "tenant_id": tenant,
            "genres": random.choice([listed, random.choice(["drama", "crime"])]),
            "year": random.choice([1980, 1995, 2000, 2000.0, 2010.5, 2024]),
            "day": random.choice(
                ["2024-01-31", "2024-01-31T00:00:00Z", "2023-05-01", "1999-12-31"]
            ),
            "mixed": random.choice([1, "1", True, False, "true", "2024-01-31", {"a": 1}, [1, "x"]]),
        }
        for name in random.sample(sorted(metadata.keys() - {"tenant_id"}), random.randrange(3)):
            del metadata[name]
        if document % 3 == 0:
            metadata["allowed"] = ["ann"] if document % 2 else ["bob"]
        node = TextNode(
            id_=f"{tenant}-{document}-{number}",
            text=random.choice(texts),
            metadata=metadata,
            embedding=[random.random(), 1.0],
        )
        source = RelatedNodeInfo(node_id=f"d{document}")
        node.relationships[NodeRelationship.SOURCE] = source
        nodes.append(node)
    return nodes


class FacetContract:
    """Tests of facets; a subclass gives an empty knowledge base, with vectors of dimension 2.

    Attributes:
        rounds: Number of random changes, with some questions after each.
    """

    rounds: ClassVar[int] = 6

    @pytest.fixture
    def kb(self) -> KnowledgeBase:
        """Return an empty knowledge base; every subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named kb")

    def test_facets_are_those_counted_by_hand(self, kb: KnowledgeBase) -> None:
        random = Random(7)  # noqa: S311 - a test
        stored: dict[str, TextNode] = {}
        for _ in range(self.rounds):
            added = random_nodes(random, 12)
            documents = {document_of(node) for node in added}
            stored = {i: node for i, node in stored.items() if document_of(node) not in documents}
            kb.add(added, show_progress=False)
            stored |= {node.node_id: node for node in added}
            gone = random.choice(added)
            kb.delete(str(gone.ref_doc_id), scope=Scope(gone.metadata["tenant_id"]))
            stored = {
                i: node for i, node in stored.items() if document_of(node) != document_of(gone)
            }
            for scope in SCOPES:
                check_facets(kb, stored.values(), random, scope)


def check_facets(
    kb: KnowledgeBase, stored: Collection[BaseNode], random: Random, scope: Scope | None
) -> None:
    """Fail unless the facets of what a scope may see, of filters and of a query are right."""
    written = random.choice(_FILTERS)
    top, count_nodes = random.choice([1, 2, 10]), random.random() < 1 / 2
    for filters in (None, parse_filter_texts([written])):
        with case(scope, filters and written, top, count_nodes):
            facets = kb.facets(FIELDS, filters=filters, scope=scope, top=top, nodes=count_nodes)
            asked = Query("", filters=filters, scope=scope)
            assert as_data(facets) == facets_by_hand(stored, asked, top=top, nodes=count_nodes)
            assert not facets.approximate
            with_word = [node for node in stored if "audit" in node.get_content()]
            facets = kb.facets(FIELDS, "audit", filters=filters, scope=scope, top=top)
            assert as_data(facets) == facets_by_hand(with_word, asked, top=top, nodes=False)


INTERPRET_SCHEMA: Final = Schema(facets=["genres", "mixed"], numbers=["year"], dates=["day"])
_TODAY: Final = date(2026, 11, 28)
_COUNT: Final = 40
_QUESTIONS: Final = (
    "dramas about a crane with year after 1990",
    "crane documents, genres: crime or café, not comedy",
    "crane with year 2000",
    "crane documents with a year of at least 2010.5",
    "audit documents, day before 2024",
    "crane documents after 2001",
    "crime documents of true cranes",
)


class InterpretContract:
    """Tests of filters in words.

    A subclass gives an empty knowledge base of `INTERPRET_SCHEMA`, with vectors of dimension 2.
    """

    @pytest.fixture
    def kb(self) -> KnowledgeBase:
        """Return an empty knowledge base; every subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named kb")

    def test_filters_in_words_are_of_the_values_that_a_scope_sees(self, kb: KnowledgeBase) -> None:
        stored = random_nodes(Random(5), _COUNT)  # noqa: S311 - a test
        kb.add(stored, show_progress=False)
        names = (*INTERPRET_SCHEMA.facets, *INTERPRET_SCHEMA.numbers, *INTERPRET_SCHEMA.dates)
        for scope in SCOPES:
            everything = Query("", scope=scope)
            seen = [node for node in stored if matches(everything.condition, node.metadata)]
            facets = facets_by_hand(stored, everything, top=_COUNT, nodes=True)
            lists = {n for n in names if any(isinstance(s.metadata.get(n), list) for s in seen)}
            values = {name: [value for value, _ in facets[name]["values"]] for name in names}
            interpreter = Interpreter(values, lists=lists)
            for question in _QUESTIONS:
                with case(scope, question):
                    reading = kb.interpret(question, scope=scope, today=_TODAY)
                    assert reading == interpreter.interpret(question, today=_TODAY)

    def test_a_search_with_filters_in_words_is_one_with_filters(self, kb: KnowledgeBase) -> None:
        kb.add(random_nodes(Random(5), _COUNT), show_progress=False)  # noqa: S311 - a test
        for scope in SCOPES:
            search = partial(kb.search, mode="keyword", correct=False, scope=scope, top_k=_COUNT)
            for question in _QUESTIONS:
                with case(scope, question):
                    reading = kb.interpret(question, scope=scope)
                    query, filters = reading.query or question, reading.filters
                    result = search(question, interpret=True)
                    assert node_ids(result) == node_ids(search(query, filters=filters))
                    condition = None if filters is None else parse_filters(filters)
                    assert all(matches(condition, hit.metadata) for hit in result)

    def test_a_value_is_a_filter_as_long_as_a_passage_has_it(self, kb: KnowledgeBase) -> None:
        node = random_nodes(Random(5), 1)[0]  # noqa: S311 - a test
        node.metadata |= {"genres": ["western"], "tenant_id": "acme"}
        node.metadata.pop("allowed", None)
        scope = Scope("acme")
        for is_there in (False, True, False):
            if is_there:
                kb.add([node], show_progress=False)
            else:
                kb.delete(str(node.ref_doc_id), scope=scope)
            reading = kb.interpret("crane documents, genres: western", scope=scope)
            assert (reading.filters is not None) is is_there


_SCOPE = Scope("acme", principals=["ann"])


class PagingContract:
    """Tests of cursors; a subclass gives an empty knowledge base, with vectors of dimension 2."""

    modes: ClassVar[tuple[Kind, ...]] = ("keyword", "hybrid")

    @pytest.fixture
    def kb(self) -> KnowledgeBase:
        """Return an empty knowledge base; every subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named kb")

    @pytest.mark.parametrize("sort", [None, "-year"])
    def test_pages_are_those_of_a_frozen_ranking(self, kb: KnowledgeBase, sort: str | None) -> None:
        random = Random(3)  # noqa: S311 - a test
        kb.add(random_nodes(random, 60), show_progress=False)
        for mode in self.modes:
            frozen = kb.search("crane audit", mode, top_k=60, depth=60, scope=_SCOPE, sort=sort)
            gone: set[str | None] = set()
            shown: list[str] = []
            page = kb.search("crane audit", mode, top_k=3, depth=60, scope=_SCOPE, sort=sort)
            left = {hit.node_id: hit.node.ref_doc_id for hit in frozen}
            while page.cursor is not None:
                shown += node_ids(page)
                later = [ref for node_id, ref in left.items() if node_id not in shown]
                if later and len(gone) < 3:
                    document = random.choice(later)
                    kb.delete(str(document), scope=Scope("acme"))
                    gone.add(document)
                    kb.add(random_nodes(random, 2, start=100 * len(gone)), show_progress=False)
                page = kb.search(
                    "crane audit", mode, top_k=3, scope=_SCOPE, sort=sort, cursor=page.cursor
                )
            shown += node_ids(page)
            with case(mode, gone):
                assert shown == [n for n, ref in left.items() if ref not in gone or n in shown]
                assert len({*shown}) == len(shown)

    def test_a_cursor_is_of_one_question_in_one_scope(self, kb: KnowledgeBase) -> None:
        kb.add(random_nodes(Random(3), 30), show_progress=False)  # noqa: S311 - a test
        cursor = kb.search("crane", "keyword", top_k=1, scope=_SCOPE).cursor
        for scope in (None, Scope("acme"), Scope("globex"), Scope("acme", principals=["bob"])):
            with pytest.raises(ScopeError):
                kb.search("crane", "keyword", top_k=1, scope=scope, cursor=cursor)
        for changed in (f"{cursor}"[:-8] + "AAAAAAA=", "x", ""):
            with pytest.raises(ConfigurationError):
                kb.search("crane", "keyword", top_k=1, scope=_SCOPE, cursor=changed)
        with pytest.raises(ConfigurationError):
            kb.search("cranes", "keyword", top_k=1, scope=_SCOPE, cursor=cursor)
