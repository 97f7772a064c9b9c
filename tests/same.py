"""What works on which engine and by which entrance, found out by running it: a page and its test.

``python -m tests.same URL... [COUNT]`` runs every feature on the knowledge bases at these URLs,
which must not be there yet, and prints the tables of `llama_retrieval_ext/stores/SAME.md`; then
COUNT random pipelines. An answer is the same if it is that of the first engine: ids in order,
scores to 2e-6, or whatever the feature has.
"""

import asyncio
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from llama_index.core.schema import Document
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext import (
    MMR,
    RRF,
    Collapse,
    KnowledgeBase,
    LocalEmbedding,
    Ranking,
    Retriever,
    RuleRerank,
    Schema,
    Scope,
    Top,
    WeightedSum,
    branches,
)
from llama_retrieval_ext.errors import UnsupportedFilterError, UnsupportedModeError
from llama_retrieval_ext.evaluation import QueryLog
from llama_retrieval_ext.knowledge_base import copy_knowledge_base
from llama_retrieval_ext.pipeline import Fusion
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages import Block, Boost, Dedupe, Max, Pin

Feature = Callable[[KnowledgeBase], object]
ENGINES = ("embedded", "qdrant", "milvus", "elasticsearch")
ACME = Scope("acme")
SCHEMA = Schema(text={"title": 2, "tags": 1, "text": 1}, facets=["tags"], numbers=["year"])
# Their keyword scores count words by statistics of their own; stores/README.md says which.
_BY_ORDER = frozenset({"milvus", "elasticsearch"})
_QUESTIONS = ("annual leave", "sick leave of a doctor", "crane in spring", "年假有几天", "E4012")
_ROWS = (
    ("leave", "Annual leave is 25 days for each employee.", {"year": 2024, "tags": ["hr"]}),
    ("sick", "Sick leave needs a note of a doctor.", {"year": 2025, "tags": ["hr", "health"]}),
    ("travel", "Travel expenses are paid within a month.", {"year": 2023, "tags": ["finance"]}),
    (
        "crane",
        "The crane is checked each spring by an engineer.",
        {"year": 2025, "day": "2025-03-01"},
    ),
    ("laptop", "A notebook is replaced after four years.", {"year": 2022, "tags": ["it"]}),
    ("假", "员工每年享有二十五天年假。", {"year": 2024, "tags": ["hr"], "lang": "zh"}),
    ("code", "Error E4012 means that a receipt is missing.", {"lang": "en"}),
    ("audit", "The audit of the vault takes place in March.", {"year": 2026, "tags": []}),
)


def documents() -> list[Document]:
    """A corpus in which titles, lists, dates, two scripts and missing keys matter."""
    return [
        Document(id_=name, text=text, metadata={"title": name.title(), **metadata})
        for name, text, metadata in _ROWS
    ]


def opened(url: str) -> KnowledgeBase:
    """A knowledge base with the corpus of one tenant, a passage of a group, and another tenant."""
    kb = KnowledgeBase.open(url, embed_model=LocalEmbedding(), schema=SCHEMA)
    kb.add(documents(), scope=ACME, show_progress=False).raise_for_failures()
    pay = Document(id_="pay", text="Salary of the board, and leave.", metadata={"year": 2024})
    kb.add([pay], scope=ACME, allowed=["group:hr"], show_progress=False).raise_for_failures()
    kb.add(documents()[:3], scope=Scope("globex"), show_progress=False).raise_for_failures()
    return kb


def _ids(hits: Iterable[Any]) -> list[str]:
    return [str(hit.node.ref_doc_id) for hit in hits]


def _scored(hits: Iterable[Any]) -> list[tuple[str, float]]:
    return [(str(hit.node.ref_doc_id), float(hit.score)) for hit in hits]


def searched(text: str = "annual leave", mode: Any = "hybrid", **options: Any) -> Feature:
    """A search, sync and async, which must agree."""

    def feature(kb: KnowledgeBase) -> object:
        given = {"scope": ACME, "top_k": 5, **options}
        hits = _scored(kb.search(text, mode, **given))
        assert _agree(hits, _scored(asyncio.run(kb.asearch(text, mode, **given))), 1e-6), mode
        return hits

    return feature


