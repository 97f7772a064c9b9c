"""Views of explanations: text, HTML, rich console."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from llama_retrieval_ext.display.html import N_COLOURS, Markup, arrow, chip, page, table, tag
from llama_retrieval_ext.display.results import (
    document_titles,
    hit_cards,
    hit_score,
    in_leg,
    leg_colours,
    notes_html,
    nothing_found,
    result_summary,
)
from llama_retrieval_ext.pipeline.explanation import (
    Explanation,
    HitAccount,
    StageRank,
    StageRanking,
)
from llama_retrieval_ext.trace import Trace
from llama_retrieval_ext.wording import counted, short

# Limits of hits, stages and steps, and of the characters of names, titles and texts.
_HITS: Final = 20
_PAIRS: Final = 40
_CARDS: Final = 10
_STAGES: Final = 8
_STEPS: Final = 40
_NAME: Final = 60
_TITLE: Final = 40
_TEXT: Final = 120
# Notes of a step that are shown, with their labels.
_NOTES: Final = {
    "pushed_down": "pushed down",
    "cache_hits": "from cache",
    "engine": "engine",
    "weights": "weights",
    "entities": "entities",
}


def explanation_text(explanation: Explanation) -> str:
    """Return an explanation as text: the executed steps, and the account of each hit."""
    steps = (
        f"  {'  ' * depth}{_step_line(step)}"
        for depth, step in explanation.recorded.walk(folded=True)
    )
    titles = document_titles(explanation.hits)
    hits = (
        line for account in explanation.accounts[:_HITS] for line in _account_lines(account, titles)
    )
    hints = (f"  hint: {hint}" for hint in explanation.hints)
    return "\n".join([f"Explanation({result_summary(explanation)})", *steps, *hits, *hints])


def explanation_console(explanation: Explanation) -> RenderableType:
    """Return an explanation for a rich console; its text is not parsed as markup."""
    return Text(explanation_text(explanation))


def explanation_html(explanation: Explanation) -> str:
    """Return an explanation as HTML: a waterfall of times, ranks by stage, and one card per hit."""
    accounts = explanation.accounts[:_CARDS]
    cards = hit_cards(
        explanation.hits[:_CARDS],
        query=explanation.query,
        more=[list(map(chip, _account_facts(account))) for account in accounts],
    )
    return page(
        tag("h3", result_summary(explanation)),
        notes_html(explanation),
        *(
            [tag("h4", "Why each hit ranks where it does"), cards]
            if accounts
            else [nothing_found()]
        ),
        _section("Steps", _waterfall(explanation)),
        *_rank_changes(explanation),
    )


def _section(title: str, *contents: Markup) -> Markup:
    """Return a part of a page that is folded at first."""
    return tag("details", tag("summary", title), *contents)


def _step_line(step: Trace) -> str:
    facts = [
        *([step.took] if step.took else []),
        *([] if step.count is None else [counted(step.count, "hit")]),
        *([] if step.error is None else [short(step.error, 2 * _NAME)]),
        *_notes(step),
    ]
    return f"{short(step.name, _NAME)}: {', '.join(facts)}"


def _notes(step: Trace) -> Iterator[str]:
    for key, words in _NOTES.items():
        note = step.notes.get(key)
        if note:
            values = note if isinstance(note, list) else [note]
            yield f"{words}: {short('; '.join(map(str, values)), 2 * _NAME)}"
    merged = step.notes.get("merged")
    if isinstance(merged, dict):
        yield f"merged: {len(merged)}"


def _account_lines(account: HitAccount, titles: Mapping[str, str]) -> Iterator[str]:
    hit = account.hit
    yield f"  {account.rank}. {hit_score(hit)}  {titles[hit.node_id]}  {short(hit.text)!r}"
    yield from (f"       {in_leg(part, hit.score)}" for part in hit.contributions)
    yield from (f"       {line}" for line in _account_facts(account))
    if hit.path:
        yield f"       path: {short(hit.path, 2 * _NAME)}"
    if hit.proof:
        yield f"       proof: {short('; '.join(map(str, hit.proof)), 2 * _NAME)}"


def _account_facts(account: HitAccount) -> Iterator[str]:
    for before, after in account.rescored:
        if (before.rank, before.score) != (after.rank, after.score):
            yield f"{short(after.stage, _TITLE)}: {_stood(before)} → {_stood(after)}"
    for name, share in account.fields.items():
        words = short(", ".join(map(str, share["words"])), _NAME)  # type: ignore[call-overload]  # a list
        yield f"{name}: {share['share']:.0%} of the keyword score ({words})"
    if account.merged:
        yield f"stands for {short(', '.join(account.merged), _NAME)}"
    yield from (f"passes {short(text, 2 * _NAME)}" for text in account.filters)


def _stood(at: StageRank) -> str:
    return f"#{at.rank}" if at.score is None else f"#{at.rank} ({at.score:.4g})"


def _waterfall(explanation: Explanation) -> Markup:
    """Return each step with a bar from its start to its end, in the colour of its leg."""
    trace = explanation.recorded
    steps = list(trace.walk(folded=True))
    ends = (step.started - trace.started + (step.duration_s or 0.0) for _, step in steps)
    scale = _TimeScale(trace.started, max(trace.duration_s or 0.0, *ends, 1e-9))
    titles = document_titles(explanation.hits)
    legs, colour, cells = leg_colours(explanation.hits), (-1, 0), list[Markup]()
    for depth, step in steps[:_STEPS]:
        if step.name in legs:
            colour = depth, legs[step.name]
        elif depth <= colour[0]:
            colour = -1, 0  # the steps of this leg have ended
        css_class = f"c{colour[1] % N_COLOURS}" if colour[0] >= 0 else "neutral"
        cells += _step_cells(step, depth, scale, css_class)
        cells += _step_facts(step, depth, titles)
    more = [tag("small", f"… {len(steps) - _STEPS} more", class_="wide")]
    return tag("div", *cells, *(more if len(steps) > _STEPS else []), class_="steps")


class _TimeScale(NamedTuple):
    """Start of a trace and its whole duration, in seconds."""

    started: float
    duration_s: float


def _indent(depth: int) -> str:
    return f"padding-left:{1.1 * min(depth, 10):.1f}em"


def _step_cells(step: Trace, depth: int, scale: _TimeScale, colour: str) -> Iterator[Markup]:
    start = 100 * max(0.0, step.started - scale.started) / scale.duration_s
    width = 100 * (step.duration_s or 0.0) / scale.duration_s
    bar = tag("i", class_=colour, style=f"left:{min(start, 99):.2f}%;width:{width:.2f}%")
    full = short(step.name, 3 * _NAME)
    yield tag("span", short(step.name, _NAME), class_="name", style=_indent(depth), title=full)
    yield tag("span", bar, class_="track")
    yield tag("span", step.took, class_="num")
    yield tag("span", "" if step.count is None else counted(step.count, "hit"), class_="num dim")


def _step_facts(step: Trace, depth: int, titles: Mapping[str, str]) -> Iterator[Markup]:
    """Yield the notes of a step, the documents that it found first, and its error."""
    facts = [chip(note) for note in _notes(step)]
    top = step.notes.get("top")
    if isinstance(top, list) and not step.children:
        shown = [titles[node_id] for node_id in map(str, top) if node_id in titles]
        if shown:
            facts.append(chip(f"first: {short(', '.join(shown), 2 * _NAME)}"))
    if step.error is not None:
        facts.append(tag("span", short(step.error, 3 * _NAME), class_="bad"))
    if facts:
        yield tag("div", *facts, class_="chips wide", style=_indent(depth))


def _rank_changes(explanation: Explanation) -> list[Markup]:
    """Return a table with the rank of each hit after each stage; empty for a single stage."""
    stages = explanation.stages[-_STAGES:]
    if len(stages) <= 1 or not explanation.hits:
        return []
    documents = document_titles(explanation.hits)
    rows = (
        (
            short(documents[hit.node_id], _TITLE),
            *(_stage_cell(stage, hit.node_id) for stage in stages),
        )
        for hit in explanation.hits[:_HITS]
    )
    titles = [short(stage.name, _TITLE // 2) for stage in stages]
    return [_section("Ranks after each stage", table(("document", *titles), rows))]


def _stage_cell(stage: StageRanking, node_id: str) -> Markup:
    now = stage.ranks.get(node_id)
    if now is None:
        return tag("span", "—", class_="dim")
    before = None if stage.before is None else stage.before.ranks.get(node_id)
    score = "" if now.score is None else f"{now.score:.3g}"
    moved = [] if before is None else [arrow(before.rank - now.rank)]
    return tag("span", f"#{now.rank} ", *moved, " ", tag("small", score), class_="cell")


def _rank(rank: int | None) -> str:
    return "—" if rank is None else f"#{rank}"
