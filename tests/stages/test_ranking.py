"""Rules of ranking as data: values of boosts, places of pins, YAML by line."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import TextNode

from llama_retrieval_ext import Hit, WeightedSum
from llama_retrieval_ext.errors import ConfigFileError, ConfigurationError
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.stages.ranking import (
    Block,
    Boost,
    Boosts,
    Pin,
    Ranking,
    boosted,
    least_share,
    placed,
)
from llama_retrieval_ext.testing import FakeRetriever
from tests.cases import cases

TODAY = datetime.now(UTC)
FULL = Ranking(
    boosts=[
        Boost(number="votes", weight=0.1, curve="saturation", scale=50.5),
        Boost(where="lang=en and (year>=2020 or draft=yes)", weight=-1),
        Boost(date="day", weight=0.5, half_life=7),
    ],
    pins=[Pin("leave", position=2, query="annual leave"), Pin("docs/a.md")],
    blocks=[Block("old"), Block(where="draft=yes")],
    synonyms=["laptop = notebook = 笔记本", "CI -> continuous integration"],
)
YAML = """
boosts:
  - {number: votes, weight: 0.1, curve: saturation, scale: 50.5}
  - where: lang=en and (year>=2020 or draft=yes)
    weight: -1
  - {date: day, weight: 0.5, half_life: 7}
pins:
  - {document: leave, position: 2, query: annual leave}
  - document: docs/a.md
blocks:
  - document: old
  - where: draft=yes
synonyms:
  - laptop = notebook = 笔记本
  - CI -> continuous integration