def filtered(key: str, operator: FilterOperator, value: object) -> Feature:
    """All documents that a condition keeps."""

    def feature(kb: KnowledgeBase) -> object:
        condition = MetadataFilter(key=key, operator=operator, value=value)  # type: ignore[arg-type]
        filters = MetadataFilters(filters=[condition])
        return sorted(_ids(kb.search("leave", "vector", filters=filters, scope=ACME, top_k=50)))

    return feature


def _grouped(kb: KnowledgeBase) -> object:
    old = MetadataFilter(key="year", operator=FilterOperator.LT, value=2024)
    hr = MetadataFilter(key="tags", operator=FilterOperator.CONTAINS, value="hr")
    either = MetadataFilters(filters=[old, hr], condition=FilterCondition.OR)
    filters = MetadataFilters(filters=[either], condition=FilterCondition.NOT)
    return sorted(_ids(kb.search("leave", "vector", filters=filters, scope=ACME, top_k=50)))


def _pushed_down(fusion: Fusion) -> Feature:
    def feature(kb: KnowledgeBase) -> object:
        retriever = kb.retriever("hybrid", fusion=fusion, pushdown=True, scope=ACME)
        return sorted(_ids(retriever.retrieve("sick leave")))

    return feature


def _composed(kb: KnowledgeBase) -> object:
    both = kb.retriever("vector", scope=ACME) | kb.retriever("keyword", scope=ACME)
    return _scored((both >> RRF() >> RuleRerank() >> MMR(0.7) >> Top(3)).retrieve("sick leave"))


def _explained(kb: KnowledgeBase) -> object:
    explanation = kb.retriever("hybrid", top_k=3, scope=ACME).explain("sick leave")
    parts = [[(p.leg, p.rank) for p in hit.contributions] for hit in explanation.hits]
    missing = kb.get("crane", scope=ACME)[0].node_id
    return parts, explanation.why_not(missing).reason.name


def _highlighted(kb: KnowledgeBase) -> object:
    hits = kb.search("sick leave", "keyword", scope=ACME)
    return [(h.field, h.start, h.end) for h in hits[0].highlights], hits[0].start, hits[0].end


def _corrected(kb: KnowledgeBase) -> object:
    for _ in range(100):  # words are read in the background
        corrected = kb.search("anual leave", "keyword", scope=ACME).corrected
        if corrected is not None:
            return corrected.words
    return None


def _hinted(kb: KnowledgeBase) -> object:
    filters = MetadataFilters(filters=[MetadataFilter(key="yaer", value=2024)])
    return list(kb.search("leave", filters=filters, scope=ACME).hints)


def _curated(kb: KnowledgeBase) -> object:
    rules = Ranking(
        boosts=[Boost(number="year", weight=0.001)],
        pins=[Pin("travel", query="leave")],
        blocks=[Block("sick")],
        synonyms=["laptop = notebook"],
    )
    kb.set_ranking(rules, scope=ACME)
    try:
        return _ids(kb.search("leave", scope=ACME)), _ids(
            kb.search("laptop", "keyword", scope=ACME)
        )
    finally:
        kb.set_ranking(None, scope=ACME)


def _shared(kb: KnowledgeBase) -> object:
    ann = Scope("acme", principals=["user:ann"])
    before = _ids(kb.search("salary", "keyword", scope=ann))
    kb.share("pay", allowed=["user:ann"], scope=ACME)
    after = _ids(kb.search("salary", "keyword", scope=ann))
    kb.share("pay", allowed=["group:hr"], scope=ACME)
    return before, after, _ids(kb.search("salary", "keyword", scope=Scope("globex")))


def _edited(kb: KnowledgeBase) -> object:
    new = Document(id_="new", text="A new zebra.")
    first = kb.add([new], scope=ACME, show_progress=False)
    again = kb.add([new], scope=ACME, show_progress=False)
    changed = Document(id_="new", text="An old zebra.")
    update = kb.add([changed], scope=ACME, show_progress=False)
    counts = (first.added, again.unchanged, update.updated, kb.count(scope=ACME))
    return counts, kb.delete("new", scope=ACME), _ids(kb.search("zebra", "keyword", scope=ACME))


