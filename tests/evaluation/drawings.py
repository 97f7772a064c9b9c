"""What plots are made of, and what is drawn in them."""

import warnings
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

from llama_retrieval_ext import RRF, Explanation, Retriever, Top, branches
from llama_retrieval_ext.evaluation import Experiment, Judgements, Level
from llama_retrieval_ext.testing.fakes import FixedRetriever

DRAWING = [
    pytest.mark.slow,
    pytest.mark.usefixtures("closed"),
    pytest.mark.skipif(
        find_spec("matplotlib") is None, reason="the extra 'notebook' is not installed"
    ),
]


def dots(drawn: Any, *, step: int = 1) -> dict[str, list[list[float]]]:
    """The positions of dots, by their label."""
    return {
        collection.get_label(): collection.get_offsets().tolist()
        for collection in drawn.collections[::step]
    }


def lines(drawn: Any) -> list[tuple[str, list[float], list[float]]]:
    """Labels and coordinates of lines."""
    return [(e.get_label(), list(e.get_xdata()), list(e.get_ydata())) for e in drawn.lines]


def draw_all() -> None:
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import

    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


@pytest.fixture
def closed() -> Iterator[None]:
    """Every plot can be drawn without a warning, and is closed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_all()


@cache
def legs() -> tuple[Retriever, Retriever]:
    words = FixedRetriever([("a", 9.0), ("b", 4.0), ("年假", 3.0)], name="词")
    return words, FixedRetriever([("年假", 0.9), ("a", 0.8), ("c", 0.1)], name="$meaning$")


def fused() -> Retriever:
    words, meaning = legs()
    return branches(words=words, meaning=meaning) >> RRF() >> Top(3)


def explained() -> Explanation:
    return fused().explain("annual leave")


@cache
def experiment() -> Experiment:
    words, meaning = legs()
    judged = Judgements(
        {"q1": "leave", "q2": "年假"}, {"q1": {"a": 1, "c": 1}, "q2": {"年假": 1}}, Level.NODE
    )
    found = {"words": words, "meaning": meaning, "both": fused()}
    return Experiment(found, judged, measures=["RR", "R@3"]).run(progress=False)
