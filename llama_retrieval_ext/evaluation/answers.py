"""Answers of an experiment, stored in a folder; rankings that answers share, and their cost."""

import json
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.instrumentation.events.embedding import EmbeddingStartEvent
from llama_index.core.instrumentation.events.llm import LLMChatStartEvent, LLMCompletionStartEvent
from llama_index.core.schema import NodeWithScore
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import BaseEventHandler

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import Session, SingleFlight, current_context, entered
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.pipeline.tree import Shaped
from llama_retrieval_ext.query import Query

ANSWERS: Final = "answers.jsonl"
_SETTINGS: Final = "experiment.json"


class JudgedHit(NamedTuple):
    """Hit of an answer.

    Attributes:
        node_id: Id of the node.
        score: Score of the hit; None if the retriever returns none.
        names: Names that judgements may use for the node.
    """

    node_id: str
    score: float | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one retriever to one question.

    Attributes:
        retriever: Name of the retriever.
        query_id: Id of the question.
        question: Text of the question.
        hits: Hits, best first.
        ms: Latency in milliseconds.
        embeddings: Number of calls of embedding models.
        llm_calls: Number of calls of LLMs.
        degraded: Parts that failed and were left out, with reasons.
        hints: What was looked for and is not there, in sentences.
        error: Reason for a missing answer; None if there is an answer.
    """

    retriever: str
    query_id: str
    question: str
    hits: tuple[JudgedHit, ...]
    ms: float
    embeddings: int = 0
    llm_calls: int = 0
    degraded: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    error: str | None = None

    @classmethod
    def from_json(cls, line: bytes) -> "Answer":
        """Return the answer from a line written by `to_json`."""
        row = json.loads(line)
        hits = tuple(JudgedHit(id_, score, tuple(names)) for id_, score, names in row["hits"])
        notes = {name: tuple(row[name]) for name in ("degraded", "hints")}
        return cls(**{**row, "hits": hits, **notes})

    def to_json(self) -> bytes:
        """Return the answer as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


class AnswerLog:
    """Answers by retriever and question; on disk if there is a folder.

    Each answer is written at once, as one line. If the last line is incomplete, it is dropped and
    its question is answered again; so are questions that failed.
    """

    def __init__(self, folder: str | Path | None, settings: Mapping[str, str]) -> None:
        self._answers: dict[tuple[str, str], Answer] = {}
        self._path: Path | None = None
        if folder is not None:
            home = Path(folder)
            home.mkdir(parents=True, exist_ok=True)
            _check_settings(home / _SETTINGS, settings)
            self._path = home / ANSWERS
            self._load(self._path)

    def get(self, retriever: str, query_id: str, question: str) -> Answer | None:
        """Return an answer; None if it is missing, or its question has another text."""
        answer = self._answers.get((retriever, query_id))
        return answer if answer is not None and answer.question == question else None

    def add(self, answer: Answer) -> None:
        """Add an answer."""
        self._answers[answer.retriever, answer.query_id] = answer
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(answer.to_json())

    def _load(self, path: Path) -> None:
        if not path.is_file():
            return
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            path.write_bytes(whole)
        for line in whole.splitlines():  # of bytes: no letter of a text ends a line
            answer = Answer.from_json(line)
            if answer.error is None:
                self._answers[answer.retriever, answer.query_id] = answer


def describe_retriever(retriever: BaseRetriever) -> str:
    """Return an expression for a retriever that is stable across processes."""
    return repr(retriever) if isinstance(retriever, Shaped) else type(retriever).__name__


def _check_settings(path: Path, settings: Mapping[str, str]) -> None:
    saved: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    for name, value in settings.items():
        if saved.get(name, value) != value:
            raise ConfigurationError(
                f"{path.parent} has answers with another {name}: {saved[name]} and not {value}; "
                "use another folder, or another name for the retriever"
            )
    path.write_text(json.dumps({**saved, **settings}, ensure_ascii=False, indent=2), "utf-8")


@dataclass(slots=True)
class Cost:
    """Cost of an answer.

    Attributes:
        embeddings: Number of calls of embedding models.
        llm_calls: Number of calls of LLMs.
        reused_s: Original duration of each ranking reused from another answer, in seconds.
        whole: The cost that this one is a part of; what is added to the part is added to it too.
    """

    embeddings: int = 0
    llm_calls: int = 0
    reused_s: list[float] = field(default_factory=list)
    whole: "Cost | None" = field(default=None, repr=False, compare=False)

    def add(self, embeddings: int = 0, llm_calls: int = 0, reused_s: Sequence[float] = ()) -> None:
        """Add calls of models, and the durations of reused rankings."""
        self.embeddings += embeddings
        self.llm_calls += llm_calls
        self.reused_s.extend(reused_s)
        if self.whole is not None:
            self.whole.add(embeddings, llm_calls, reused_s)


_cost: ContextVar[Cost | None] = ContextVar("llama_retrieval_ext_cost", default=None)


@contextmanager
def counting(cost: Cost) -> Generator[Cost]:
    """Count the calls of models within the block, in all of its threads and tasks."""
    token = _cost.set(cost)
    try:
        yield cost
    finally:
        _cost.reset(token)


@contextmanager
def counted_calls() -> Generator[None]:
    """Connect LlamaIndex's instrumentation to `counting` within the block."""
    root, counter = get_dispatcher(), _CallCounter()
    root.add_event_handler(counter)
    try:
        yield
    finally:
        root.event_handlers.remove(counter)


class _CallCounter(BaseEventHandler):
    @classmethod
    def class_name(cls) -> str:
        return "_CallCounter"

    def handle(self, event: BaseEvent, **_: object) -> None:
        cost = _cost.get()
        if cost is None:
            return
        if isinstance(event, EmbeddingStartEvent):
            cost.add(embeddings=1)
        elif isinstance(event, LLMChatStartEvent | LLMCompletionStartEvent):
            cost.add(llm_calls=1)


@dataclass(frozen=True, slots=True)
class _Ranking:
    # Keeps the retriever alive, so that no other object gets its id.
    retriever: BaseRetriever
    hits: list[NodeWithScore]
    cost: Cost
    session: Session
    duration_s: float


class SharedRankings:
    """Rankings for one query, by retriever object.

    An answer that reuses a ranking is charged the original cost of the ranking, unless ``charges``
    is False.
    """

    def __init__(self, *, charges: bool = True) -> None:
        self._rankings = SingleFlight()
        self._charges = charges

    def ranking(
        self, retriever: BaseRetriever, query: Query, plan: Plan[list[NodeWithScore]]
    ) -> Plan[list[NodeWithScore]]:
        """Return the plan for a ranking; run ``plan`` if there is no ranking yet."""
        is_new = False

        def find() -> _Ranking:
            nonlocal is_new
            is_new = True
            context = current_context()
            session = context.session.apart()
            begun = time.perf_counter()
            # Also if it fails or is late, its calls count.
            part = Cost(whole=_cost.get())
            with entered(replace(context, session=session)), counting(part) as cost:
                hits = run(plan)
            duration_s = time.perf_counter() - begun
            return _Ranking(retriever, hits, cost, session, duration_s)

        embedding = None if query.embedding is None else tuple(query.embedding)
        # With all fields of the query.
        key = (id(retriever), embedding, repr(replace(query, embedding=None)))
        shared = yield from self._rankings.get(key, Call(find))
        current_context().session.add_notes(shared.session)
        cost = _cost.get()
        if cost is not None and self._charges and not is_new:
            cost.add(shared.cost.embeddings, shared.cost.llm_calls, [shared.duration_s])
        return list(shared.hits)