def _deleted_where(kb: KnowledgeBase) -> object:
    kb.add([Document(id_="x", text="x", metadata={"gone": 1})], scope=ACME, show_progress=False)
    gone = MetadataFilters(filters=[MetadataFilter(key="gone", value=1)])
    return kb.delete_where(gone, scope=ACME), kb.count(scope=ACME)


def _listed(kb: KnowledgeBase) -> object:
    names = sorted(document.document_id for document in kb.documents(scope=ACME))
    texts = [node.get_content() for node in kb.get("leave", scope=ACME)]
    return names, kb.count(scope=Scope("globex")), kb.metadata_fields(scope=ACME), texts


def _streamed(kb: KnowledgeBase) -> object:
    answers = list(kb.retriever("hybrid", top_k=3, scope=ACME).stream("sick leave"))
    return _scored(answers[-1].hits)


def _many(kb: KnowledgeBase) -> object:
    asked = [Query(text, scope=ACME, top_k=2) for text in ("sick leave", "crane", "年假")]
    return [_scored(result.hits) for result in kb.retriever("hybrid").search_many(asked)]


def _paged(kb: KnowledgeBase) -> object:
    pages = [kb.search("leave", top_k=3, sort="-year", scope=ACME)]
    pages.append(kb.search("leave", top_k=3, sort="-year", scope=ACME, cursor=pages[0].cursor))
    return [_ids(page.hits) for page in pages]


def _timed(kb: KnowledgeBase) -> object:
    rows = {"old": ("2001-01-01", "2021-01-01"), "current": ("2021-01-01", None)}
    for name, (start, end) in rows.items():
        dates = {"valid_from": start, "valid_to": end, "known_from": start}
        document = Document(id_=name, text="The yak fee is due.", metadata=dates)
        kb.add([document], scope=ACME, show_progress=False).raise_for_failures()
    times: Sequence[dict[str, str]] = (
        {},
        {"as_of": "2010-01-01"},
        {"as_of": "any", "known_at": "2010-01-01"},
    )
    found = [_ids(kb.search("yak fee", "keyword", scope=ACME, **time)) for time in times]  # type: ignore[arg-type]
    for name in rows:
        kb.delete(name, scope=ACME)
    return found


def _synced(kb: KnowledgeBase) -> object:
    before = Document(id_="y1", text="A yak."), Document(id_="y2", text="A gnu.")
    counts = []
    for listed in (before, before[1:], [Document(id_="y2", text="A new gnu.")], []):
        report = kb.sync(listed, name="feed", scope=ACME, max_deletions=1, show_progress=False)
        counts.append((len(report.added), len(report.changed), len(report.deleted)))
    return counts


def _logged(kb: KnowledgeBase) -> object:
    log = kb.log = QueryLog(":memory:")
    try:
        result = kb.search("sick leave", "keyword", scope=ACME)
    finally:
        kb.log = None
    log.clicked(result, result[0], scope=ACME)
    queries = [(query.question, sorted(query.clicks)) for query in log.queries(scope=ACME)]
    log.close()
    return queries


def _copied(kb: KnowledgeBase) -> object:
    with TemporaryDirectory() as folder:
        report = copy_knowledge_base(kb.url, f"embedded:{folder}/copy", show_progress=False)
    return report.copied


