"""Parses answers of language models: removes thoughts, tags and fences, reads JSON."""
# ruff: noqa: RUF001 - curly apostrophes on purpose

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

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


_START: Final = re.compile(r"^[^\S\n]*(?=[\[{])", re.MULTILINE)  # \s* takes quadratic time
_OPENING: Final = re.compile(r"[\[{]")
_NEXT: Final = re.compile(r"[\s,]*(?=[\[{])")
# An apostrophe, which json-repair takes for the end of a string in single quotes, and its stand-in.
_APOSTROPHE: Final = re.compile(r"(?<=\w)'(?=\w)")
_STAND_IN: Final = "\ue000"
_SIGN: Final = re.compile(r"[\[\]{}\"']")
# What is repaired: json-repair takes quadratic time or worse in brackets, quotes and nesting.
_MOST_REPAIRED: Final = 10_000
_MOST_SIGNS: Final = 2_000
_DEEPEST_REPAIRED: Final = 30
# Brackets that begin no valid JSON; each costs time linear in the text.
_MOST_STARTS: Final = 500
# The end of JSON that was not cut off.
_CLOSING: Final = ("]", "}")
# Keys of the query in answers that also have its kind or reason.
_NAMES: Final = frozenset({"query", "queries", "question", "questions", "text"})
_DEEPEST: Final = 10
M = TypeVar("M", bound=BaseModel)
_LONGEST_TAG: Final = 24


def texts_in_json(text: str) -> list[str]:
    r"""Return the texts in the JSON of an answer, in order, without keys.

    The JSON may stand between other lines, be several values, be cut off, or be malformed, such as
    with single quotes. Of an object with a ``query`` only that is returned; of JSON that was cut
    off, the complete texts.

    Examples:
        >>> texts_in_json('Sure:\n{"queries": ["annual leave", {"query": "days off", "id": "b"}]}')
        ['annual leave', 'days off']
        >>> texts_in_json('["annual leave", "days o')
        ['annual leave']

    """
    start = _START.search(text)
    if start is None:
        return []
    text = text[start.end() :].rstrip()
    texts = [each for value in _values(text) for each in _texts(value, _DEEPEST)]
    cut_off = "" if text.endswith(_CLOSING) else text
    return [text.strip() for text in texts if text.strip() and not cut_off.endswith(text)]


def is_cut_off(answer: str) -> bool:
    r"""Return whether the JSON in an answer lacks its end.

    Examples:
        >>> is_cut_off('["annual leave", "days o'), is_cut_off('["annual leave"]\nDone')
        (True, False)

    """
    text = unfenced(cleaned(answer))
    start = _START.search(text)
    if start is None:
        return False
    text = text[start.end() :]
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return sum(map(text.count, "[{")) > sum(map(text.count, "]}"))
    return False


def _values(text: str) -> list[object]:
    """Return the JSON values at the beginning of a text, repaired if they are not valid."""
    values: list[object] = []
    position, decoder = 0, json.JSONDecoder()
    try:
        while (following := _NEXT.match(text, position)) is not None:
            value, position = decoder.raw_decode(text, following.end())
            values.append(value)
    except (ValueError, RecursionError):
        return [_repaired(text)]
    return values


def _repaired(text: str) -> object:
    """Return the value of JSON that is cut off or malformed; None if nothing is left of it."""
    if not text.endswith(_CLOSING):
        with suppress(ValueError):
            return from_json(text, allow_partial=True)  # omits a last string that was cut off
    from json_repair import repair_json  # noqa: PLC0415 - a search imports this module, not that

    try:
        marked = _APOSTROPHE.sub(_STAND_IN, _repairable(text))
        return from_json(repair_json(marked, ensure_ascii=False).replace(_STAND_IN, "'"))
    except (ValueError, RecursionError):
        return None


def _repairable(text: str) -> str:
    """Return the beginning of a text that is repaired in bounded time."""
    depth = 0
    for count, sign in enumerate(_SIGN.finditer(text, 0, _MOST_REPAIRED)):
        depth += (sign[0] in "[{") - (sign[0] in "]}")
        if count == _MOST_SIGNS or depth > _DEEPEST_REPAIRED:
            return text[: sign.start()]
    return text[:_MOST_REPAIRED]


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
        if start >= 0 and len(text) - start < _LONGEST_TAG and not _is_closed(text[start:]):
            text = text[:start].rstrip()
    return text


def _is_closed(tag: str) -> bool:
    return any(sign in tag for sign in ">]▷")


def parse_structured(answer: str, output_cls: type[M]) -> tuple[M | None, str]:
    r"""Return the first valid JSON value in an answer, or the error of the last one.

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
        (None, 'no complete JSON')

    """
    problem = "no complete JSON"
    for value in _json_in(unfenced(cleaned(answer))):
        try:
            return output_cls.model_validate(_as_object(value, output_cls)), ""
        except ValidationError as error:
            problem = "; ".join(f"{each['loc']}: {each['msg']}" for each in error.errors()[:3])
    return None, problem


def partly_structured(answer: str, output_cls: type[M]) -> M | None:
    """Return the complete entries of an answer that was cut off; None if there are none.

    Whoever uses them notes that the answer is degraded.
    """
    text = unfenced(cleaned(answer))
    start = _next_json(text, 0)
    value = None if start is None else _repaired(text[start:])
    for candidate in (value, _without_last(value)):
        try:
            return output_cls.model_validate(_as_object(candidate, output_cls))
        except ValidationError:
            continue
    return None


def _json_in(text: str) -> Iterator[object]:
    """Yield the JSON values in a text, then its repaired whole unless it is cut off."""
    position, failures, decoder = 0, 0, json.JSONDecoder()
    while failures < _MOST_STARTS and (start := _next_json(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, start)
            yield value
        except ValueError:
            position, failures = start + 1, failures + 1
        except RecursionError:  # the next start would fail as late; a model repeats itself
            return
    first = _next_json(text, 0)
    if first is not None and text.endswith(_CLOSING):
        yield _repaired(text[first:])


def _without_last(value: object) -> object:
    """Return a value that was cut off, without the entry that was; None for a list of no other."""
    if isinstance(value, dict):
        last = next(reversed(value), None)  # the parts before it are complete
        return {k: _without_last(v) if k == last else v for k, v in value.items()}
    return (value[:-1] or None) if isinstance(value, list) else value


def _next_json(text: str, start: int) -> int | None:
    opening = _OPENING.search(text, start)
    return opening and opening.start()


def _as_object(value: object, output_cls: type[BaseModel]) -> object:
    if isinstance(value, list) and len(output_cls.model_fields) == 1:
        return {next(iter(output_cls.model_fields)): value}
    return value
