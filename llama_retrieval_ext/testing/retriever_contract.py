"""`RetrieverContract`: what every retriever of this package promises, as tests to inherit."""

from llama_retrieval_ext.testing.host_contract import HostContract
from llama_retrieval_ext.testing.isolation_contract import IsolationContract
from llama_retrieval_ext.testing.ranking_contract import RankingContract
from llama_retrieval_ext.testing.result_contract import ResultContract


class RetrieverContract(RankingContract, ResultContract, IsolationContract, HostContract):
    """Subclass it, give it a ``retriever`` over `sample_nodes`, and pytest tests every promise.

    ::

        class TestMyRetriever(RetrieverContract):
            @pytest.fixture
            def retriever(self):
                return MyRetriever(sample_nodes(FakeEmbedding()), top_k=5)

    A retriever over nothing may be given as ``empty_retriever``. What a retriever legitimately
    differs in is said by the class attributes of
    `llama_retrieval_ext.testing.retriever_fixtures.RetrieverFixtures`.

    """
