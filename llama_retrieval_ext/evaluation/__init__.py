"""Experiments on judged questions, comparisons without judgements, and tuning."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.evaluation.comparison import Comparison, compare
    from llama_retrieval_ext.evaluation.datasets import load_judgements
    from llama_retrieval_ext.evaluation.experiment import Experiment
    from llama_retrieval_ext.evaluation.judgements import Judgements, Level
    from llama_retrieval_ext.evaluation.plots import plot_latency, plot_recall, plot_sweep
    from llama_retrieval_ext.evaluation.questions import generated_questions, known_item_questions
    from llama_retrieval_ext.evaluation.retrieval_plots import (
        PathStep,
        plot_overlap,
        plot_paths,
        plot_ranks,
        plot_scores,
    )
    from llama_retrieval_ext.evaluation.tuning import Tuning, tune


__all__ = [
    "Comparison",
    "Experiment",
    "Judgements",
    "Level",
    "PathStep",
    "Tuning",
    "compare",
    "generated_questions",
    "known_item_questions",
    "load_judgements",
    "plot_latency",
    "plot_overlap",
    "plot_paths",
    "plot_ranks",
    "plot_recall",
    "plot_scores",
    "plot_sweep",
    "tune",
]

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.evaluation.comparison": ("Comparison", "compare"),
        "llama_retrieval_ext.evaluation.datasets": ("load_judgements",),
        "llama_retrieval_ext.evaluation.experiment": ("Experiment",),
        "llama_retrieval_ext.evaluation.judgements": ("Judgements", "Level"),
        "llama_retrieval_ext.evaluation.plots": ("plot_latency", "plot_recall", "plot_sweep"),
        "llama_retrieval_ext.evaluation.questions": ("generated_questions", "known_item_questions"),
        "llama_retrieval_ext.evaluation.retrieval_plots": (
            "PathStep",
            "plot_overlap",
            "plot_paths",
            "plot_ranks",
            "plot_scores",
        ),
        "llama_retrieval_ext.evaluation.tuning": ("Tuning", "tune"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
