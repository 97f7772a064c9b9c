"""Tuning from labels: its verdict and its gain."""

from pathlib import Path

import numpy as np
import pytest

from llama_retrieval_ext import RRF, BM25Retriever, Top, WeightedSum, branches
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.tuning import Tuning
from llama_retrieval_ext.testing.corpus import sample_nodes
from tests.evaluation.conftest import JUDGED, QUERIES, Noisy, tuned


@pytest.mark.slow
def test_a_leg_that_is_wrong_loses_its_weight_and_each_leg_runs_once() -> None:
    good, bad = Noisy("good", lambda n: n % 10 > 0), Noisy("bad", lambda n: False)
    pipeline = branches(good=good, bad=bad) >> WeightedSum() >> Top(5)
    result = tuned(pipeline)
    assert (good.calls, bad.calls) == (len(QUERIES), len(QUERIES))
    assert result.is_changed
    assert result.gain is not None
    assert result.gain.is_significant
    assert result.retriever.retrieve("question 1")[0].node_id == "n1"
    assert pipeline.retrieve("question 1")[0].node_id != "n1"
    assert repr(result.retriever).endswith(">> Top(k=5)")
    assert result.best_leg == "good"
    assert "Fusion is not worth it" in result.verdict or "not clear" in result.verdict
    assert all(choice.why for choice in result.choices)


def test_few_labels_change_nothing_and_send_no_query() -> None:
    good, bad = Noisy("good", lambda n: True), Noisy("bad", lambda n: False)
    pipeline = branches(good=good, bad=bad) >> RRF()
    result = tuned(pipeline, JUDGED.only(list(QUERIES)[:19]))
    assert result.retriever is pipeline
    assert result.verdict.startswith("Nothing changed: 19 labelled questions carry no setting")
    assert "at least 20" in result.verdict
    assert good.calls == 0


@pytest.mark.parametrize(("seed", "is_confirmed"), [(0, True), (5, False), (8, False)])
@pytest.mark.slow
def test_a_setting_that_held_out_questions_do_not_confirm_is_not_changed(
    seed: int, is_confirmed: bool
) -> None:
    one_is_right, other_is_right = np.random.default_rng(seed).random((2, 24)) < [[0.6], [0.5]]
    one = Noisy("one", lambda n: bool(one_is_right[n]))
    other = Noisy("other", lambda n: bool(other_is_right[n]))
    pipeline = branches(one=one, other=other) >> WeightedSum()
    result = tuned(pipeline)
    assert result.gain is not None
    assert result.gain.is_significant is is_confirmed
    assert result.is_changed is is_confirmed
    assert (result.retriever is pipeline) is not is_confirmed
    assert result.verdict.startswith("Changed " if is_confirmed else "Nothing changed.")
    assert is_confirmed or any("was better on all" in choice.why for choice in result.choices)


def test_a_tuned_pipeline_is_written_as_a_preset(tmp_path: Path) -> None:
    pytest.importorskip("llama_retrieval_ext.config.yaml")
    keyword = BM25Retriever(sample_nodes())
    result = Tuning(keyword >> Top(3), "RR", JUDGED)
    with pytest.raises(ConfigurationError, match="live="):
        result.to_yaml()
    text = result.to_yaml(tmp_path / "tuned.yaml", live={"keyword": keyword})
    assert (tmp_path / "tuned.yaml").read_text() == text
    assert "ref: keyword" in text