_OPERATORS: Sequence[tuple[str, FilterOperator, object]] = (
    ("year", FilterOperator.EQ, 2024),
    ("year", FilterOperator.NE, 2024),
    ("year", FilterOperator.GT, 2024),
    ("year", FilterOperator.GTE, 2024),
    ("year", FilterOperator.LT, 2024),
    ("day", FilterOperator.LTE, "2025-03-01"),
    ("lang", FilterOperator.IN, ["zh", "fr"]),
    ("lang", FilterOperator.NIN, ["zh", "fr"]),
    ("tags", FilterOperator.ANY, ["hr", "it"]),
    ("tags", FilterOperator.ALL, ["hr", "health"]),
    ("tags", FilterOperator.CONTAINS, "hr"),
    ("title", FilterOperator.TEXT_MATCH, "eav"),
    ("title", FilterOperator.TEXT_MATCH_INSENSITIVE, "LEAV"),
    ("tags", FilterOperator.IS_EMPTY, None),
)
FEATURES: Mapping[str, Feature] = {
    "vector search": searched(mode="vector"),
    "keyword search": searched(mode="keyword"),
    "keyword search in Chinese": searched("年假有几天", "keyword"),
    "hybrid search": searched(),
    "hybrid, `alpha=0.7`": lambda kb: _scored(
        kb.retriever("hybrid", alpha=0.7, scope=ACME).retrieve("leave")
    ),
    "hybrid, `fusion=RRF()`": lambda kb: _scored(
        kb.retriever("hybrid", fusion=RRF(), scope=ACME).retrieve("leave")
    ),
    "`pushdown` of `RRF()`, but for ties": _pushed_down(RRF()),
    "`pushdown` of `WeightedSum()`": _pushed_down(WeightedSum()),
    "`>>` and `\\|`: RRF, rerank, MMR, cut": _composed,
    "preset `auto`": searched(mode="auto"),
    "`Collapse(1)`": searched("leave", "keyword", collapse=Collapse(1)),
    '`fields={"title": 1}`': searched("leave", "keyword", fields={"title": 1}),
    "pages by `cursor`, `sort`": _paged,
    "`as_of`, `known_at`, what holds first": _timed,
    "`interpret`": lambda kb: kb.interpret("leave of the year 2024", scope=ACME).to_dict(),
    "`MMR` over the engine's vectors": lambda kb: _ids(
        (kb.retriever("vector", scope=ACME) >> MMR(0.5) >> Top(4)).retrieve("leave")
    ),
    "boosts, pins, blocks, synonyms": _curated,
    "typing errors corrected": _corrected,
    "hints": _hinted,
    "highlights, positions": _highlighted,
    "contributions, `why_not`": _explained,
    "`search_many`": _many,
    "`stream`": _streamed,
    **{f"filter `{op.name}`": filtered(key, op, value) for key, op, value in _OPERATORS},
    "filters in groups, `NOT`": _grouped,
    "tenant": searched("leave", "keyword", scope=Scope("globex")),
    "principals, `share`": _shared,
    "`add`, unchanged, update, `delete`": _edited,
    "`delete_where`": _deleted_where,
    "`sync`": _synced,
    "`documents`, `get`, `metadata_fields`": _listed,
    "facets": lambda kb: kb.facets(["year", "tags"], "leave", scope=ACME).to_dict(),
    "`QueryLog`, clicks": _logged,
    "`check`": lambda kb: (kb.check().documents, kb.check().damaged),
    "`copy_knowledge_base`": _copied,
}


def answers(kb: KnowledgeBase) -> dict[str, object]:
    """Return the answer of each feature, or the refusal."""
    outcomes: dict[str, object] = {}
    for name, feature in FEATURES.items():
        try:
            outcomes[name] = feature(kb)
        except (UnsupportedFilterError, UnsupportedModeError) as error:
            outcomes[name] = error
    return outcomes


def cell(engine: str, answer: object, reference: object) -> str:
    """Return what the page says of an answer: same, same order, refused, or a difference."""
    if isinstance(answer, Exception):
        return "refused"
    if isinstance(reference, Exception) or _agree(answer, reference, 2e-6):
        return "same"
    is_same_order = engine in _BY_ORDER and _agree(answer, reference, math.inf)
    return "same order" if is_same_order else f"DIFFERS: {answer} and not {reference}"


def _agree(answer: object, reference: object, tolerance: float) -> bool:
    """Return whether answers are equal; scores may differ by the tolerance."""
    if isinstance(answer, float) and isinstance(reference, float):
        return abs(answer - reference) <= tolerance
    if isinstance(answer, list | tuple) and isinstance(reference, list | tuple):
        pairs = zip(answer, reference, strict=False)
        return len(answer) == len(reference) and all(_agree(a, b, tolerance) for a, b in pairs)
    return answer == reference


