"""The one parser of language models' answers: removes thoughts, tags and fences, reads JSON.

What is read in half counts as unreadable: JSON that ends before its brackets do has no value.
"""
# ruff: noqa: RUF001 - curly apostrophes on purpose

import json
import re
from collections.abc import Iterator
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

# Tags of DeepSeek, Qwen, Claude and others; Magistral; Kimi; Command; gpt-oss's channels.
_THINKING: Final = re.compile(
    r"<\s{0,9}(?:(?P<close>/)\s{0,9})?(?:\w{1,20}:)?"
    r"(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|antthinking)\b[^<>]{0,200}>"
    r"|\[(?P<close2>/)?THINK\]"
    r"|◁(?P<close3>/)?think▷"
    r"|<\|(?:START|(?P<close4>END))_THINKING\|>"
    r"|<\|channel\|>(?:analysis|commentary|(?P<close5>final))",
    re.IGNORECASE,
)
_WRAPPING: Final = re.compile(
    r"<\|[\w ]{1,30}\|>"
    r"|</?(?:s|answer|final_answer|response|output|result|queries|query|question|passage"
    r"|document)>",
    re.IGNORECASE,
)
_FENCED: Final = re.compile(
    r"^[ \t]*(?:```|~~~)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.MULTILINE | re.DOTALL
)
_HELPING = (
    r"(?:help|assist|answer|provide|generate|create|write|rewrite|rephrase|fulfil|comply|do that)"
)
_REFUSAL: Final = re.compile(
    r"\W*(?:"
    r"(?:(?:i['’]?m|i am|we are) )?(?:very |so |really )?sorry\b|(?:i apologi[sz]e|my apologies)\b"
    rf"|(?:i['’]?m|i am) (?:unable|not able) to {_HELPING}"
    rf"|i (?:cannot|can['’]?t|can not|could not|won['’]?t) {_HELPING}"
    r"|i (?:do not|don['’]?t) have (?:access|enough|any information|the ability|information)\b"
    r"|as an? (?:ai|artificial|(?:large )?language model)\b"
    r"|(?:很|非常|十分)?(?:抱歉|对不起|遗憾)|我(?:无法|不能)(?:回答|提供|生成|帮)"
    r"|作为(?:一个|一名|一款)?(?:AI|人工智能|语言模型)"
    r")",
    re.IGNORECASE,
)


def without_thinking(answer: str) -> str:
    """Return the answer of a reasoning model without its thoughts, in linear time.

    If a closing tag is missing, the rest is removed: the answer was cut off inside a thought. If an
    opening tag is missing, the text before is removed: some chat templates drop it.

    Examples:
        >>> without_thinking("<think>Leave, maybe holidays?</think>annual leave")
        'annual leave'
        >>> without_thinking("Leave, maybe holidays?</think>annual leave")
        'annual leave'

    """
    kept: list[str] = []
    start, inside = 0, False
    for tag in _THINKING.finditer(answer):
        if any(tag.groups()):
            if not inside:
                kept.clear()
            start, inside = tag.end(), False
        elif not inside:
            kept.append(answer[start : tag.start()])
            inside = True
    return "".join(kept if inside else [*kept, answer[start:]])


def cleaned(answer: str) -> str:
    """Return an answer without thoughts, control tokens and the tags that some models add.

    Examples:
        >>> cleaned("<think>hm</think><answer>annual leave</answer><|im_end|>")
        'annual leave'

    """
    return _WRAPPING.sub("\n", without_thinking(answer)).strip()


def unfenced(text: str) -> str:
    r"""Return the content of code fences, closed or not; the text itself if there are none.

    Examples:
        >>> unfenced("Here you are:\n```text\nannual leave\n```\nAnything else?")
        'annual leave'

    """
    inside = [part.strip() for part in _FENCED.findall(text)]
    return "\n".join(inside) if any(inside) else text.replace("```", "").strip()


