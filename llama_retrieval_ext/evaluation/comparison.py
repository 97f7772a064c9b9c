"""`compare`: differences between the answers of retrievers, and marks of right nodes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.checks import check_count, checked_call
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.answers import SharedRankings
from llama_retrieval_ext.evaluation.datasets import load_judgements
from llama_retrieval_ext.evaluation.experiment import frame_of, named_retrievers
from llama_retrieval_ext.evaluation.judgements import Judgements, Level
from llama_retrieval_ext.evaluation.missing import missing_targets
from llama_retrieval_ext.execution.context import Context, Session, entered
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(slots=True, repr=False)
class Comparison(Viewed):
    """Answers of several retrievers to the same questions, and marks of right nodes.

    Attributes:
        answers: Hits by question and retriever.
        top_k: Maximum number of hits of each retriever.
        marks: Grade of each marked node, by question.
        path: File of the marks; None for memory only.
        hints: As for an `Experiment`, if the questions are judgements.
    """

    _view: ClassVar[str] = "experiment.comparison"

    answers: dict[str, dict[str, list[Hit]]]
    top_k: int
    marks: dict[str, dict[str, int]] = field(default_factory=dict)
    path: Path | None = None
    hints: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the retrievers."""
        return list(next(iter(self.answers.values())))

    @property
    def differences(self) -> "DataFrame":
        """Table of one row per question, the most different first.

        ``overlap`` is the share of hits that two retrievers have in common, in [0, 1], the mean of
        all pairs; ``same_first`` is whether all have the same first hit; ``only in NAME`` are the
        nodes that only this retriever found; ``marked`` is the number of marked nodes.
        """
        return frame_of(self._difference(question) for question in self.different())

    def different(self) -> list[str]:
        """Return the questions, those with the least common answers first."""
        return sorted(self.answers, key=self._overlap)

    def mark(self, question: str | int, node_id: str, *, grade: int = 1) -> None:
        """Mark a node as an answer to a question; save the mark at once if there is a file.

        Args:
            question: Text of the question, or its row in `differences`.
            node_id: Id of a node that a retriever found, or how it begins, as it is shown.
            grade: 1 or more for right, 0 for wrong.

        Raises:
            ConfigurationError: There is no such question, or no retriever found that node for it.
        """
        text = self._question(question)
        node_ids = {hit.node_id for hits in self.answers[text].values() for hit in hits}
        named = [node_id] if node_id in node_ids else [i for i in node_ids if i.startswith(node_id)]
        if len(named) != 1 or not node_id:
            raise ConfigurationError(
                f"no retriever found node {node_id!r}, or several begin so, for {text!r}; they "
                f"found {', '.join(map(repr, sorted(node_ids))) or 'nothing'}"
            )
        self.marks.setdefault(text, {})[named[0]] = grade
        if self.path is not None and any(any(mark.values()) for mark in self.marks.values()):
            self.judgements.save(self.path)

    @property
    def judgements(self) -> Judgements:
        """The marks, for an `Experiment`.

        Raises:
            ConfigurationError: Nothing is marked as right.
        """
        return Judgements({text: text for text in self.marks}, self.marks, Level.NODE)

    def _question(self, question: str | int) -> str:
        if isinstance(question, int) and 0 <= question < len(self.answers):
            return self.different()[question]
        if isinstance(question, str) and question in self.answers:
            return question
        raise ConfigurationError(
            f"there is no question {question!r}; there are {len(self.answers)}, from 0, in the "
            "order of differences"
        )

    def _ids(self, question: str) -> dict[str, list[str]]:
        return {name: [h.node_id for h in hits] for name, hits in self.answers[question].items()}

    def _overlap(self, question: str) -> float:
        pairs = list(combinations(map(set, self._ids(question).values()), 2))
        return sum(jaccard(a, b) for a, b in pairs) / len(pairs)

    def _difference(self, question: str) -> dict[str, object]:
        ids = self._ids(question)
        times = Counter(chain.from_iterable(map(set, ids.values())))
        return {
            "question": question,
            "overlap": self._overlap(question),
            "same_first": len({tuple(ranking[:1]) for ranking in ids.values()}) == 1,
            **{
                f"only in {name}": ", ".join(node_id for node_id in ranking if times[node_id] == 1)
                for name, ranking in ids.items()
            },
            "marked": len(self.marks.get(question, {})),
        }

    def __repr__(self) -> str:
        differ = sum(self._overlap(question) < 1 for question in self.answers)
        questions = counted(len(self.answers), "question")
        return (
            f"Comparison({' / '.join(self.names)}; {questions}, {differ} with different hits, "
            f"{len(self.marks)} marked)" + "".join(f"\n  hint: {hint}" for hint in self.hints)
        )


