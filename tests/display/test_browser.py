"""Every view in a real browser: it shows something, fits, can be read, and runs no script."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.display.views import every_view

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]
WIDTH, HEIGHT = 1000, 10_000
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--enable-logging=stderr", f"--window-size={WIDTH},{HEIGHT}"),
)
# Of each view its box, the contrast of its text, and which texts are wider than their boxes.
MEASURE = """
const numbers = c => c.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = c => numbers(c).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 :
  ((v + .055) / 1.055) ** 2.4).reduce((sum, v, n) => sum + v * [.2126, .7152, .0722][n], 0);
const contrast = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
const views = {};
for (const section of document.querySelectorAll("section")) {
  const view = section.querySelector(".lre"), box = view.getBoundingClientRect();
  const ground = light(getComputedStyle(view).backgroundColor);
  const texts = [...view.querySelectorAll("b,h3,h4,p,span,small,td,th,summary")].filter(
    each => each.textContent.trim() && each.getClientRects().length);
  views[section.dataset.name] = {
    top: box.top, height: box.height, right: Math.max(...[...view.querySelectorAll("*")].map(
      each => each.getBoundingClientRect().right)),
    ground, contrast: Math.min(99, ...texts.map(
      each => contrast(light(getComputedStyle(each).color), ground))),
    cut: [...view.querySelectorAll(".box")].filter(each =>
      each.scrollWidth > each.clientWidth).map(each => each.textContent),
  };
}
document.querySelector("#measured").textContent = JSON.stringify(views);
"""


class Shown:
    """A page with every view, and some of them in a notebook of the other theme."""

    def __init__(self, folder: Path, theme: str) -> None:
        page, self.picture = folder / "views.html", folder / "views.png"
        self.dark = dict.fromkeys(every_view(), theme == "dark")
        sections = [_section(name, html) for name, html in every_view().items()]
        other = f"data-jp-theme-light={str(theme == 'dark').lower()}"
        for name in ("retriever", "explanation"):
            self.dark[f"{name} in Jupyter"] = theme == "light"
            sections.append(_section(f"{name} in Jupyter", every_view()[name], other))
        page.write_text(
            f'<!doctype html><meta charset="utf-8"><title>views</title><body>{"".join(sections)}'
            f'<script type="application/json" id="measured"></script><script>{MEASURE}</script>',
            encoding="utf-8",
        )
        options = (
            f"--user-data-dir={folder / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if theme == 'dark' else 1}",
            *(f"--screenshot={self.picture}", "--dump-dom", page.as_uri()),
        )
        command = [str(CHROMIUM), *OPTIONS, *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        self.console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
        measured = re.search(r'id="measured">(.*?)</script>', ended.stdout)
        assert measured
        self.views: dict[str, Any] = json.loads(unescape(measured[1]))


def _section(name: str, html: str, attributes: str = "") -> str:
    return f'<section data-name="{name}" {attributes}>{html}</section>'


@pytest.fixture(scope="module", params=["light", "dark"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return Shown(tmp_path_factory.mktemp("views"), request.param)


def test_nothing_is_run_and_nothing_fails(shown: Shown) -> None:
    assert shown.console == []


def test_every_view_fits_and_can_be_read_in_the_theme(shown: Shown) -> None:
    assert shown.views.keys() == shown.dark.keys()
    for name, view in shown.views.items():
        assert (view["ground"] < 0.1) is shown.dark[name], name
        assert view["contrast"] > 3, name
        assert view["right"] <= WIDTH, name
        assert view["cut"] == [], name


def test_no_view_is_empty(shown: Shown) -> None:
    image = Image.open(shown.picture).convert("L")
    for name, view in shown.views.items():
        top, bottom = int(view["top"]), int(view["top"] + view["height"])
        assert bottom <= HEIGHT, name
        seen = image.crop((0, top, WIDTH, bottom)).histogram()
        ground = max(range(256), key=seen.__getitem__)
        drawn = sum(n for tone, n in enumerate(seen) if abs(tone - ground) > 60)
        assert drawn / sum(seen) > 0.002, name