def is_refusal(text: str) -> bool:
    """Return whether a text begins like a model's refusal.

    Examples:
        >>> is_refusal("I'm sorry, but I can't help with that."), is_refusal("Sick leave")
        (True, False)

    """
    return _REFUSAL.match(text) is not None


def has_words(text: str) -> bool:
    """Return whether a text has a letter: ``0`` is no usable answer."""
    return any(character.isalpha() for character in text)


# JSON at the beginning of a line: brackets also stand in sentences. \s* takes quadratic time.
_LINE: Final = re.compile(r"^[^\S\n]*(?=[\[{])", re.MULTILINE)
_SIGN: Final = re.compile(r"\\.|[\[\]{}\"]", re.DOTALL)
_CLOSED_BY: Final = {"[": "]", "{": "}"}
# An apostrophe, which json-repair takes for the end of a string in single quotes, and its stand-in.
_APOSTROPHE: Final = re.compile(r"(?<=\w)'(?=\w)")
_STAND_IN: Final = "\ue000"
# What is repaired: json-repair takes quadratic time or worse in brackets, quotes and nesting.
_MOST_REPAIRED: Final = 10_000
_MOST_SIGNS: Final = 2_000
_DEEPEST_REPAIRED: Final = 30
# Values in an answer, which are validated one by one.
_MOST_VALUES: Final = 500
# Keys of the query in answers that also have its kind or reason.
_NAMES: Final = frozenset({"query", "queries", "question", "questions", "text"})
_DEEPEST: Final = 100
M = TypeVar("M", bound=BaseModel)
_LONGEST_TAG: Final = 24


def is_cut_off(text: str) -> bool:
    r"""Return whether a bracket in a text is never closed.

    Examples:
        >>> is_cut_off('["annual leave", "days o'), is_cut_off('["annual leave"]\nDone')
        (True, False)

    """
    return _spans(text) is None


def texts_in_json(text: str) -> list[str] | None:
    r"""Return the texts in the JSON of an answer, in order, without keys; None without JSON.

    The JSON may stand between other lines, be several values, or be malformed, such as with single
    quotes; there are no texts in JSON that was cut off. Of an object with a ``query`` only that is
    returned.

    Examples:
        >>> texts_in_json('Sure:\n{"queries": ["annual leave", {"query": "days off", "id": "b"}]}')
        ['annual leave', 'days off']
        >>> texts_in_json('["annual leave", "days o'), texts_in_json("annual leave")
        ([], None)

    """
    start = _LINE.search(text)
    if start is None:
        return None
    text = text[start.end() :]
    spans = _spans(text)
    if spans is None:
        return []
    end = spans[0][1]
    for first, last in spans[1:]:  # remarks may follow
        if text[end:first].strip(", \t\n"):
            break
        end = last
    values = _values(text, [span for span in spans if span[1] <= end], repairs=True)
    texts = [part.strip() for value in values for part in _texts(value, _DEEPEST)]
    return [] if None in values else list(filter(None, texts)) or None


def parse_structured(answer: str, output_cls: type[M]) -> tuple[M | None, str]:
    r"""Return the one valid JSON value in an answer, or why there is none.

    Fences, reasoning and text around the JSON are ignored; a bare list becomes the only list field
    of the class. Malformed JSON is repaired, except if it was cut off.

    Examples:
        >>> class Facts(BaseModel):
        ...     facts: list[str]
        >>> parse_structured('<think>{}</think>Here:\n```json\n["leave"]\n```', Facts)[0]
        Facts(facts=['leave'])
        >>> parse_structured("{'facts': ['leave',]}", Facts)[0]
        Facts(facts=['leave'])
        >>> parse_structured("none", Facts)
        (None, 'there is no JSON')

    """
    text = unfenced(cleaned(answer))
    spans = _spans(text)
    if spans is None:
        return None, "it ends before its JSON does"
    if not 0 < len(spans) <= _MOST_VALUES:
        return None, f"it has more than {_MOST_VALUES} values" if spans else "there is no JSON"
    objects, problem = _validated(_values(text, spans, repairs=False), output_cls)
    if not objects:
        objects, problem = _validated(_values(text, spans, repairs=True), output_cls)
    if len(objects) > 1:
        return None, f"it has {len(objects)} different answers"
    return (objects[0], "") if objects else (None, problem)


