"""`gate`: checks of an experiment against thresholds and a recorded run, for CI."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final
from xml.etree import ElementTree as ET

from llama_retrieval_ext.checks import checked_call
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.answers import ANSWERS, Answer
from llama_retrieval_ext.evaluation.experiment import SIGNIFICANT, Experiment
from llama_retrieval_ext.evaluation.judgements import Level
from llama_retrieval_ext.evaluation.measures import measure_queries
from llama_retrieval_ext.evaluation.significance import randomisation_test
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.pipeline.retriever import Retriever

# Recorded passages to look up, and the share of them that may be gone, as documents are deleted.
_MOST: Final = 200
_FEW: Final = 0.5


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One check.

    Attributes:
        name: Retriever and measure.
        failed: Whether it failed; None if the runs cannot be compared.
        why: The reason, with the numbers.
    """

    name: str
    failed: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Gate:
    """The result of `gate`.

    Attributes:
        checks: One for each retriever and measure.
        notes: What to know about the comparison, in sentences.
    """

    checks: tuple[GateCheck, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 if all passed, 1 if one failed, 3 if none failed and some cannot be compared."""
        if any(check.failed for check in self.checks):
            return 1
        return 3 if any(check.failed is None for check in self.checks) else 0

    def to_markdown(self) -> str:
        """Return it as a table with its notes, for the summary of a CI job."""
        words = {True: "failed", False: "passed", None: "not comparable"}
        rows = [f"| {c.name} | {words[c.failed]} | {c.why} |" for c in self.checks]
        notes = ["", *self.notes] if self.notes else []
        return "\n".join(["| check | result | why |", "|---|---|---|", *rows, *notes])

    def to_junit(self) -> str:
        """Return it as JUnit's XML."""
        counts = {
            "tests": len(self.checks),
            "failures": sum(check.failed is True for check in self.checks),
            "skipped": sum(check.failed is None for check in self.checks),
        }
        numbers = {name: str(count) for name, count in counts.items()}
        root = ET.Element("testsuite", {"name": "retrieval", **numbers})
        for check in self.checks:
            case = ET.SubElement(root, "testcase", classname="retrieval", name=check.name)
            if check.failed is not False:
                kind = "failure" if check.failed else "skipped"
                ET.SubElement(case, kind, message=check.why).text = "\n".join(self.notes)
        if self.notes:
            ET.SubElement(root, "system-out").text = "\n".join(self.notes)
        return ET.tostring(root, encoding="unicode", xml_declaration=True)


@checked_call
def gate(
    experiment: Experiment,
    *,
    baseline: str | Path | None = None,
    fail_under: Mapping[str, float] | None = None,
) -> Gate:
    """Return whether an experiment is good enough.

    A measure fails if it is below its number in ``fail_under``, and if it is significantly worse
    than the baseline; a number of 0 or less is the least difference to that instead. If most
    passages of the recorded run are gone, documents were cut anew: judgements of nodes then name
    what is not there, so that the runs cannot be compared; those of documents and passages still
    hold.

    Args:
        experiment: One that has run.
        baseline: The folder of an earlier experiment with the same names of retrievers, or its
            ``answers.jsonl``; questions that both have are compared.
        fail_under: Least value by measure.

    Raises:
        ConfigurationError: There is no baseline or no such measure, or it has not run.

    Examples:
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> judged = {"annual leave": "a", "lunch": "b"}
        >>> experiment = Experiment({"x": FakeRetriever([("a", 1.0)])}, judged, measures=["RR"])
        >>> print(gate(experiment.run(progress=False), fail_under={"RR": 0.8}).to_markdown())
        | check | result | why |
        |---|---|---|
        | x RR | failed | 0.5000 is below 0.8 |

    """
    least = dict(fail_under or {})
    for measure, number in least.items():
        if measure not in experiment.measures:
            have = ", ".join(experiment.measures)
            raise ConfigurationError(
                f"fail_under has {measure!r}; the measures are {have}; add it to them"
            )
        if number <= 0 and baseline is None:
            raise ConfigurationError(
                f"{measure}={number} is a difference to a baseline; name the baseline, or write a "
                "number above 0"
            )
    recorded = {} if baseline is None else _recorded(Path(baseline), experiment)
    gone = _share_gone(experiment, recorded)
    is_anew, notes = gone > _FEW, [*experiment.hints, *_unanswered(experiment, recorded)]
    if is_anew:
        notes.append(
            f"documents were cut anew: {gone:.0%} of the recorded passages are not there any more"
        )
    is_comparable = not is_anew or experiment.judgements.level is not Level.NODE
    values = experiment.per_query.set_index(["retriever", "query_id"])
    checks: list[GateCheck] = []
    for name in experiment.retrievers:
        answers = recorded.get(name, {})
        for measure in experiment.measures:
            now = dict(values.loc[name][measure].items())
            checks += _checks(name, measure, now, answers, least.get(measure), experiment)
    if not is_comparable:
        why = "judged passages have other ids now; judge documents or texts, or record a new run"
        checks = [GateCheck(check.name, None, why) for check in checks]
    return Gate(tuple(checks), tuple(notes))


def _checks(
    name: str,
    measure: str,
    now: Mapping[str, float],
    recorded: Mapping[str, Answer],
    least: float | None,
    experiment: Experiment,
) -> list[GateCheck]:
    what, checks = f"{name} {measure}", []
    if least is not None and least > 0:
        mean = fmean(now.values())
        sign = "is below" if mean < least else "is at least"
        checks = [GateCheck(what, mean < least, f"{mean:.4f} {sign} {least:g}")]
    if not recorded:
        return checks
    judged = experiment.judgements
    run_before = {
        id_: judged.run_of(id_, [hit.names for hit in answer.hits])
        for id_, answer in recorded.items()
    }
    relevant = {id_: judged.relevant[id_] for id_ in recorded}
    before = measure_queries([measure], relevant, run_before)[measure]
    differences = [now[id_] - before[id_] for id_ in recorded]
    mean, p_value = fmean(differences), randomisation_test(differences)
    is_limited = least is not None and least <= 0
    failed = mean < (least or 0) if is_limited else mean < 0 and p_value < SIGNIFICANT
    shown = f"{fmean(now[id_] for id_ in recorded):.4f}, recorded {fmean(before.values()):.4f}"
    why = f"{shown}: {mean:+.4f} (p = {p_value:.3f})"
    return [*checks, GateCheck(f"{what} as recorded" if checks else what, failed, why)]


def _recorded(path: Path, experiment: Experiment) -> dict[str, dict[str, Answer]]:
    """Return the recorded answers to the questions of an experiment, by retriever and question."""
    file = path / ANSWERS if path.is_dir() else path
    if not file.is_file():
        raise ConfigurationError(f"there is no recorded run {file}; record one with --folder")
    questions = experiment.judgements.queries
    answers: dict[str, dict[str, Answer]] = {}
    for line in file.read_bytes().splitlines():
        answer = Answer.from_json(line)
        if questions.get(answer.query_id) == answer.question and answer.error is None:
            answers.setdefault(answer.retriever, {})[answer.query_id] = answer
    if not answers.keys() & experiment.retrievers.keys():
        raise ConfigurationError(f"{file} answers none of the questions by the same retrievers")
    return answers


def _unanswered(
    experiment: Experiment, recorded: Mapping[str, Mapping[str, Answer]]
) -> Iterator[str]:
    """Yield which questions a recorded run does not compare, by retriever."""
    count = len(experiment.judgements.queries)
    for name in experiment.retrievers if recorded else ():
        if (compared := len(recorded.get(name, {}))) < count:
            yield f"the recorded run has answers of {name} to {compared} of {count} questions"


def _share_gone(experiment: Experiment, recorded: Mapping[str, Mapping[str, Answer]]) -> float:
    """Return the share of recorded nodes that are not stored any more, of those asked for."""
    answers_now = (answer for name in experiment.retrievers for answer in experiment.answers(name))
    seen = {hit.node_id for answer in answers_now for hit in answer.hits}
    ids = {
        hit.node_id: name
        for name, answers in recorded.items()
        for answer in answers.values()
        for hit in answer.hits
    }
    readers = {n: r for n, r in experiment.retrievers.items() if isinstance(r, Retriever)}
    asked = [(id_, readers[name]) for id_, name in sorted(ids.items()) if name in readers][:_MOST]
    gone = [id_ for id_, r in asked if id_ not in seen and run(r.read_node(id_)) is None]
    return len(gone) / len(asked) if asked else 0.0
