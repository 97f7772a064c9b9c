"""The tests that filters in words mean the same in a knowledge base on any engine."""
# ruff: noqa: D102 - the names of the tests say what they say

from datetime import date
from functools import partial
from random import Random
from typing import Final

from llama_retrieval_ext.filters import matches, parse_filters
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.interpreter import Interpreter
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.facet_contract import SCOPES, facets_by_hand, random_nodes
from llama_retrieval_ext.testing.with_pytest import case, pytest

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
