"""Tables of experiments, comparisons and tunings: HTML and rich console."""

from collections.abc import Collection, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from llama_retrieval_ext.display.html import Markup, join, page, table, tag
from llama_retrieval_ext.display.results import console_table
from llama_retrieval_ext.evaluation.comparison import Comparison
from llama_retrieval_ext.evaluation.experiment import SIGNIFICANT, Experiment
from llama_retrieval_ext.evaluation.tuning import Tuning
from llama_retrieval_ext.hits import document_title
from llama_retrieval_ext.wording import counted, short

Cells = Sequence[str]

# Limits of questions, and of the characters of a question.
_QUESTIONS: Final = 10
_QUESTION: Final = 150
_BEST: Final = "*"
# Characters of an id, or more if several begin so: `Comparison.mark` takes them.
_ID: Final = 8
_TIMES: Final = ("p50_ms", "p95_ms")
# Columns that are shown if any value is above 0.
_COUNTS: Final = ("embeddings", "llm_calls", "degraded", "failed")
_CHOICES: Final = ("parameter", "before", "after", "why")


def experiment_html(experiment: Experiment) -> Markup:
    """Return the table of an experiment as HTML, with the best values in bold."""
    header, rows = _results(experiment)
    marked = ([tag("b", cell) if _BEST in cell else cell for cell in row] for row in rows)
    hints = (tag("p", f"hint: {hint}", class_="dim") for hint in experiment.hints)
    return page(table(header, marked), *hints, tag("small", _legend(experiment)))


def experiment_console(experiment: Experiment) -> RenderableType:
    """Return the table of an experiment for a rich console."""
    header, rows = _results(experiment)
    shown = console_table(header, rows, bold=_BEST)
    for column in shown.columns[1:]:
        column.no_wrap = True
    hints = [Text(f"hint: {hint}") for hint in experiment.hints]
    return Group(shown, *hints, Text(_legend(experiment), style="dim"))


def comparison_html(comparison: Comparison) -> Markup:
    """Return the questions whose answers differ most, side by side, as HTML."""
    parts = [
        join([tag("b", short(question, _QUESTION)), table(*_side_by_side(comparison, question))])
        for question in comparison.different()[:_QUESTIONS]
    ]
    return page(tag("p", repr(comparison)), *parts, tag("small", _MARKS))


def comparison_console(comparison: Comparison) -> RenderableType:
    """Return the questions whose answers differ most, side by side, for a rich console."""
    tables: list[RenderableType] = [Text(repr(comparison))]
    for question in comparison.different()[:_QUESTIONS]:
        tables += [Text(short(question, _QUESTION), style="bold")]
        tables += [console_table(*_side_by_side(comparison, question))]
    return Group(*tables, Text(_MARKS, style="dim"))


def tuning_html(tuning: Tuning) -> Markup:
    """Return the choices and their reasons as HTML."""
    rows = [
        (choice.parameter, choice.before, choice.after, choice.why) for choice in tuning.choices
    ]
    return page(tag("p", tuning.verdict), *([table(_CHOICES, rows)] if rows else []))


def tuning_console(tuning: Tuning) -> RenderableType:
    """Return the choices and their reasons for a rich console."""
    rows = [
        (choice.parameter, choice.before, choice.after, choice.why) for choice in tuning.choices
    ]
    verdict = Text(tuning.verdict)
    return Group(verdict, console_table(_CHOICES, rows)) if rows else verdict


_MARKS: Final = "+ found by this retriever alone; ✓ marked as right, ✗ as wrong"


def _results(experiment: Experiment) -> tuple[Cells, list[Cells]]:
    """Return the header and the rows, with marks for the best value and significance."""
    results = experiment.results.to_dict("records")
    best = {measure: max(row[measure] for row in results) for measure in experiment.measures}
    marks = {
        (row["retriever"], row["measure"]): "↑" if row["difference"] > 0 else "↓"
        for row in experiment.significance.to_dict("records")
        if row["is_significant"]
    }
    counts = [count for count in _COUNTS if any(row[count] for row in results)]
    rows: list[Cells] = []
    for row in results:
        values = [
            f"{row[measure]:.4f}{_BEST if row[measure] == best[measure] else ''}"
            f"{marks.get((row['retriever'], measure), '')}"
            for measure in experiment.measures
        ]
        times = [f"{row[time]:.1f} ms" for time in _TIMES]
        rows.append([row["retriever"], *values, *times, *(f"{row[count]:.3g}" for count in counts)])
    percentiles = (time.removesuffix("_ms") for time in _TIMES)
    header = ("retriever", *experiment.measures, *percentiles, *counts)
    return [title.replace("_", " ") for title in header], rows


def _legend(experiment: Experiment) -> str:
    judged = experiment.judgements
    return (
        f"{counted(len(judged), 'question')} ({judged.origin}), judged by {judged.level.value}. "
        f"{_BEST} best; ↑ ↓ better or worse than {experiment.baseline}: p < {SIGNIFICANT}, paired "
        "randomisation test with Holm's correction."
    )


def _side_by_side(comparison: Comparison, question: str) -> tuple[Cells, list[Cells]]:
    answers, marks = comparison.answers[question], comparison.marks.get(question, {})
    ids = {name: {hit.node_id for hit in hits} for name, hits in answers.items()}
    every = set[str]().union(*ids.values())
    rows: list[Cells] = []
    for rank in range(max(map(len, answers.values()))):
        cells = [str(rank + 1)]
        for name, hits in answers.items():
            if rank >= len(hits):
                cells.append("")
                continue
            hit = hits[rank]
            others = (hits_of_other for other, hits_of_other in ids.items() if other != name)
            alone = "" if any(hit.node_id in hits_of_other for hits_of_other in others) else "+ "
            mark = {None: "", 0: "✗ "}.get(marks.get(hit.node_id), "✓ ")
            title = document_title(hit)
            node_id = "" if title == hit.node_id else f" [{_beginning(hit.node_id, every)}]"
            cells.append(f"{mark}{alone}{title}: {short(hit.text)}{node_id}")
        rows.append(cells)
    return ("", *answers), rows


def _beginning(node_id: str, every: Collection[str]) -> str:
    """Return how an id begins, as far as no other one does."""
    ends = range(_ID, len(node_id))
    alone = (n for n in ends if sum(other.startswith(node_id[:n]) for other in every) == 1)
    return node_id[: next(alone, None)]
