"""Pages: a frozen ranking on every engine, in one scope; sorting by a number or a date."""

from collections.abc import Iterator
from random import Random

import pytest
from llama_index.core import Document

from llama_retrieval_ext.errors import ConfigurationError, ScopeError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.testing.paging_contract import PagingContract
from llama_retrieval_ext.testing.fakes import FakeEmbedding


class TestPaging(PagingContract):
    @pytest.fixture
    def kb(self, url: str) -> Iterator[KnowledgeBase]:
        with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=2)) as kb:
            yield kb
