"""Axes of plots: fonts for any script."""

import pytest

from llama_retrieval_ext.evaluation import axes, plot_ranks
from tests.evaluation.drawings import DRAWING, closed, draw_all, explained

__all__ = ["closed"]

pytestmark = DRAWING


def test_letters_that_no_font_has_are_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axes, "_CHINESE", ())
    axes._fonts.cache_clear()
    try:
        labels = [label.get_text() for label in plot_ranks(explained()).texts]
        assert "\N{WHITE SQUARE}" * 2 in labels
        assert "in no font" in plot_ranks(explained()).get_title(loc="right")
        draw_all()
    finally:
        axes._fonts.cache_clear()
