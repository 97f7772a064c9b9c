"""Two tenants through one service object, from many threads."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.services import SearchService
from tests.services.conftest import ACME, BETA, SECRET

CALLS = 300


@pytest.mark.slow
def test_two_tenants_in_eight_threads_never_see_each_others_documents(kb: KnowledgeBase) -> None:
    service = SearchService(kb.retriever("hybrid"), kb, require_scope=True)

    def crossed(thread: int) -> list[str]:
        scope = (ACME, BETA)[thread % 2]
        own, secret = str(scope.tenant_id), SECRET[scope]
        found = (
            each.content
            for number in range(CALLS)
            for each in service.search(("annual leave", "crane")[number % 2], 1, scope=scope)
        )
        contents = list(found)
        assert len(contents) == CALLS
        return [content for content in contents if own not in content or secret in content]

    with ThreadPoolExecutor(8) as pool:
        assert [each for crossing in pool.map(crossed, range(8)) for each in crossing] == []
