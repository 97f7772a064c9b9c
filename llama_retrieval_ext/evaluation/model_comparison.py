"""`compare_models`: vector search with two embedding models over the same documents."""

from dataclasses import dataclass
from typing import Final

from llama_retrieval_ext.errors import ExecutionError
from llama_retrieval_ext.evaluation.datasets import Source, load_judgements
from llama_retrieval_ext.evaluation.experiment import Experiment
from llama_retrieval_ext.evaluation.judgements import Judgements
from llama_retrieval_ext.evaluation.questions import known_item_questions
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.wording import counted

MEASURE: Final = "nDCG@10"
_SIGNIFICANT: Final = 0.05


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Means of a measure with the old and the new embedding model, and their paired test.

    Examples:
        >>> print(ModelComparison("labels", 200, "nDCG@10", 0.61, 0.67, 0.003))
        nDCG@10 on 200 questions (labels): 0.610 -> 0.670, p = 0.003: the new model is better

    """

    questions: str  # their origin: "labels", or "synthetic: ..."
    n_questions: int
    measure: str
    old: float
    new: float
    p_value: float  # of the randomisation test, two-sided

    @property
    def verdict(self) -> str:
        """Which model is better, at the level of 0.05."""
        if self.p_value >= _SIGNIFICANT:
            return "no significant difference"
        return f"the {'new' if self.new > self.old else 'old'} model is better"

    def __str__(self) -> str:
        return (
            f"{self.measure} on {counted(self.n_questions, 'question')} ({self.questions}): "
            f"{self.old:.3f} -> {self.new:.3f}, p = {self.p_value:.3f}: {self.verdict}"
        )


def compare_models(
    old: KnowledgeBase, new: KnowledgeBase, judgements: "Source | None" = None
) -> list[ModelComparison]:
    """Compare vector search in a knowledge base and in its copy with another embedding model.

    Sentences of the texts, which repeat the words of their passages, show defects rather than which
    model understands questions; labelled questions show that.

    Args:
        old: The knowledge base.
        new: Its copy, by `copy_knowledge_base` with ``embed_model``.
        judgements: Labelled questions: any source of `load_judgements`.

    Returns:
        The comparison on labelled questions, if there are any, and on known items.

    Raises:
        ConfigurationError: There is no text to ask for, or the labelled questions cannot be read.
        ExecutionError: A model gives no answer.
        MissingDependencyError: The extra ``eval`` is not installed.
    """
    labelled = [] if judgements is None else [load_judgements(judgements)]
    return [_compared(old, new, questions) for questions in (*labelled, known_item_questions(old))]


def _compared(old: KnowledgeBase, new: KnowledgeBase, questions: Judgements) -> ModelComparison:
    retrievers = {"old": old.retriever("vector"), "new": new.retriever("vector")}
    experiment = Experiment(retrievers, questions, measures=[MEASURE])
    experiment.run(progress=False, warm_up=False)
    for answer in (*experiment.answers("old"), *experiment.answers("new")):
        if answer.error is not None:
            raise ExecutionError(f"the {answer.retriever} model fails: {answer.error}")
    old_mean, new_mean = (row[MEASURE] for row in experiment.results.to_dict("records"))
    (tested,) = experiment.significance.to_dict("records")
    return ModelComparison(
        questions=questions.origin,
        n_questions=len(questions),
        measure=MEASURE,
        old=old_mean,
        new=new_mean,
        p_value=tested["p_randomisation"],
    )
