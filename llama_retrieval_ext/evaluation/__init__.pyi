from llama_retrieval_ext.evaluation.comparison import Comparison as Comparison
from llama_retrieval_ext.evaluation.comparison import compare as compare
from llama_retrieval_ext.evaluation.datasets import load_judgements as load_judgements
from llama_retrieval_ext.evaluation.experiment import Experiment as Experiment
from llama_retrieval_ext.evaluation.gate import gate as gate
from llama_retrieval_ext.evaluation.judgements import Judgements as Judgements
from llama_retrieval_ext.evaluation.judgements import Level as Level
from llama_retrieval_ext.evaluation.model_comparison import ModelComparison as ModelComparison
from llama_retrieval_ext.evaluation.model_comparison import compare_models as compare_models
from llama_retrieval_ext.evaluation.model_comparison import (
    generated_questions as generated_questions,
)
from llama_retrieval_ext.evaluation.model_comparison import (
    known_item_questions as known_item_questions,
)
from llama_retrieval_ext.evaluation.plots import plot_latency as plot_latency
from llama_retrieval_ext.evaluation.plots import plot_recall as plot_recall
from llama_retrieval_ext.evaluation.plots import plot_sweep as plot_sweep
from llama_retrieval_ext.evaluation.query_log import QueryLog as QueryLog
from llama_retrieval_ext.evaluation.retrieval_plots import PathStep as PathStep
from llama_retrieval_ext.evaluation.retrieval_plots import plot_overlap as plot_overlap
from llama_retrieval_ext.evaluation.retrieval_plots import plot_paths as plot_paths
from llama_retrieval_ext.evaluation.retrieval_plots import plot_ranks as plot_ranks
from llama_retrieval_ext.evaluation.retrieval_plots import plot_scores as plot_scores
from llama_retrieval_ext.evaluation.tuning import tune as tune