"""


@cases(
    ("boost", "metadata", "value"),
    [
        (Boost(number="n", weight=1, scale=999), {"n": 999}, 1.0),
        (Boost(number="n", weight=1, scale=999), {"n": 0.5}, math.log(1.5) / math.log(1000)),
        (Boost(number="n", weight=1, curve="saturation", scale=3), {"n": 1}, 0.25),
        *(
            (Boost(number="n", weight=1), {"n": wrong}, 0.0)
            for wrong in (None, "7", -1, math.nan, math.inf, True, [1])
        ),
        (Boost(where="k in (a, b)", weight=1), {"k": "b"}, 1.0),
        (Boost(where="k=a", weight=1), {"k": ["a"]}, 0.0),
        (Boost(where="not k=a", weight=1), {}, 1.0),
        (Boost(date="d", weight=1), {"d": "soon"}, 0.0),
        (Boost(date="d", weight=1), {}, 0.0),
    ],
)
def test_values_of_boosts(boost: Boost, metadata: dict[str, object], value: float) -> None:
    assert boost.value(metadata) == pytest.approx(value, abs=1e-4)


def test_a_date_counts_half_after_its_half_life() -> None:
    day = datetime.now(UTC) - timedelta(days=30)
    assert Boost(date="d", weight=1).value({"d": day.isoformat()}) == pytest.approx(0.5, abs=1e-4)


def hit(node_id: str, score: float, **metadata: object) -> Hit:
    return Hit(node=TextNode(id_=node_id, text="t", metadata=metadata), score=score, source="s")


def test_boosts_are_contributions_that_sum_to_the_score() -> None:
    boosts = (Boost(where="k=a", weight=0.5), Boost(number="n", weight=-0.25, scale=1))
    found = boosted(
        [hit("x", 2.0), hit("y", 1.6, k="a", n=1), hit("z", -1.0, k="a")],
        [(None, boost) for boost in boosts],
    )
    assert [(each.node_id, score_of(each)) for each in found] == [
        ("x", 2.0),
        ("y", pytest.approx(2.0)),
        ("z", -0.5),
    ]
    assert [(part.leg, part.share) for part in found[1].contributions] == [
        ("s", 1.6),
        ("boost k=a", 0.8),
        ("boost n", pytest.approx(-0.4)),
    ]
    stage = FakeRetriever([("x", 2.0, "t"), ("y", 1.5, "t", {"k": "a"})]) >> Boosts(boosts[:1])
    assert node_ids(stage.search("q")) == ["y", "x"]


SCORES = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 0.5, 1.0, 3.0]), max_size=8)
PINS = st.lists(st.tuples(st.integers(1, 12), st.sampled_from("abcdefxyz")), max_size=5)


@given(SCORES, PINS)
def test_pinned_hits_have_their_places_and_others_their_order(
    scores: list[float], pins: list[tuple[int, str]]
) -> None:
    hits = [hit(name, score) for name, score in zip("abcdefgh", sorted(scores)[::-1], strict=False)]
    known = {each.node_id: each for each in hits}
    pinned = [(at, known.get(name, Hit(node=TextNode(id_=name)))) for at, name in pins]
    found = placed(hits, pinned)
    first: dict[str, int] = {}
    for at, name in sorted(pins, key=lambda pin: pin[0]):
        first.setdefault(name, at)
    expected = [name for name in known if name not in first]
    for name, at in first.items():
        expected.insert(at - 1, name)
    assert node_ids(found) == expected
    order = [(-score_of(each), each.node_id) for each in found]
    assert order == sorted(order)  # sorting keeps every place
    for each in found:
        if each.contributions:
            shares = math.fsum(part.share for part in each.contributions)
            assert shares == pytest.approx(score_of(each))
        assert (each.node_id in first) == any(part.leg == "pin" for part in each.contributions)


BOOSTS = st.builds(
    lambda kind, weight: Boost(weight=weight, **kind),
    st.sampled_from([{"number": "n"}, {"number": "n", "curve": "saturation"}, {"where": "n>9"}]),
    st.floats(-1, 3).filter(bool),
)
NUMBERED = st.lists(st.tuples(st.floats(-2, 2), st.sampled_from([-1, 0, 10, 1e4])), min_size=1)


@given(NUMBERED, st.lists(BOOSTS, min_size=1, max_size=3), st.integers(1, 5))
def test_boosts_of_the_hits_that_may_come_among_the_first_are_those_of_all(
    numbered: list[tuple[float, float]], boosts: list[Boost], top_k: int
) -> None:
    nodes = {
        str(at): TextNode(id_=str(at), metadata={"n": n}) for at, (_, n) in enumerate(numbered)
    }
    scores = [(str(at), score) for at, (score, _) in enumerate(numbered)]
    share = least_share(boosts, lambda _: max(0.0, *(n for _, n in numbered)))
    cut, full = (
        [
            Hit(node=nodes[fused.node_id], score=fused.score)
            for fused in WeightedSum(normalise=Normalisation.NONE).fuse_ids(
                {"leg": scores}, weights={"leg": 1.0}, cutoff=cutoff
            )
        ]
        for cutoff in ((top_k, share), None)
    )
    rules = [(None, boost) for boost in boosts]
    assert boosted(cut, rules, top_k=top_k) == boosted(full, rules, top_k=top_k)


def test_yaml_and_records_have_the_same_rules(tmp_path: Path) -> None:
    file = tmp_path / "ranking.yaml"
    file.write_text(YAML, encoding="utf-8")
    assert Ranking.load(file) == FULL == Ranking.from_dict(FULL.to_dict())
    assert Ranking().to_dict() == {}
    assert FULL.expansions == (
        ("laptop", ("notebook", "笔记本")),
        ("notebook", ("laptop", "笔记本")),
        ("笔记本", ("laptop", "notebook")),
        ("CI", ("continuous integration",)),
    )


@cases(
    ("text", "problem"),
    [
        ("pins:\n- {document: a}\n- {documnt: b}", "line 3, column 4: a pin has no field"),
        ("boosts:\n- {number: n, weight: -2}", "line 2, column 3: Boost(): weight must be"),
        ("boosts:\n- {number: n, date: d, weight: 1}", "line 2, column 3: a boost has one of"),
        ("boosts:\n\n- {where: 'lang', weight: 1}", "line 3, column 3: where 'lang' cannot"),
        ("boosts:\n- {number: n}", "line 2, column 3: Boost(): missing a"),
        ("blocks:\n- {}", "line 2, column 3: document or where must be"),
        ("pins:\n- {document: a, position: 0}", "line 2, column 3: Pin(): position must"),
        ("synonyms:\n- laptop", "line 2, column 3: synonyms are words with ="),
        ("synonyms:\n- a = b -> c", "line 2, column 3: synonyms are words with ="),
        ("synonyms:\n- 7", "line 2, column 3: "),
        ("boost: []", "line 1, column 1: a ranking has no field 'boost'; did you mean 'boosts'?"),
        ("pins: 3", "line 1, column 7: pins is a list"),
        ("", "the text is empty"),
    ],
)
def test_problems_of_yaml_name_their_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigFileError) as raised:
        Ranking.from_yaml(text, file="r.yaml")
    assert str(raised.value).startswith("r.yaml, line ")
    assert problem in str(raised.value)


def test_a_missing_file_and_wrong_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="cannot be read"):
        Ranking.load(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="pins"):
        Ranking(pins=["leave"])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="not both"):
        Block("a", where="b=c")