def _validated(values: list[object], output_cls: type[M]) -> tuple[list[M], str]:
    """Return the different objects that values are, and what the last of the others lacks."""
    objects: list[M] = []
    problem: ValidationError | None = None
    for value in values:
        if isinstance(value, list) and len(output_cls.model_fields) == 1:
            value = {next(iter(output_cls.model_fields)): value}  # noqa: PLW2901 - the same value
        try:
            validated = output_cls.model_validate(value)
        except ValidationError as error:
            problem = error
        else:
            objects += [] if validated in objects else [validated]
    errors = problem.errors()[:3] if problem else ()
    return objects, "; ".join(f"{error['loc']}: {error['msg']}" for error in errors)


def _spans(text: str) -> list[tuple[int, int]] | None:
    """Return where the outermost brackets of a text begin and end; None if one never ends.

    Brackets in strings do not count, unless a string itself never ends.
    """
    spans, is_open = _brackets(text, skips_strings=True)
    if is_open and text.rstrip().endswith(("]", "}")):
        spans, is_open = _brackets(text, skips_strings=False)
    return None if is_open else spans


def _brackets(text: str, *, skips_strings: bool) -> tuple[list[tuple[int, int]], bool]:
    """Return the parts of a text in outermost brackets, and whether one stays open."""
    spans: list[tuple[int, int]] = []
    opened: list[re.Match[str]] = []
    is_string = False
    for sign in _SIGN.finditer(text):
        if sign[0] == '"':
            is_string = skips_strings and bool(opened) and not is_string
        elif sign[0] in _CLOSED_BY and not is_string:
            opened.append(sign)
        elif sign[0] in _CLOSED_BY.values() and opened and not is_string:
            last = opened.pop()
            if opened and sign[0] != _CLOSED_BY[last[0]]:
                last = opened.pop()  # models forget to close one
            spans += [] if opened else [(last.start(), sign.end())]
    return spans, bool(opened)


def _values(text: str, spans: list[tuple[int, int]], *, repairs: bool) -> list[object]:
    """Return the values of parts of a text that are JSON; None for what cannot be repaired."""
    values: list[object] = []
    room = _MOST_REPAIRED
    for start, end in spans:
        try:
            values.append(json.loads(text[start:end]))
        except (ValueError, RecursionError):
            if repairs:
                room -= end - start
                values.append(None if room < 0 else _repaired(text[start:end]))
    return values


def _repaired(text: str) -> object:
    """Return the value of malformed JSON; None if that takes long, or nothing is left of it."""
    depth = 0
    for count, sign in enumerate(_SIGN.finditer(text)):
        depth += (sign[0] in "[{") - (sign[0] in "]}")
        if count == _MOST_SIGNS or depth > _DEEPEST_REPAIRED:
            return None
    from json_repair import repair_json  # noqa: PLC0415 - a search imports this module, not that

    marked = _APOSTROPHE.sub(_STAND_IN, text)
    try:
        return json.loads(repair_json(marked, ensure_ascii=False).replace(_STAND_IN, "'"))
    except (ValueError, RecursionError):
        return None


def _texts(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, dict):
        named = [part for name, part in value.items() if name.lower() in _NAMES]
        for part in named or value.values():
            yield from _texts(part, depth - 1)
    elif depth and isinstance(value, list):
        for part in value:
            yield from _texts(part, depth - 1)


def visible(answer: str) -> str:
    """Return an unfinished answer without reasoning and without a possible incomplete tag."""
    text = cleaned(answer)
    for sign in "<[◁":
        start = text.rfind(sign)
        tag = text[start:] if start >= 0 else ""
        if 0 < len(tag) < _LONGEST_TAG and not set(tag) & set(">]▷"):
            text = text[:start].rstrip()
    return text
