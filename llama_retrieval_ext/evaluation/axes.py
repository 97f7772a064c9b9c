"""Axes of plots: colours that are safe for colour-blind readers, fonts for any script."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from llama_retrieval_ext.errors import optional_module

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours by Okabe and Ito, "Color Universal Design", 2008; without yellow, too pale on white, and
# with grey for black, which a dark theme hides.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a8f96")
# Of texts and lines: contrast of about 4 on white and on black.
INK: Final = "#7d828a"
# Of the labels at the vertical axis: a shade darker, which the eye does not see. IPython puts a box
# behind a transparent figure whose tick labels are all lighter, or all darker, than a middle grey;
# these two are at either side of it.
_INK_Y: Final = "#7a7f87"
# Of texts on a coloured ground: one is readable on pale, the other on dark.
DARK: Final = "#1f2328"
PALE: Final = "#ffffff"
_MARKERS: Final = "osD^vPX"
# Fonts with Chinese characters on Linux, Windows and macOS.
_CHINESE: Final = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Heiti TC",
    "Arial Unicode MS",
    "Droid Sans Fallback",
)
_NORMAL: Final = 400
_MISSING: Final = "\N{WHITE SQUARE}"
_NOTE: Final = f"{_MISSING}: in no font of this machine; Noto Sans CJK has Chinese"


def new_axes(axes: "Axes | None", *, width: float = 6.4, height: float = 3.6) -> "Axes":
    """Return the passed axes, or those of a new figure."""
    if axes is not None:
        return axes
    pyplot = optional_module("matplotlib.pyplot", "plotting", "notebook")
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]  # type: ignore[no-any-return]  # a module's Any


def finished(axes: "Axes", *, title: str, x: str = "", y: str = "") -> "Axes":
    """Return the axes with titles, without a frame, in fonts that cover the texts.

    The background is transparent, and texts are grey, to fit light and dark themes. A character
    that no font has is drawn as an empty square, and a note says so.
    """
    from matplotlib.text import Text  # noqa: PLC0415 - optional

    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params("x", which="both", color=INK, labelcolor=INK)
    axes.tick_params("y", which="both", color=INK, labelcolor=_INK_Y)
    for patch in (axes.patch, axes.get_figure(root=True).patch):  # type: ignore[union-attr]  # drawn
        patch.set_alpha(0)
    families, letters = _fonts()
    for text in axes.findobj(Text):
        if isinstance(text, Text):
            text.set_fontfamily(list(families))
            if text.get_color() == "black":
                text.set_color(INK)
            text.set_text(_drawable(text.get_text(), letters))
    if any(_MISSING in text.get_text() for text in axes.findobj(Text) if isinstance(text, Text)):
        axes.set_title(_NOTE, loc="right", fontsize="x-small", color=INK)
    return axes


def drawable(texts: Iterable[str]) -> list[str]:
    """Return texts with an empty square for each character that no font has."""
    letters = _fonts()[1]
    return [_drawable(text, letters) for text in texts]


def colours(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for each name."""
    return dict(zip(names, cycle(zip(COLOURS, _MARKERS, strict=True)), strict=False))


def cut(text: str, columns: int) -> str:
    """Return a text on one line of limited width; its middle is cut out if too long.

    Examples:
        >>> cut("annual leave of employees", 12), cut("中华人民共和国安全生产法#第九条", 16)
        ('annual…oyees', '中华人民…#第九条')

    """
    line = " ".join(text.split())
    if cell_len(line) > columns:
        head, tail = line, line
        while cell_len(head) > (columns - 1) * 0.6:
            head = head[:-1]
        while cell_len(head) + cell_len(tail) > columns - 1:
            tail = tail[1:]
        line = f"{head.rstrip()}…{tail.lstrip()}"
    return line.replace("$", r"\$")  # an unescaped $ starts a formula


def _drawable(text: str, letters: frozenset[int]) -> str:
    return "".join(
        letter if letter.isspace() or ord(letter) in letters else _MISSING for letter in text
    )


@cache
def _fonts() -> tuple[tuple[str, ...], frozenset[int]]:
    """Return the font families to draw with, and the characters that they cover."""
    from matplotlib import rcParams  # noqa: PLC0415 - optional
    from matplotlib.font_manager import FontProperties, findSystemFonts, fontManager  # noqa: PLC0415
    from matplotlib.ft2font import FT2Font  # noqa: PLC0415

    chinese = _chinese_font()
    if chinese is None:
        for path in set(findSystemFonts()) - {font.fname for font in fontManager.ttflist}:
            with suppress(OSError, RuntimeError):  # installed after matplotlib's scan, or broken
                fontManager.addfont(path)
        chinese = _chinese_font()
    families = (*rcParams["font.family"], *([chinese] if chinese else []))
    paths = {fontManager.findfont(FontProperties(family=[name])) for name in families}
    letters = frozenset(code for path in paths for code in FT2Font(path).get_charmap())
    return families, letters


def _chinese_font() -> str | None:
    """Return the first installed font with Chinese characters."""
    from matplotlib.font_manager import fontManager  # noqa: PLC0415

    fonts = {font.name: font for font in fontManager.ttflist}
    name = next((name for name in _CHINESE if name in fonts), None)
    if name and not any(
        font.name == name and font.weight == _NORMAL for font in fontManager.ttflist
    ):
        # Avoids matplotlib's warning that it uses another weight.
        fontManager.ttflist.append(replace(fonts[name], weight=_NORMAL))
    return name
