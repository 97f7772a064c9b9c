"""`Comparison`: two embedding models over the same nodes, for `copy_knowledge_base`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from llama_index.core.schema import BaseNode

from llama_retrieval_ext.errors import ExecutionError, RetrievalExtError, describe
from llama_retrieval_ext.evaluation.datasets import Source, load_judgements
from llama_retrieval_ext.evaluation.experiment import Experiment
from llama_retrieval_ext.evaluation.judgements import Judgements
from llama_retrieval_ext.evaluation.measures import parse_measures
from llama_retrieval_ext.evaluation.questions import known_item_questions
from llama_retrieval_ext.knowledge_base.report import CopyReport, ModelComparison
from llama_retrieval_ext.retrievers.store_retriever import VectorRetriever
from llama_retrieval_ext.text.tokenizer import Tokenizer

MEASURE: Final = "nDCG@10"
Labelled: TypeAlias = "Source | None"


class Comparison:
    """Compares two models on labelled questions, if any, and on sentences of the nodes."""

    def __init__(self, judgements: Labelled, tokenizer: Tokenizer) -> None:
        parse_measures([MEASURE])
        self._labelled = [] if judgements is None else [load_judgements(judgements)]
        self._tokenizer = tokenizer

    def compared(
        self,
        report: CopyReport,
        old: VectorRetriever,
        new: VectorRetriever,
        nodes: Sequence[BaseNode],
    ) -> CopyReport:
        """Return the report with the comparison, or with the reason why there is none."""
        try:
            known = known_item_questions(nodes, tokenizer=self._tokenizer)
            compared = [compare_models(old, new, each) for each in (*self._labelled, known)]
        except RetrievalExtError as error:  # the copy itself is done
            return replace(report, not_compared=describe(error))
        return replace(report, comparisons=tuple(compared))


def compare_models(
    old: VectorRetriever, new: VectorRetriever, questions: Judgements
) -> ModelComparison:
    """Return the quality of vector search with both models; raise if one gives no answer."""
    experiment = Experiment({"old": old, "new": new}, questions, measures=[MEASURE])
    experiment.run(progress=False, warm_up=False)
    for answer in (*experiment.answers("old"), *experiment.answers("new")):
        if answer.error is not None:
            raise ExecutionError(f"the {answer.retriever} model fails: {answer.error}")
    old_mean, new_mean = (each[MEASURE] for each in experiment.results.to_dict("records"))
    (tested,) = experiment.significance.to_dict("records")
    return ModelComparison(
        questions=questions.origin,
        n_questions=len(questions),
        measure=MEASURE,
        old=old_mean,
        new=new_mean,
        p_value=tested["p_randomisation"],
    )
