"""Trial of pipeline settings on saved rankings of the legs, and choice of the best."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.evaluation.answers import Answer
from llama_retrieval_ext.evaluation.experiment import SIGNIFICANT, Experiment
from llama_retrieval_ext.evaluation.judgements import Judgements
from llama_retrieval_ext.evaluation.measures import measure_queries
from llama_retrieval_ext.evaluation.significance import randomisation_test, standard_error
from llama_retrieval_ext.evaluation.tunable import FusedPipeline, SeededGraph, Setting

Values: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.int_]

# Standard errors of the paired difference by which a setting must beat the previous one.
MARGIN: Final = 1.25
FOLDS: Final = 5


# A pipeline whose settings can be tried on saved rankings.
Tunable: TypeAlias = FusedPipeline | SeededGraph


@dataclass(frozen=True, slots=True)
class ParameterChoice:
    """Choice for one parameter, with the reason.

    Attributes:
        parameter: Name of the parameter.
        before: Previous value.
        after: Chosen value; the same if the labels do not justify a change.
        gain: Mean difference of the measure between the best other value and the previous one.
        standard_error: Standard error of that mean.
        why: Reason, as a sentence.
    """

    parameter: str
    before: str
    after: str
    gain: float
    standard_error: float
    why: str


@dataclass(frozen=True, slots=True)
class Gain:
    """Difference of a measure on questions that were not used to choose the setting.

    Attributes:
        mean: Mean of the paired differences.
        standard_error: Standard error of that mean.
        p_value: P-value of the paired randomisation test.
    """

    mean: float
    standard_error: float
    p_value: float

    @property
    def is_significant(self) -> bool:
        """Whether the mean is above 0 with a p-value below 0.05."""
        return self.mean > 0 and self.p_value < SIGNIFICANT

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.standard_error:.4f}, p = {self.p_value:.3f}"


class Trial:
    """Values of settings on the questions, computed from the rankings of the legs."""

    def __init__(self, pipeline: Tunable, judgements: Judgements, measure: str) -> None:
        self.pipeline, self.judgements, self.measure = pipeline, judgements, measure
        self.answers: dict[str, dict[str, Answer]] = {}
        self.hints: tuple[str, ...] = ()
        self._known: dict[str, Values] = {}
        self._bar = tqdm(total=0, unit="setting", disable=True)
        self.sweep: list[dict[str, object]] = []

    def collect(self, folder: str | Path | None, *, progress: bool) -> None:
        """Collect the rankings of the legs."""
        legs, measures = self.pipeline.legs, [self.measure]
        experiment = Experiment(legs, self.judgements, measures=measures, folder=folder)
        experiment.run(progress=progress, warm_up=False)
        self.hints = experiment.hints
        for name in legs:
            answers = experiment.answers(name)
            failed = [answer for answer in answers if answer.error is not None]
            if failed:
                raise ExecutionError(
                    f"leg {name!r} failed for {len(failed)} of {len(answers)} questions, first "
                    f"with {failed[0].error}; it cannot be weighed: run again when it works"
                )
            self.answers[name] = {answer.query_id: answer for answer in answers}

    @contextmanager
    def progress(self, *, shown: bool) -> Generator[None]:
        """Show a progress bar of the settings that are measured within the block."""
        with tqdm(total=1, desc="Tuning", unit="setting", disable=not shown) as self._bar:
            yield

    def values(self, setting: Setting) -> Values:
        """Return the measure of a setting, one number per question."""
        key = repr(setting)
        if key not in self._known:
            run = {query_id: self._run(setting, query_id) for query_id in self.judgements.queries}
            measured = measure_queries([self.measure], self.judgements.relevant, run)
            self._known[key] = np.array(list(measured[self.measure].values()))
            self.sweep.append(self._row(setting, self._known[key]))
            self._bar.update()
        return self._known[key]

    def _run(self, setting: Setting, query_id: str) -> dict[str, float]:
        answers = {
            name: answers_of_setting[query_id] for name, answers_of_setting in self.answers.items()
        }
        names = {hit.node_id: hit.names for answer in answers.values() for hit in answer.hits}
        rankings = {
            name: [(hit.node_id, hit.score) for hit in answer.hits]
            for name, answer in answers.items()
        }
        question = self.judgements.queries[query_id]
        ids = self.pipeline.ranking(setting, question, rankings)
        nodes, names_of = self.pipeline.nodes, self.judgements.names_of
        hits = [names_of(nodes[id_], query_id) if id_ in nodes else names[id_] for id_ in ids]
        return self.judgements.run_of(query_id, hits)

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

    def choose(self, rows: Rows) -> tuple[Setting, list[ParameterChoice]]:
        """Return the setting that these questions justify, and the choice for each parameter."""
        current, choices = self.pipeline.default, list[ParameterChoice]()
        for parameter in self.pipeline.parameters:
            settings = self.pipeline.settings_of(parameter, current)
            if settings:
                current, choice = self._choose_one(parameter, settings, current, rows)
                choices.append(choice)
        return current, choices

    def _choose_one(
        self, parameter: str, settings: Sequence[Setting], current: Setting, rows: Rows
    ) -> tuple[Setting, ParameterChoice]:
        self._bar.total += sum(repr(setting) not in self._known for setting in settings)
        base = self.values(current)[rows]
        gains = [(self.values(setting)[rows] - base).tolist() for setting in settings]
        bounds = [_mean(gain) - MARGIN * standard_error(gain) for gain in gains]
        before = current.value_of(parameter)
        best = int(np.argmax(bounds))
        gain, error = _mean(gains[best]), standard_error(gains[best])
        other, is_better = settings[best].value_of(parameter), bounds[best] > 0
        measured = f"{gain:+.4f} ± {error:.4f}"
        why = f"Kept: the best other value, {other}, gains {measured}, within the noise."
        if is_better:
            why = f"It gains {measured}, more than {MARGIN} standard errors."
        after = other if is_better else before
        choice = ParameterChoice(parameter, before, after, gain, error, why)
        return (settings[best] if is_better else current), choice

    def validated(self, seed: int) -> tuple[Gain, Gain | None, str]:
        """Return the cross-validated gains over the default and the best leg, and that leg."""
        count = len(self.judgements)
        fold = np.random.default_rng(seed).permutation(count) % FOLDS
        default = self.values(self.pipeline.default)
        legs = {name: self.values(setting) for name, setting in self._single_legs().items()}
        over_default, over_leg = np.zeros(count), np.zeros(count)
        for number in range(FOLDS):
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
            name: replace(default, weights=tuple((leg, float(leg == name)) for leg in names))
            for name in names
            if len(names) > 1
        }


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _best(legs: dict[str, Values], rows: Rows) -> str:
    return max(legs, key=lambda name: float(legs[name][rows].mean()))


def _gain(differences: Values) -> Gain:
    values = differences.tolist()
    return Gain(_mean(values), standard_error(values), randomisation_test(values))
