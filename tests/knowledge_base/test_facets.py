"""Facets: the same on every engine as counted by hand, up to date, exact or marked."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document

from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.testing.facet_contract import FacetContract
from llama_retrieval_ext.testing.fakes import FakeEmbedding


class TestFacets(FacetContract):
    @pytest.fixture
    def kb(self, url: str) -> Iterator[KnowledgeBase]:
        with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=2)) as kb:
            yield kb
