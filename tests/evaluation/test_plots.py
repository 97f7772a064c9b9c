"""Plots of experiments and tunings: the data of what is drawn."""

import pytest

from llama_retrieval_ext import RRF, ConfigurationError, branches
from llama_retrieval_ext.evaluation import (
    Judgements,
    Level,
    plot_latency,
    plot_recall,
    plot_sweep,
    tune,
)
from tests.evaluation.drawings import DRAWING, closed, dots, experiment, fused, legs, lines

__all__ = ["closed"]

pytestmark = DRAWING


def test_recall_agrees_with_the_measure_of_the_experiment() -> None:
    drawn = plot_recall(experiment())
    table = experiment().results.set_index("retriever")
    for name, depths, recalls in lines(drawn):
        assert depths == [1, 2, 3]
        assert recalls[-1] == pytest.approx(table["R@3"][name])
    assert drawn.get_title(loc="left") == "2 questions (labels)"


def test_the_front_of_quality_against_time_has_the_unbeaten_retrievers() -> None:
    drawn = plot_latency(experiment(), measure="RR", percentile=95)
    table = experiment().results
    assert dots(drawn) == {
        row["retriever"]: [[row["p95_ms"], row["RR"]]] for row in table.to_dict("records")
    }
    [(_, _, qualities)] = lines(drawn)
    assert qualities == sorted(set(qualities))
    assert qualities[-1] == table["RR"].max()
    with pytest.raises(ConfigurationError, match="measures are RR, R@3"):
        plot_latency(experiment(), measure="AP")


def test_a_sweep_shows_the_values_that_were_tried_and_the_chosen_one() -> None:
    words, meaning = legs()
    questions = {f"q{n}": f"leave {n}" for n in range(24)}
    judged = Judgements(questions, {question: {"c": 1} for question in questions}, Level.NODE)
    tuning = tune(branches(words=words, meaning=meaning) >> RRF(), judged, progress=False)
    assert tuning.is_changed
    drawn = plot_sweep(tuning, leg="meaning")
    default = tuning.sweep[0]
    _, weights, values = lines(drawn)[-1]
    tried = {
        (row["weight of meaning"], row[tuning.measure])
        for row in tuning.sweep
        if (row["fusion"], row["depth"]) == (default["fusion"], default["depth"])
    }
    assert set(zip(weights, values, strict=True)) == tried
    marked = dots(drawn)
    assert marked["default"] == [[0.5, default[tuning.measure]]]
    assert marked["chosen"][0][1] > marked["default"][0][1]
    with pytest.raises(ConfigurationError, match="the legs are words, meaning"):
        plot_sweep(tuning, leg="wrods")
    with pytest.raises(ConfigurationError, match="measured nothing: Nothing changed"):
        plot_sweep(tune(fused(), experiment().judgements, progress=False))
