"""Classes of an application whose async retrieve returns records."""

from typing import Any

import pytest

from llama_retrieval_ext import Scope
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.errors import ConfigurationError, ScoreError, UnsupportedModeError
from llama_retrieval_ext.hits import scored_ids
from llama_retrieval_ext.pipeline.retriever import Retriever
from tests.config.conftest import ask


class Records:
    """A retriever of the designs: no LlamaIndex class, with an async ``retrieve``."""

    def __init__(self, *, tenant: str = "acme", text: str = "annual leave") -> None:
        self.tenant, self.text = tenant, text

    async def retrieve(
        self, query: str, tenant_id: str | None, kb_ids: list[str] | None, top_k: int
    ) -> list[dict[str, Any]]:
        """Return a record of the own tenant, whatever the caller's."""
        del tenant_id, kb_ids, top_k
        own = {"tenant_id": self.tenant, "query": query}
        return [
            {"chunk_id": "n1", "text": self.text, "score": 0.4, "metadata": own}
            | {"knowledge_base_id": "hr", "document_id": "d1", "source": "mine"}
        ]


def test_arguments_of_a_registered_class_are_its_parameters(registry: Registry) -> None:
    registry.register_retriever("my")(Records)
    factory = registry.get("retriever", "my")
    assert factory.parameters == {"tenant": "acme", "text": "annual leave"}
    (record,) = ask(factory(text="sick leave"))
    assert (record["text"], record["document_id"], record["source"]) == ("sick leave", "d1", "mine")
    assert registry.get_retriever("my").retrieve("leave")[0].text == "annual leave"
    with pytest.raises(ConfigurationError, match="did you mean 'text'"):
        factory(txet="x")


def test_records_of_another_tenant_or_knowledge_base_are_dropped(registry: Registry) -> None:
    registry.register_retriever("my")(Records)
    assert ask(registry.get("retriever", "my")(), kb_ids=["sales"]) == []
    made = registry.get_retriever("my", tenant="globex")
    assert isinstance(made, Retriever)
    (degraded,) = made.search("leave", scope=Scope("acme")).degraded
    assert "outside the query's scope" in degraded.reason


def test_records_are_refused_for_principals_because_they_do_not_name_any(
    registry: Registry,
) -> None:
    registry.register_retriever("my")(Records)
    with pytest.raises(UnsupportedModeError, match="do not say who may see them"):
        ask(registry.get("retriever", "my")(), principals=["user:ann"])


@pytest.mark.parametrize("score", [None, float("nan")])
def test_records_are_a_ranking_of_distinct_nodes_with_finite_scores(
    registry: Registry, score: float | None
) -> None:
    class Given:
        def __init__(self, *, records: object) -> None:
            self.records = records

        async def retrieve(self, **_: object) -> object:
            return self.records

    registry.register_retriever("given")(Given)

    def retrieved(records: object) -> list[tuple[str, float | None]]:
        return scored_ids(registry.get_retriever("given", records=records).retrieve("leave"))

    record = {"chunk_id": "n1", "text": "annual leave", "score": 0.4}
    assert retrieved([record, record | {"score": 0.7}]) == [("n1", 0.7)]
    with pytest.raises((ConfigurationError, ScoreError), match="score"):
        retrieved([record | {"score": score}])
    with pytest.raises(ConfigurationError, match="must return a list of records"):
        retrieved(None)
