"""A knowledge base in which two tenants say the same in other figures."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest
from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.capabilities import CapabilityFactory, MemoryManager
from llama_retrieval_ext.services.report import WORK_LOG
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM

ACME, BETA = Scope("acme"), Scope("beta")
SECRET = {ACME: "beta", BETA: "acme"}  # what must not be seen
PUMP = " ".join(f"Step {n}: valve {n} of the pump is closed by the fitter." for n in range(120))
DOCUMENTS = {
    "leave": ("Annual leave is 25 days a year.", {"date": "2026-01-01"}),
    "pump": (PUMP, {"date": "2026-02-01"}),
    "site": ("The Tower Crane at North Quay was checked by Ada Stone.", {"date": "2026-03-01"}),
    "chat-1": ("Cheers mate, annual leave is sorted!", {"user_id": "ann", "conversation_id": "c1"}),
    "chat-2": ("Yo, leave it with me, cheers!", {"user_id": "ann", "conversation_id": "c2"}),
    "chat-3": ("Dear colleague, leave is granted.", {"user_id": "bob", "conversation_id": "c1"}),
}
LOGS = (
    (datetime(2026, 5, 3, 23, 59, tzinfo=UTC), "ann", "Sunday, before the week."),
    (datetime(2026, 5, 4, 0, 0, tzinfo=UTC), "ann", "Closed 3 valves of the pump."),
    (datetime(2026, 5, 6, 9, 0, tzinfo=UTC), "bob", "Booked travel to Rome."),
    (datetime(2026, 5, 10, 23, 59, tzinfo=UTC), "ann", "The crane was late <b>again</b>."),
    (datetime(2026, 5, 11, 0, 0, tzinfo=UTC), "ann", "Monday, after the week."),
)


WEEK = date(2026, 5, 4), date(2026, 5, 10)


def factory(kb: KnowledgeBase, answers: object = (), **window: int) -> CapabilityFactory:
    return CapabilityFactory.of(kb, llm=ScriptedLLM(answers, **window))  # type: ignore[arg-type]


def prompts_of(service_factory: CapabilityFactory) -> list[str]:
    llm = service_factory.parts.llm
    assert isinstance(llm, ScriptedLLM)
    return llm.prompts


@pytest.fixture(scope="session")
def kb() -> Iterator[KnowledgeBase]:
    """Documents under the same ids for both; each text names its tenant. It requires a scope."""
    model = FakeEmbedding()
    with KnowledgeBase.open("embedded::memory:", embed_model=model, require_scope=True) as opened:
        for scope in (ACME, BETA):
            documents = [
                Document(id_=name, text=f"{text} ({scope.tenant_id})", metadata=dict(metadata))
                for name, (text, metadata) in DOCUMENTS.items()
            ]
            opened.add(documents, scope=scope, show_progress=False).raise_for_failures()
            memories = MemoryManager(opened, scope=scope)
            for moment, user, text in LOGS:
                memories.remember(
                    f"{text} {scope.tenant_id}",
                    memory_type=WORK_LOG,
                    timestamp=moment,
                    metadata={"user_id": user},
                )
        yield opened
