"""`Experiment`: measures, latency, cost and significance of retrievers on judged questions."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.checks import check_count, checked_call
from llama_retrieval_ext.errors import ConfigurationError, describe
from llama_retrieval_ext.evaluation.answers import (
    Answer,
    AnswerLog,
    Cost,
    JudgedHit,
    SharedRankings,
    counted_calls,
    counting,
    describe_retriever,
)
from llama_retrieval_ext.evaluation.datasets import Source, load_judgements
from llama_retrieval_ext.evaluation.judgements import Judgements
from llama_retrieval_ext.evaluation.measures import MEASURES, measure_queries, parse_measures
from llama_retrieval_ext.evaluation.missing import missing_targets
from llama_retrieval_ext.evaluation.significance import (
    holm,
    paired_t_test,
    randomisation_test,
    standard_error,
)
from llama_retrieval_ext.execution.context import Context, Session, entered
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.hints import conclude
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.execution.retrieval import check_retriever, retrieval
from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.pipeline.branches import unique_legs
from llama_retrieval_ext.query import Query

if TYPE_CHECKING:
    from pandas import DataFrame

SIGNIFICANT: Final = 0.05
# Unlike a question of the set, it fills no cache with an answer.
_WARM_UP: Final = "warm up"


class Experiment(Viewed):
    """Quality, latency, cost and significance of retrievers on judged questions.

    A retriever object inside several pipelines of this package is called once per question. Its
    time and its calls of models count for each pipeline; if a pipeline reuses several rankings,
    the time of the slowest is added. A question that fails counts as one without an answer.

    Args:
        retrievers: Any LlamaIndex retrievers, by name; or a list, with names derived from them.
        judgements: Questions with their relevant targets; any source of `load_judgements`.
        measures: Names in `ir-measures`: ``nDCG@10``, ``R@100``, ``RR``, ``AP``, ``Success@5``.
        baseline: Name of the retriever to test the others against; None for the first.
        top_k: Number of hits of each retriever; None for its own number.
        folder: Folder of the answers: a killed run continues, and later runs call only new
            retrievers. None saves nothing.

    Attributes:
        warm_up: Calls of models before the first question, which the results do not include.
        hints: Judged documents or nodes that are not there and count as missed, in a sentence; as
            far as the stores below the retrievers can tell.

    Raises:
        ConfigurationError: An argument is invalid, or the folder is of another experiment.
        MissingDependencyError: The extra ``eval`` is not installed.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> good, bad = FakeRetriever([("a", 1.0)]), FakeRetriever([("b", 1.0), ("a", 0.5)])
        >>> judged = Judgements({"q1": "annual leave"}, {"q1": {"a": 1}})
        >>> experiment = Experiment({"good": good, "bad": bad}, judged, measures=["RR"]).run()
        >>> experiment.results[["retriever", "RR"]].to_dict("list")
        {'retriever': ['good', 'bad'], 'RR': [1.0, 0.5]}

    """

    _view: ClassVar[str] = "experiment.experiment"

    @checked_call
    def __init__(
        self,
        retrievers: Mapping[str, BaseRetriever] | Sequence[BaseRetriever],
        judgements: Source,
        *,
        measures: Sequence[str] = MEASURES,
        baseline: str | None = None,
        top_k: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.retrievers = named_retrievers(retrievers)
        self.judgements: Judgements = load_judgements(judgements)
        self.measures = tuple(str(measure) for measure in parse_measures(measures))
        self.baseline = next(iter(self.retrievers)) if baseline is None else baseline
        if self.baseline not in self.retrievers:
            raise ConfigurationError(
                f"the baseline {baseline!r} is no retriever of the experiment; these are "
                f"{', '.join(map(repr, self.retrievers))}"
            )
        self.top_k = None if top_k is None else check_count(top_k, "top_k")
        level = {"level of judgements": self.judgements.level.value, "top_k": str(self.top_k)}
        names = {f"retriever {n!r}": describe_retriever(r) for n, r in self.retrievers.items()}
        self._log = AnswerLog(folder, {**level, **names})
        self.warm_up = Cost()
        self.hints: tuple[str, ...] = ()
        self._values: dict[str, dict[str, dict[str, float]]] = {}

    def run(self, *, progress: bool = True, warm_up: bool = True) -> "Experiment":
        """Answer all questions without an answer.

        Args:
            progress: Whether to show a progress bar.
            warm_up: Whether each retriever first answers a query that is not part of the results,
                so that no time includes the loading of a model. Its calls of models, which may
                cost money, are in the attribute ``warm_up``.

        Returns:
            The experiment itself.
        """
        total = len(self.judgements) * len(self.retrievers)
        if warm_up:
            self._load_models()
        with (
            counted_calls(),
            tqdm(total=total, desc="Answering", unit="answer", disable=not progress) as bar,
        ):
            for query_id, question in self.judgements.queries.items():
                shared = SharedRankings()
                for name in self.retrievers:
                    if self._log.get(name, query_id, question) is None:
                        self._log.add(self._answer(name, query_id, question, shared))
                    bar.update()
        self._values.clear()
        answers = (answer for name in self.retrievers for answer in self.answers(name))
        seen = {name for answer in answers for hit in answer.hits for name in hit.names}
        self.hints = missing_targets(self.retrievers.values(), self.judgements, seen)
        return self

    @property
    def results(self) -> "DataFrame":
        """One row per retriever: measures, latency percentiles, mean calls of models, failures."""
        return frame_of(map(self._summary, self.retrievers))

    @property
    def per_query(self) -> "DataFrame":
        """One row per retriever and question: measures, milliseconds, calls of models, errors."""
        return frame_of(
            {
                "retriever": name,
                "query_id": answer.query_id,
                "question": answer.question,
                **{
                    measure: self._value(name, measure)[answer.query_id]
                    for measure in self.measures
                },
                "ms": answer.ms,
                "embeddings": answer.embeddings,
                "llm_calls": answer.llm_calls,
                "degraded": "; ".join(answer.degraded),
                "hints": "; ".join(answer.hints),
                "error": answer.error,
                "questions": self.judgements.origin,
            }
            for name in self.retrievers
            for answer in self.answers(name)
        )

    @property
    def rankings(self) -> "DataFrame":
        """One row per hit: rank, node, score, and grade (0 if it is not judged relevant)."""
        return frame_of(
            {
                "retriever": name,
                "query_id": answer.query_id,
                "rank": rank,
                "node_id": hit.node_id,
                "score": hit.score,
                "document": hit.names[0],
                "grade": max((judged[n] for n in hit.names if n in judged), default=0),
            }
            for name in self.retrievers
            for answer in self.answers(name)
            for judged in [self.judgements.relevant[answer.query_id]]
            for rank, hit in enumerate(answer.hits, start=1)
        )

    @property
    def significance(self) -> "DataFrame":
        """One row per measure and retriever: the difference to the baseline, with p-values.

        ``p_t`` is of the paired t-test, ``p_randomisation`` of the paired randomisation test, and
        ``p_holm`` is the latter, corrected by Holm's method for the number of retrievers compared.
        """
        return frame_of(
            row
            for measure in self.measures
            for row in self._compared(measure, [n for n in self.retrievers if n != self.baseline])
        )

    def answers(self, name: str) -> list[Answer]:
        """Return the answers of a retriever, in the order of the questions.

        Args:
            name: Name of the retriever.

        Raises:
            ConfigurationError: A question has no answer yet.
        """
        logged = [
            self._log.get(name, query_id, question)
            for query_id, question in self.judgements.queries.items()
        ]
        answers = [answer for answer in logged if answer is not None]
        if len(answers) < len(logged):
            raise ConfigurationError("the experiment has not run; call run() first")
        return answers

    def _load_models(self) -> None:
        shared, questions = SharedRankings(charges=False), self.judgements.queries.items()
        with counted_calls():
            for name in self.retrievers:
                if not all(self._log.get(name, *question) for question in questions):
                    answer = self._answer(name, "", _WARM_UP, shared)
                    self.warm_up.add(answer.embeddings, answer.llm_calls)

    def _answer(self, name: str, query_id: str, question: str, shared: SharedRankings) -> Answer:
        session, cost, error = Session(shared_rankings=shared), Cost(), None
        hits: tuple[JudgedHit, ...] = ()
        begun = time.perf_counter()
        try:
            with entered(Context(session)), counting(cost):
                plan = retrieval(self.retrievers[name], Query.of(question), top_k=self.top_k)
                ranking = run(plan)[: self.top_k]
            names = self.judgements.names_of
            hits = tuple(
                JudgedHit(hit.node.node_id, hit.score, tuple(names(hit.node, query_id)))
                for hit in ranking
            )
        except MISTAKES:
            raise
        except Exception as failure:  # noqa: BLE001 - listed with the results
            error = describe(failure)
        took_s = time.perf_counter() - begun + max(cost.reused_s, default=0.0)
        with entered(Context(session)):
            hints = run(conclude(has_hits=bool(hits) or error is not None))
        calls = (cost.embeddings, cost.llm_calls)
        notes = (tuple(map(str, session.degraded)), hints)
        return Answer(name, query_id, question, hits, took_s * 1e3, *calls, *notes, error)

    def run_of(self, name: str) -> dict[str, dict[str, float]]:
        """Return the rankings of a retriever for measures: scores of targets, by question id.

        Args:
            name: Name of the retriever.

        Raises:
            ConfigurationError: A question has no answer yet.
        """
        return {
            answer.query_id: self.judgements.run_of(answer.query_id, [h.names for h in answer.hits])
            for answer in self.answers(name)
        }

    def _value(self, name: str, measure: str) -> Mapping[str, float]:
        if name not in self._values:
            run = self.run_of(name)
            self._values[name] = measure_queries(self.measures, self.judgements.relevant, run)
        return self._values[name][measure]

    def _summary(self, name: str) -> dict[str, object]:
        answers = self.answers(name)
        times = [answer.ms for answer in answers]
        return {
            "retriever": name,
            **{measure: fmean(self._value(name, measure).values()) for measure in self.measures},
            "p50_ms": float(np.percentile(times, 50)),
            "p95_ms": float(np.percentile(times, 95)),
            "embeddings": fmean(answer.embeddings for answer in answers),
            "llm_calls": fmean(answer.llm_calls for answer in answers),
            "degraded": sum(bool(answer.degraded) for answer in answers),
            "failed": sum(answer.error is not None for answer in answers),
            "questions": self.judgements.origin,
        }

    def _compared(self, measure: str, names: Sequence[str]) -> list[dict[str, object]]:
        base = list(self._value(self.baseline, measure).values())
        differences = [
            [
                value - other
                for value, other in zip(self._value(n, measure).values(), base, strict=True)
            ]
            for n in names
        ]
        p_values = [randomisation_test(difference) for difference in differences]
        return [
            {
                "measure": measure,
                "retriever": name,
                "baseline": self.baseline,
                "difference": fmean(differences),
                "standard_error": standard_error(differences),
                "p_t": paired_t_test(differences),
                "p_randomisation": p_value,
                "p_holm": corrected,
                "is_significant": corrected < SIGNIFICANT,
                "questions": self.judgements.origin,
            }
            for name, differences, p_value, corrected in zip(
                names, differences, p_values, holm(p_values), strict=True
            )
        ]

    def __str__(self) -> str:
        """Return the table of its results; before `run`, the retrievers and questions."""
        try:
            return self._as_text()
        except ConfigurationError:
            return repr(self)

    def __repr__(self) -> str:
        names = ", ".join(self.retrievers)
        return f"Experiment({names}; {self.judgements!r}; {', '.join(self.measures)})"


def named_retrievers(
    retrievers: Mapping[str, BaseRetriever] | Sequence[BaseRetriever],
) -> dict[str, BaseRetriever]:
    """Return retrievers by name; names of listed retrievers are derived from them."""
    if not isinstance(retrievers, Mapping):
        if isinstance(retrievers, BaseRetriever):
            raise ConfigurationError("retrievers are a list or a mapping; write [...] around one")
        retrievers = {leg.name: leg.retriever for leg in unique_legs(retrievers)}
    if not retrievers:
        raise ConfigurationError("an experiment needs at least one retriever")
    return {
        name: check_retriever(retriever, f"retriever {name!r}")
        for name, retriever in retrievers.items()
    }


def frame_of(rows: Iterable[Mapping[str, object]]) -> "DataFrame":
    """Return rows as a pandas table."""
    from pandas import DataFrame  # noqa: PLC0415 - optional

    return DataFrame(list(rows))