def table(kbs: Mapping[str, KnowledgeBase]) -> str:
    """Return the table of features and engines, the first of which the others are compared with."""
    found = {engine: answers(kb) for engine, kb in kbs.items()}
    reference = next(iter(found.values()))
    rows = [
        [name, *(cell(e, a[name], reference[name]) for e, a in found.items())] for name in FEATURES
    ]
    return _table(["feature", *found], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# By entrance: the argument in Python, the field or route of HTTP, the argument or tool of MCP, the
# option or command of the command line; "" where it is not offered.
ENTRANCES: Sequence[tuple[str, str, str, str]] = (
    ("mode", "mode", "mode", "--mode"),
    ("top_k", "top_k", "top_k", "--top-k"),
    ("filters", "filters", "filters", "--filter"),
    ("fields", "fields", "fields", "--field"),
    ("correct", "correct", "correct", "--correct"),
    ("interpret", "interpret", "interpret", "--interpret"),
    ("as_of", "as_of", "as_of", "--as-of"),
    ("known_at", "known_at", "known_at", "--known-at"),
    ("sort", "sort", "sort", "--sort"),
    ("cursor", "cursor", "cursor", "--cursor"),
    ("collapse", "per_source", "", "--per-document"),
    ("scope", "scope", "", "--tenant"),
    ("search", "/v1/search", "search", "search"),
    ("search_many", "/v1/search-many", "search_many", ""),
    ("stream", "/v1/stream", "", ""),
    ("facets", "/v1/facets", "facets", "facets"),
    ("explain", "/v1/explain", "", "--explain"),
    ("why_not", "", "", "--why-not"),
    ("metadata_fields", "/v1/fields", "search", ""),
    ("get", "/v1/documents/{document_id}", "read_document", "show"),
    ("add", "/v1/documents", "", "ingest"),
    ("sync", "", "", "sync"),
    ("share", "/v1/documents/{document_id}", "", "share"),
    ("delete", "/v1/documents/{document_id}", "", "delete"),
    ("check", "", "", "check"),
    ("copy_knowledge_base", "", "", "copy"),
)


def entrances() -> str:
    """Return the table of what each entrance offers."""
    rows = [[f"`{part}`" if part else "" for part in row] for row in ENTRANCES]
    return _table(["Python, sync and async", "HTTP", "MCP", "command line"], rows)


def random_pipeline(kb: KnowledgeBase, random: Random) -> Retriever:
    """Return a pipeline of the tenant's retrievers, a fusion and up to three stages."""
    legs = [
        kb.retriever(mode, top_k=random.randint(3, 9), scope=ACME)
        for mode in random.choices(("vector", "keyword", "hybrid"), k=2)
    ]
    pipeline: Retriever = branches(a=legs[0], b=legs[1]) >> random.choice(
        (RRF(k=random.randint(1, 80)), RRF(weights={"a": 2, "b": 1}), WeightedSum(), Max())
    )
    stages = (RuleRerank(), MMR(0.5), MMR(0.9), Dedupe(), Top(random.randint(1, 9)))
    for stage in random.sample(stages, random.randrange(4)):
        pipeline = pipeline >> stage
    return pipeline


def disagreements(kbs: Mapping[str, KnowledgeBase], count: int, seed: int) -> list[str]:
    """Return the random pipelines whose answers differ between engines, scores to 2e-6."""
    wrong = []
    for number in range(count):
        question = Random(seed + number).choice(_QUESTIONS)
        found = {
            engine: _scored(random_pipeline(kb, Random(seed + number)).retrieve(question))
            for engine, kb in kbs.items()
        }
        first, *others = found.values()
        if not all(_is_close(dict(answer), dict(first)) for answer in others):
            wrong.append(f"{seed + number}, {question}: {found}")
    return wrong


def _is_close(scores: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Return whether the documents and their scores are the same; ties may change places."""
    return scores.keys() == others.keys() and all(
        abs(score - others[name]) <= 2e-6 for name, score in scores.items()
    )


if __name__ == "__main__":
    with ExitStack() as stack:
        given = [arg for arg in sys.argv[1:] if not arg.isdecimal()]
        opened_at = {url.partition(":")[0]: stack.enter_context(opened(url)) for url in given}
        sys.stdout.write(f"{table(opened_at)}\n\n{entrances()}\n")
        for count in filter(str.isdecimal, sys.argv[1:]):
            wrong = disagreements(opened_at, int(count), 0)
            sys.stdout.write(
                "\n".join([f"{len(wrong)} of {count} pipelines differ", *wrong[:9], ""])
            )
