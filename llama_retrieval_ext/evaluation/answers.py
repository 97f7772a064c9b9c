"""The answers of an experiment, kept in a folder so that a killed run can continue."""

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
    """A hit of an answer.

    Attributes:
        node_id: Of its node.
        score: Its score; None from a retriever that gives none.
        names: Under which judgements may know it.
    """

    node_id: str
    score: float | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one retriever to one question.

    Attributes:
        retriever: Its name.
        query_id: Of the question.
        question: Its text.
        hits: Best first.
        ms: Milliseconds it took.
        embeddings: Calls of embedding models.
        llm_calls: Calls of LLMs.
        degraded: Parts that failed and were left out, with reasons.
        error: Why there is no answer; None where there is one.
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
        """Return the answer of a line that `to_json` made."""
        row = json.loads(line)
        hits = tuple(JudgedHit(id_, score, tuple(names)) for id_, score, names in row["hits"])
        return cls(**{**row, "hits": hits, "degraded": tuple(row["degraded"])})

    def to_json(self) -> str:
        """Return the answer as one line."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


class AnswerLog:
    """The answers so far, by retriever and question; on disk if there is a folder.

    Each answer is a line that is written when the answer is there. A last line that was cut off is
    dropped, and its question is answered again, as is one that failed.

    Args:
        folder: Where they are kept; None for memory alone.
        settings: Settings that the answers depend on, by name.

    Raises:
        ConfigurationError: The folder has answers that were found with other settings.
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
        """Return an answer; None if there is none, or one to another question of that id."""
        known = self._answers.get((retriever, query_id))
        return known if known is not None and known.question == question else None

    def add(self, answer: Answer) -> None:
        """Keep an answer."""
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
    """Return an expression of a retriever that is the same in each process."""
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
