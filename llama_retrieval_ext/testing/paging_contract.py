"""The tests that pages of a knowledge base on any engine are those of one frozen ranking."""
# ruff: noqa: D102 - the names of the tests say what they say

from random import Random
from typing import ClassVar

from llama_retrieval_ext.errors import ConfigurationError, ScopeError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.testing.facet_contract import random_nodes
from llama_retrieval_ext.testing.with_pytest import case, pytest

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
