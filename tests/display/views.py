"""One value of each kind that shows itself, as full as they get, with hostile text in them."""

from datetime import UTC, date, datetime
from functools import cache

from llama_index.core import Document
from llama_index.core.schema import TextNode

from llama_retrieval_ext import (
    RRF,
    BM25Retriever,
    Dedupe,
    EmbeddedVectorStore,
    FallbackRetriever,
    HybridRetriever,
    KnowledgeBase,
    Leg,
    Retriever,
    RuleRerank,
    Scope,
    Top,
    branches,
)
from llama_retrieval_ext.capabilities.analysis import Finding
from llama_retrieval_ext.evaluation import Experiment, Judgements, Level, compare, tune
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from llama_retrieval_ext.results import Hit, ProofEdge, SearchResult
from llama_retrieval_ext.services.report import WeeklyReport, WorkLog
from llama_retrieval_ext.testing import FakeEmbedding, sample_nodes

HOSTILE = "<script>console.error('run')</script><img src=x onerror=alert(1)>\"'&"
QUERY = "annual leave 年假"


def pipeline() -> Retriever:
    """Two legs with names, one a hybrid retriever, and stages behind their fusion."""
    model = FakeEmbedding()
    nodes = sample_nodes(model)
    nodes.append(TextNode(id_="hostile", text=f"annual leave {HOSTILE}", metadata={"k": HOSTILE}))
    nodes[-1].embedding = model.get_text_embedding(nodes[-1].text)
    store = EmbeddedVectorStore(":memory:")
    store.add(nodes)
    hybrid = HybridRetriever(store, embed_model=model, top_k=8)
    words = FallbackRetriever(BM25Retriever(nodes), BM25Retriever(nodes), enough=3)
    legs = branches(Leg("meaning", hybrid, weight=2), Leg(HOSTILE, words >> Top(20)))
    return legs >> RRF() >> RuleRerank() >> Dedupe() >> Top(6)


def legs_of_two() -> Retriever:
    nodes = sample_nodes()
    return branches(BM25Retriever(nodes), BM25Retriever(nodes[:3])) >> RRF()


def weekly_report() -> WeeklyReport:
    """What somebody did, and what did not work, in hostile words."""
    log = WorkLog(id="log", timestamp=datetime(2026, 5, 4, tzinfo=UTC), text=HOSTILE)
    return WeeklyReport(
        user_id=HOSTILE,
        start_date=date(2026, 5, 4),
        end_date=date(2026, 5, 10),
        overview=HOSTILE,
        sections={HOSTILE: [Finding(text=HOSTILE, sources=["log"])], "challenges": []},
        comparison=HOSTILE,
        work_logs=[log],
        problems=[HOSTILE],
    )


@cache
def every_view() -> dict[str, str]:
    """The HTML of each kind of value, by its name."""
    retriever = pipeline()
    explanation = retriever.explain(QUERY)
    proof = (ProofEdge("a", "IS_PART_OF", "b", f"{HOSTILE} is part of 年假"),)
    hit = Hit(
        node=TextNode(text="25 days of annual leave"), score=1.0, path="leave → 年假", proof=proof
    )
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        report = kb.add([Document(text="25 days", id_="leave"), Document(text="", id_=HOSTILE)])
        failed = IngestionReport(added=1, failures={HOSTILE: OSError(HOSTILE)}, seconds=0.5)
        judged = Judgements({"q1": HOSTILE}, {"q1": {"hostile": 1}}, Level.NODE)
        both = {"fused": retriever, HOSTILE: BM25Retriever(sample_nodes())}
        values = {
            "retriever": retriever,
            "bound": retriever.for_scope(Scope("acme")),
            "result": retriever.search(QUERY),
            "graph hit": SearchResult([hit], query=QUERY),
            "explanation": explanation,
            "experiment": Experiment(both, judged).run(progress=False),
            "answers compared": compare(both, [HOSTILE], top_k=2),
            "tuning": tune(legs_of_two(), judged, progress=False),
            "knowledge base": kb,
            "facets": kb.facets([HOSTILE], HOSTILE),
            "report": report,
            "failed report": failed,
            "weekly report": weekly_report(),
        }
        return {name: value._repr_html_() for name, value in values.items()}  # type: ignore[attr-defined]