@checked_call
def compare(
    retrievers: Mapping[str, BaseRetriever] | Sequence[BaseRetriever],
    questions: Iterable[str] | Judgements,
    *,
    top_k: int = 10,
    marks: str | Path | None = None,
) -> Comparison:
    """Return the differences between the answers of several retrievers to the same questions.

    No judgements are needed. Nodes that a person marks as right become judgements.

    Args:
        retrievers: At least two, by name, or as a list.
        questions: Texts of the questions.
        top_k: Number of hits of each retriever to compare.
        marks: JSONL file for reading and writing marks; an `Experiment` accepts it. None for memory
            only. A question is saved once a node is marked as right.

    Raises:
        ConfigurationError: There are fewer than two retrievers, or no questions, or the file has
            other judgements.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> a, b = FakeRetriever([("n1", 1.0)]), FakeRetriever([("n2", 1.0), ("n1", 0.5)])
        >>> comparison = compare({"a": a, "b": b}, ["annual leave"])
        >>> comparison.differences[["overlap", "only in b"]].to_dict("records")
        [{'overlap': 0.5, 'only in b': 'n2'}]
        >>> comparison.mark("annual leave", "n2")
        >>> comparison.judgements
        Judgements(1 question, 1 relevant node, labels)

    """
    named = named_retrievers(retrievers)
    texts = list(questions.queries.values() if isinstance(questions, Judgements) else questions)
    if len(named) < 2 or not texts or isinstance(questions, str):  # noqa: PLR2004 - a pair
        raise ConfigurationError(
            f"compare takes at least two retrievers and a list of questions, got {len(named)} and "
            f"{questions!r}"
        )
    answers = {text: _answers(named, text, check_count(top_k, "top_k")) for text in texts}
    path = None if marks is None else Path(marks)
    hints: tuple[str, ...] = ()
    if isinstance(questions, Judgements):
        hits = (
            hit for answer in answers.values() for ranking in answer.values() for hit in ranking
        )
        seen = {name for hit in hits for name in questions.names_of(hit.node, "")}
        hints = missing_targets(named.values(), questions, seen)
    return Comparison(answers, top_k, _kept_marks(path), path, hints)


def _kept_marks(path: Path | None) -> dict[str, dict[str, int]]:
    if path is None or not path.is_file():
        return {}
    saved = load_judgements(path)
    if saved.level is not Level.NODE:
        raise ConfigurationError(
            f"{path} has judgements of {saved.level.value}s, and marks are of nodes; use another "
            "file"
        )
    return {saved.queries[id_]: dict(grades) for id_, grades in saved.relevant.items()}


def _answers(named: Mapping[str, BaseRetriever], text: str, top_k: int) -> dict[str, list[Hit]]:
    shared, answers = SharedRankings(), {}
    for name, retriever in named.items():
        with entered(Context(Session(shared_rankings=shared))):
            hits = run(hits_of(retriever, Query.of(text), top_k=top_k, source=name))
        answers[name] = hits[:top_k]
    return answers


def jaccard(one: set[str], other: set[str]) -> float:
    """Return the share of common elements, in [0, 1]; 1 for two empty sets."""
    return len(one & other) / len(one | other) if one | other else 1.0
