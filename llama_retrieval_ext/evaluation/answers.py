"""Answers of an experiment, stored in a folder so that a killed run can continue."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.tree import Shaped

_ANSWERS: Final = "answers.jsonl"
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
    error: str | None = None

    @classmethod
    def from_json(cls, line: str) -> "Answer":
        """Return the answer from a line written by `to_json`."""
        row = json.loads(line)
        hits = tuple(JudgedHit(id_, score, tuple(names)) for id_, score, names in row["hits"])
        return cls(**{**row, "hits": hits, "degraded": tuple(row["degraded"])})

    def to_json(self) -> str:
        """Return the answer as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


class AnswerLog:
    """Answers by retriever and question; on disk if there is a folder.

    Each answer is written at once, as one line. If the last line is incomplete, it is dropped and
    its question is answered again; so are questions that failed.

    Args:
        folder: Folder of the answers; None for memory only.
        settings: Settings that the answers depend on, by name.

    Raises:
        ConfigurationError: The folder has answers for other settings.
    """

    def __init__(self, folder: str | Path | None, settings: Mapping[str, str]) -> None:
        self._answers: dict[tuple[str, str], Answer] = {}
        self._path: Path | None = None
        if folder is not None:
            home = Path(folder)
            home.mkdir(parents=True, exist_ok=True)
            _check_settings(home / _SETTINGS, settings)
            self._path = home / _ANSWERS
            self._load(self._path)

    def get(self, retriever: str, query_id: str, question: str) -> Answer | None:
        """Return an answer; None if it is missing, or its question has another text."""
        known = self._answers.get((retriever, query_id))
        return known if known is not None and known.question == question else None

    def add(self, answer: Answer) -> None:
        """Add an answer."""
        self._answers[answer.retriever, answer.query_id] = answer
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(answer.to_json())

    def _load(self, path: Path) -> None:
        if not path.is_file():
            return
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            path.write_bytes(whole)
        for line in whole.decode("utf-8").splitlines():
            answer = Answer.from_json(line)
            if answer.error is None:
                self._answers[answer.retriever, answer.query_id] = answer


def describe_retriever(retriever: BaseRetriever) -> str:
    """Return an expression for a retriever that is stable across processes."""
    return repr(retriever) if isinstance(retriever, Shaped) else type(retriever).__name__


def _check_settings(path: Path, settings: Mapping[str, str]) -> None:
    known: dict[str, str] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    for name, value in settings.items():
        if known.get(name, value) != value:
            raise ConfigurationError(
                f"{path.parent} has answers with another {name}: {known[name]} and not {value}; "
                "use another folder, or another name for the retriever"
            )
    path.write_text(json.dumps({**known, **settings}, ensure_ascii=False, indent=2), "utf-8")
