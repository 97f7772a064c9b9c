"""`tune`: choice of pipeline settings by labelled questions, on saved rankings of the legs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.arguments import arguments_of
from llama_retrieval_ext.checks import check_count, checked_call
from llama_retrieval_ext.evaluation.datasets import Source, load_judgements
from llama_retrieval_ext.evaluation.experiment import frame_of
from llama_retrieval_ext.evaluation.judgements import KNOWN_ITEMS, Judgements
from llama_retrieval_ext.evaluation.measures import parse_measures
from llama_retrieval_ext.evaluation.trial import Gain, ParameterChoice, Trial, Tunable
from llama_retrieval_ext.evaluation.tunable import FusedPipeline, SeededGraph
from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.pipeline.tree import children_of
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from pandas import DataFrame

# With fewer questions, a setting that measures better is as likely worse on other questions.
LEAST_LABELS: Final = 20
_LIVE: Final = ("store", "embed_model", "graph", "llm", "docstore", "index")


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Viewed):
    """The result of `tune`.

    Attributes:
        retriever: Pipeline with the chosen settings; the same object if no setting changed.
        measure: Name of the measure.
        judgements: Questions of the tuning.
        choices: One choice per parameter.
        gain: Cross-validated gain over the original pipeline; None if nothing was measured.
        fusion_gain: Cross-validated gain over the best single leg; None if there is one leg.
        best_leg: Name of that leg.
        verdict: Summary in a few sentences.
        sweep: Settings that were tried: rows for `table`.
    """

    _view: ClassVar[str] = "experiment.tuning"

    retriever: BaseRetriever
    measure: str
    judgements: Judgements
    choices: tuple[ParameterChoice, ...] = ()
    gain: Gain | None = None
    fusion_gain: Gain | None = None
    best_leg: str = ""
    verdict: str = ""
    sweep: tuple[dict[str, object], ...] = field(default=(), repr=False)

    @property
    def is_changed(self) -> bool:
        """Whether another setting was chosen."""
        return any(choice.before != choice.after for choice in self.choices)

    @property
    def table(self) -> "DataFrame":
        """One row per setting: weights by leg, fusion, depth, and the mean of the measure."""
        return frame_of(self.sweep)

    def to_yaml(
        self, path: str | Path | None = None, *, live: Mapping[str, object] | None = None
    ) -> str:
        """Return the pipeline as a preset in YAML; optionally write it to a file.

        Args:
            path: File to write; None for no file.
            live: Stores, models and other live objects, by their names in the
                file; None for names from the arguments that they were passed as.

        Raises:
            ConfigurationError: The pipeline has a part that a configuration cannot express.
        """
        from llama_retrieval_ext.config.yaml import to_yaml  # noqa: PLC0415 - pydantic models

        text = to_yaml(self.retriever, live=live or live_arguments(self.retriever))
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __repr__(self) -> str:
        return self.verdict


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
    """Return a pipeline with the settings that labelled questions justify.

    Each leg is called once per question; fusion, weights, constant and scale, depth, and lambda of
    an `MMR` after the fusion are then tried on the rankings of the legs; for a `GraphRetriever`
    with a seed, the damping. Later stages, such as rerankers, are kept and not measured.

    The default stays unless another setting beats it by 1.25 standard errors of the paired
    difference, and settings chosen in this way gain significantly on questions that did not choose
    them: the best of many settings on few questions is mostly chance. With fewer than 20 questions
    nothing is measured. Known items, which share words with their answers, never change a setting.

    Args:
        retriever: A `HybridRetriever` or fused legs, perhaps inside a pipeline, or a seeded
            `GraphRetriever`.
        judgements: Questions with their relevant targets; any source of `load_judgements`.
        measure: Name in `ir-measures`.
        folder: Folder for the rankings of the legs, as for `Experiment`.
        seed: Random seed for the five parts of the cross-validation.
        progress: Whether to show progress bars: for the answers of the legs, then for the settings.

    Raises:
        ConfigurationError: The pipeline has no tunable setting, or the measure is unknown.
        ExecutionError: A leg failed for some questions.

    Source:
        The rule of one standard error: Breiman et al., "Classification and Regression Trees", 1984,
        section 3.4.3; here with paired differences, and a quarter more for the many settings.
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
        few = (
            f"Nothing changed: {len(judged)} labelled questions carry no setting; on so few, the "
            f"best one is as likely worse on others. Label at least {LEAST_LABELS}, better 50."
        )
        return replace(unchanged, verdict=few)
    trial = Trial(pipeline, judged, name)
    trial.collect(folder, progress=progress)
    with trial.progress(shown=progress):
        return _tuned(trial, unchanged, seed=check_count(seed, "seed", least=0))


def _tuned(trial: Trial, unchanged: Tuning, *, seed: int) -> Tuning:
    """Return the result: choices on all questions, gains on the held-out folds."""
    default = trial.pipeline.default
    setting, choices = trial.choose(np.arange(len(trial.judgements)))
    if trial.judgements.origin == KNOWN_ITEMS:
        setting, choices = default, [_kept_for_known_items(choice) for choice in choices]
    gain, fusion_gain, best_leg = trial.validated(seed)
    if setting != default and not gain.is_significant:
        setting, choices = default, [_not_confirmed(choice, gain) for choice in choices]
    retriever = unchanged.retriever if setting == default else trial.pipeline.rebuilt(setting)
    result = replace(
        unchanged,
        retriever=retriever,
        choices=tuple(choices),
        gain=gain,
        fusion_gain=fusion_gain,
        best_leg=best_leg,
        sweep=tuple(trial.sweep),
    )
    return replace(result, verdict="\n".join([_verdict(result), *trial.hints]))


def _kept_for_known_items(choice: ParameterChoice) -> ParameterChoice:
    why = (
        "Kept: known items share their words with what answers them; what is better for them need "
        "not be better for real questions."
    )
    return replace(choice, after=choice.before, why=why)


def _not_confirmed(choice: ParameterChoice, gain: Gain) -> ParameterChoice:
    if choice.after == choice.before:
        return choice
    why = (
        f"Kept: {choice.after} was better on all questions, but what is chosen on four fifths does "
        f"not gain significantly on the other fifth ({gain}); label more questions."
    )
    return replace(choice, after=choice.before, why=why)


def _verdict(result: Tuning) -> str:
    changes = [
        f"{choice.parameter}: {choice.after}"
        for choice in result.choices
        if choice.after != choice.before
    ]
    changed = f"Changed {'; '.join(changes)}." if changes else "Nothing changed."
    if result.gain is None:
        return changed
    count, origin = len(result.judgements), result.judgements.origin
    measured = (
        f"On {counted(count, 'question')} ({origin}), settings chosen on four fifths gain "
        f"{result.gain} in {result.measure} on the other fifth: {_confidence(result.gain)}."
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


def live_arguments(retriever: BaseRetriever) -> dict[str, object]:
    """Return the stores, models and graphs in a pipeline, by the names of the arguments.

    A second object for an argument of the same name gets a number: ``store``, ``store_2``.
    """
    live: dict[str, object] = {}
    for name, value in _live_arguments(retriever):
        if any(value is part for part in live.values()):
            continue
        number = 1 + sum(part.partition("_#")[0] == name for part in live)
        live[name if number == 1 else f"{name}_#{number}"] = value
    return {name.replace("_#", "_"): value for name, value in live.items()}


def _live_arguments(retriever: object) -> Iterator[tuple[str, object]]:
    for name, value in arguments_of(retriever).items():
        if name in _LIVE and value is not None and not isinstance(value, str):
            yield name, value
    for child in children_of(retriever):
        yield from _live_arguments(child)
