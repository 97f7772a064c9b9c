"""`tune`: the settings of a pipeline that labelled questions carry, from saved rankings of legs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.checks import check_count, checked_call
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.answers import Answer
from llama_retrieval_ext.evaluation.datasets import Source, load_judgements
from llama_retrieval_ext.evaluation.experiment import SIGNIFICANT, Experiment
from llama_retrieval_ext.evaluation.judgements import KNOWN_ITEMS, Judgements
from llama_retrieval_ext.evaluation.measures import measure_queries, parse_measures
from llama_retrieval_ext.evaluation.significance import randomisation_test, standard_error
from llama_retrieval_ext.evaluation.tunable import FusedPipeline, Rankings, Setting, Steps
from llama_retrieval_ext.evaluation.tunable_graph import SeededGraph
from llama_retrieval_ext.retrievers.graph import GraphRetriever

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType

Values: TypeAlias = npt.NDArray[np.float64]

# Below so many questions a setting that looks better is as likely worse on the others.
LEAST_LABELS: Final = 20
# By so many standard errors of the paired difference a setting must beat the one before.
_MARGIN: Final = 1.25
_FOLDS: Final = 5


class Tunable(Protocol):
    """A pipeline whose settings can be tried on saved rankings."""

    @property
    def legs(self) -> "dict[str, Any]":  # Any: retrievers; a dict takes no others in its stead
        """The retrievers that are asked, by name."""
        ...

    @property
    def depth(self) -> int:
        """How many hits each is asked for."""
        ...

    @property
    def default(self) -> Setting:
        """The setting that the pipeline has."""
        ...

    def steps(self, current: Setting) -> Steps:
        """Yield each parameter with settings to try; get the one chosen, and return the last."""
        ...

    def ranking(self, setting: Setting, question: str, rankings: Rankings) -> list[str]:
        """Return the ids of the nodes that the pipeline with a setting ranks first."""
        ...

    def rebuilt(self, setting: Setting) -> BaseRetriever:
        """Return the pipeline with another setting."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for one parameter, and why.

    Attributes:
        parameter: Its name.
        before: The value so far.
        after: The value chosen; the same where nothing carries a change.
        gain: Mean difference of the measure between the best other value and the one so far.
        standard_error: Of that mean.
        why: The reason, in a sentence.
    """

    parameter: str
    before: str
    after: str
    gain: float
    standard_error: float
    why: str


@dataclass(frozen=True, slots=True)
class Gain:
    """A difference on questions that the setting was not chosen on.

    Attributes:
        mean: Of the paired differences.
        standard_error: Of that mean.
        p_value: Of the paired randomisation test.
    """

    mean: float
    standard_error: float
    p_value: float

    @property
    def is_significant(self) -> bool:
        """Whether it is above 0 with a p-value below 0.05."""
        return self.mean > 0 and self.p_value < SIGNIFICANT

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.standard_error:.4f}, p = {self.p_value:.3f}"


@dataclass(frozen=True, slots=True, repr=False)
class Tuning:
    """What `tune` found.

    Attributes:
        retriever: The pipeline with the settings chosen; the same object where nothing changed.
        measure: What was measured.
        judgements: On which questions.
        choices: One a parameter.
        gain: Over the pipeline as it was, cross-validated; None where nothing was measured.
        fusion_gain: Over the best single leg, cross-validated; None where there is one leg.
        best_leg: The name of that leg.
        verdict: All of it in a few sentences.
        sweep: The settings that were tried: rows for `table`.
    """

    retriever: BaseRetriever
    measure: str
    judgements: Judgements
    choices: tuple[Choice, ...] = ()
    gain: Gain | None = None
    fusion_gain: Gain | None = None
    best_leg: str = ""
    verdict: str = ""
    sweep: tuple[dict[str, object], ...] = field(default=(), repr=False)

    @property
    def is_changed(self) -> bool:
        """Whether another setting was chosen."""
        return any(each.before != each.after for each in self.choices)

    @property
    def table(self) -> "DataFrame":
        """One row a setting: weights by leg, fusion, depth, and the mean of the measure."""
        from pandas import DataFrame  # noqa: PLC0415 - optional

        return DataFrame(list(self.sweep))

    def to_yaml(self, path: str | Path | None = None) -> str:
        """Return the pipeline as a preset, and write it.

        Args:
            path: The file; None to write none.

        Raises:
            ConfigurationError: The pipeline has a part that no configuration can name.
        """
        text = _preset(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        from llama_retrieval_ext.display.experiment import tuning_html  # noqa: PLC0415 - a view

        return tuning_html(self)

    def __rich__(self) -> "RenderableType":
        from llama_retrieval_ext.display.experiment import tuning_console  # noqa: PLC0415 - a view

        return tuning_console(self)


@checked_call
def tune(
    retriever: BaseRetriever,
    judgements: Source,
    *,
    measure: str = "nDCG@10",
    folder: str | Path | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Tuning:
    """Return a pipeline with the settings that labelled questions carry.

    Each leg is asked once per question; fusion, weights, constant and scale, depth, and lambda of
    an `MMR` behind the fusion are then tried on what the legs found; of a `GraphRetriever` with a
    seed, the damping. Stages behind, such as rerankers, are left as they are and not measured.

    The default stays unless another setting beats it by 1.25 standard errors of the paired
    difference: the best of many on few questions is mostly luck. With fewer than 20 questions
    nothing is measured, and known items, which share their words with what answers them, change
    nothing either.

    Args:
        retriever: A `HybridRetriever` or fused legs, perhaps inside a pipeline, or a seeded
            `GraphRetriever`.
        judgements: Questions with what answers them; all that `load_judgements` reads.
        measure: A name of `ir-measures`.
        folder: Where the rankings of the legs are kept, as for `Experiment`.
        seed: Of the division into five parts for cross-validation.
        progress: Whether to show a progress bar.

    Raises:
        ConfigurationError: The pipeline has nothing to tune, or the measure is none.

    Source:
        The rule of one standard error: Breiman et al., "Classification and Regression Trees", 1984,
        section 3.4.3; here of paired differences, and with a quarter more for so many settings.
    """
    judged = load_judgements(judgements)
    (name,) = map(str, parse_measures([measure]))
    pipeline: Tunable
    if isinstance(retriever, GraphRetriever) and retriever.seed is not None:
        pipeline = SeededGraph(retriever, retriever.seed)
    else:
        pipeline = FusedPipeline(retriever)
    unchanged = Tuning(retriever, name, judged)
    if len(judged) < LEAST_LABELS:
        return replace(unchanged, verdict=_too_few(len(judged)))
    trial = Trial(pipeline, judged, name)
    trial.collect(folder, progress=progress)
    return trial.tuned(unchanged, seed=check_count(seed, "seed", least=0))


def _too_few(count: int) -> str:
    return (
        f"Nothing changed: {count} labelled questions carry no setting; on so few, the best one is "
        f"as likely worse on others. Label at least {LEAST_LABELS}, better 50."
    )


class Trial:
    """The values of settings on the questions, from the rankings of the legs."""

    def __init__(self, pipeline: Tunable, judgements: Judgements, measure: str) -> None:
        self.pipeline, self.judgements, self.measure = pipeline, judgements, measure
        self._answers: dict[str, dict[str, Answer]] = {}
        self._known: dict[str, Values] = {}
        self.sweep: list[dict[str, object]] = []

    def collect(self, folder: str | Path | None, *, progress: bool) -> None:
        """Ask the legs."""
        legs, depth = self.pipeline.legs, self.pipeline.depth
        asked = Experiment(
            legs, self.judgements, measures=[self.measure], top_k=depth, folder=folder
        ).run(progress=progress)
        self._answers = {
            name: {answer.query_id: answer for answer in asked.answers(name)} for name in legs
        }

    def values(self, setting: Setting) -> Values:
        """The measure of a setting, one number a question."""
        key = repr(setting)
        if key not in self._known:
            run = {query_id: self._run(setting, query_id) for query_id in self.judgements.queries}
            measured = measure_queries([self.measure], self.judgements.relevant, run)
            self._known[key] = np.array(list(measured[self.measure].values()))
            self.sweep.append(self._row(setting, self._known[key]))
        return self._known[key]

    def _run(self, setting: Setting, query_id: str) -> dict[str, float]:
        answers = {name: own[query_id] for name, own in self._answers.items()}
        names = {hit.node_id: hit.names for each in answers.values() for hit in each.hits}
        rankings = {
            name: [(hit.node_id, hit.score) for hit in answer.hits]
            for name, answer in answers.items()
            if answer.error is None
        }
        question = self.judgements.queries[query_id]
        ids = self.pipeline.ranking(setting, question, rankings)
        return self.judgements.run_of(query_id, [names.get(id_, (id_,)) for id_ in ids])

    def _row(self, setting: Setting, values: Values) -> dict[str, object]:
        return {
            **{f"weight of {leg}": weight for leg, weight in setting.weights},
            "fusion": setting.formula,
            "depth": setting.depth,
            "mmr_lambda": setting.mmr_lambda,
            "damping": setting.damping,
            self.measure: float(values.mean()),
            "standard_error": standard_error(values.tolist()),
            "questions": self.judgements.origin,
        }

    def choose(self, rows: npt.NDArray[np.int_]) -> tuple[Setting, list[Choice]]:
        """The setting that these questions carry, and what was chosen for each parameter."""
        current, choices = self.pipeline.default, list[Choice]()
        steps = self.pipeline.steps(current)
        try:
            parameter, settings = next(steps)
            while True:
                chosen, choice = self._choose_one(parameter, settings, current, rows)
                choices.append(choice)
                current = chosen
                parameter, settings = steps.send(current)
        except StopIteration:
            return current, choices

    def _choose_one(
        self,
        parameter: str,
        settings: Sequence[Setting],
        current: Setting,
        rows: npt.NDArray[np.int_],
    ) -> tuple[Setting, Choice]:
        base = self.values(current)[rows]
        gains = [(self.values(each)[rows] - base).tolist() for each in settings]
        bounds = [_mean(each) - _MARGIN * standard_error(each) for each in gains]
        before = _value_of(parameter, current)
        if not settings:
            return current, Choice(parameter, before, before, 0.0, 0.0, "There is no other value.")
        best = int(np.argmax(bounds))
        gain, error = _mean(gains[best]), standard_error(gains[best])
        other, is_better = _value_of(parameter, settings[best]), bounds[best] > 0
        why = _reason(other, gain, error, is_better=is_better)
        after = other if is_better else before
        choice = Choice(parameter, before, after, gain, error, why)
        return (settings[best] if is_better else current), choice

    def tuned(self, unchanged: Tuning, *, seed: int) -> Tuning:
        """The result: choices on all questions, gains on those each fold left out."""
        setting, choices = self.choose(np.arange(len(self.judgements)))
        gain, fusion_gain, best_leg = self._validated(seed)
        is_known_items = self.judgements.origin == KNOWN_ITEMS
        if is_known_items:
            choices = [_kept_for_known_items(each) for each in choices]
            setting = self.pipeline.default
        is_changed = setting != self.pipeline.default
        retriever = self.pipeline.rebuilt(setting) if is_changed else unchanged.retriever
        result = replace(
            unchanged,
            retriever=retriever,
            choices=tuple(choices),
            gain=gain,
            fusion_gain=fusion_gain,
            best_leg=best_leg,
            sweep=tuple(self.sweep),
        )
        return replace(result, verdict=_verdict(result))

    def _validated(self, seed: int) -> tuple[Gain, Gain | None, str]:
        """The gains over the default and over the best leg, and that leg, each chosen elsewhere."""
        count = len(self.judgements)
        fold = np.random.default_rng(seed).permutation(count) % _FOLDS
        default = self.values(self.pipeline.default)
        legs = {name: self.values(each) for name, each in self._single_legs().items()}
        over_default, over_leg = np.zeros(count), np.zeros(count)
        for number in range(_FOLDS):
            train, test = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            chosen = self.values(self.choose(train)[0])[test]
            over_default[test] = chosen - default[test]
            if legs:
                over_leg[test] = chosen - legs[_best(legs, train)][test]
        if not legs:
            return _gain(over_default), None, ""
        return _gain(over_default), _gain(over_leg), _best(legs, np.arange(count))

    def _single_legs(self) -> dict[str, Setting]:
        default = self.pipeline.default
        names = [name for name, _ in default.weights]
        return {
            name: replace(default, weights=tuple((each, float(each == name)) for each in names))
            for name in names
            if len(names) > 1
        }


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _best(legs: dict[str, Values], rows: npt.NDArray[np.int_]) -> str:
    return max(legs, key=lambda name: float(legs[name][rows].mean()))


def _gain(differences: Values) -> Gain:
    values = differences.tolist()
    return Gain(_mean(values), standard_error(values), randomisation_test(values))


_SHOWN: Final[dict[str, Callable[[Setting], str]]] = {
    "fusion and weights": lambda setting: setting.fused,
    "depth": lambda setting: str(setting.depth),
    "MMR lambda": lambda setting: str(setting.mmr_lambda),
    "damping": lambda setting: str(setting.damping),
}


def _value_of(parameter: str, setting: Setting) -> str:
    return _SHOWN[parameter](setting)


def _reason(other: str, gain: float, error: float, *, is_better: bool) -> str:
    measured = f"{gain:+.4f} ± {error:.4f}"
    if is_better:
        return f"It gains {measured}, more than {_MARGIN} standard errors."
    return f"Kept: the best other value, {other}, gains {measured}, within the noise."


def _kept_for_known_items(choice: Choice) -> Choice:
    why = (
        f"Kept: known items share their words with what answers them; {choice.after} need not be "
        "better for real questions."
    )
    return replace(choice, after=choice.before, why=why)


def _verdict(result: Tuning) -> str:
    changes = [
        f"{each.parameter}: {each.after}" for each in result.choices if each.after != each.before
    ]
    changed = f"Changed {'; '.join(changes)}." if changes else "Nothing changed."
    if result.gain is None:
        return changed
    count, origin = len(result.judgements), result.judgements.origin
    measured = (
        f"On {count} questions ({origin}), settings chosen on four fifths gain {result.gain} in "
        f"{result.measure} on the other fifth: {_confidence(result.gain)}."
    )
    fusion = "" if result.fusion_gain is None else _on_fusion(result.fusion_gain, result.best_leg)
    return " ".join(filter(None, [changed, measured, fusion]))


def _confidence(gain: Gain) -> str:
    if gain.is_significant:
        return "significant"
    if gain.mean > 0:
        return "not significant; more labels would tell"
    return "not confirmed; label more questions before you rely on a change"


def _on_fusion(gain: Gain, leg: str) -> str:
    if gain.is_significant:
        return f"Fusion is worth it: {gain} over {leg} alone."
    if gain.mean > 0:
        return f"Whether fusion is worth it is not clear: {gain} over {leg} alone."
    return f"Fusion is not worth it here: {gain} over {leg} alone, which is cheaper."


def _preset(tuning: Tuning) -> str:
    raise ConfigurationError(
        f"{type(tuning.retriever).__name__} cannot be written: llama_retrieval_ext.config is not "
        "there yet"
    )
