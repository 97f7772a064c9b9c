"""Guard that restricts an untrusted Cypher statement to one scope, or refuses it.

A small part of Cypher is accepted: ``MATCH`` and ``OPTIONAL MATCH`` of plain patterns,
``WHERE`` and ``RETURN`` with a few functions. Every pattern gets a path variable and a condition
on all its nodes and relationships, so nothing outside of the scope can be matched, counted or
compared. Patterns elsewhere are refused: no subquery, no procedure, no pattern in an expression.

The server may evaluate the conditions of one ``WHERE`` in any order, and an expression that raises
an error on a row outside of the scope would betray its values. So the statement's own conditions
stand behind a ``LIMIT``, which no planner moves a filter across; in a pattern only literals do.

Internal properties, such as the principals who may see a row, cannot be named or computed.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.cypher import INTERNAL, sees_edge, sees_node
from llama_retrieval_ext.query import Scope

MAX_HOPS: Final = 6
_MAX_TOKENS: Final = 600
_WORDY: Final = ("s", "i", "n", "k", "o")
# Filters do not commute with a limit, not even with one that keeps every row.
_DIGITS: Final = 18
_BARRIER: Final = f"LIMIT {2**63 - 1}"
_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<s>'[^'\\\n]*'|"[^"\\\n]*")
    |(?P<i>[^\W\d]\w*|`[\w .:/@+-]+`)
    |(?P<n>\d+(?:\.\d+)?(?!\w))
    |(?P<r>\.\.)|(?P<c><=|>=|<>)
    |(?P<p>[()\[\]{}:,|&*=<>+/%.!-])
    )""",
    re.VERBOSE,
)
_VALUE: Final = r"(?:-?n|[sk])"
_MAP: Final = rf"(?:\{{i:{_VALUE}(?:,i:{_VALUE})*\}})?"
_NODE: Final = rf"\(i?(?::i(?:[|&:]i)*)?{_MAP}\)"
_HOPS: Final = r"(?:\*(?:n|n?rn))?"
_EDGE: Final = rf"<?-(?:\[i?(?::i(?:\|:?i)*)?{_HOPS}{_MAP}\])?->?"
_PART: Final = re.compile(rf"(?:i=)?{_NODE}(?:{_EDGE}{_NODE})*")
# Matches a pattern inside an expression.
_PATTERN: Final = re.compile(r"[{}]|--|-\[|->|<-|\)-\(|\]-\(")
# Matches a subscript other than a number, a range and a string.
_SUBSCRIPT: Final = re.compile(r"[isnk)\]]\[(?!(?:-?n|(?:-?n)?r(?:-?n)?|s)\])")
_CLAUSES: Final = ("MATCH", "OPTIONAL", "WHERE", "RETURN")
_LITERALS: Final = ("TRUE", "FALSE")
_INFIX: Final = ("IN", "AND", "OR", "XOR", "WHEN", "THEN", "ELSE", "BY", "WITH", "CONTAINS")
_FUNCTIONS: Final = frozenset(
    {
        *("count", "collect", "sum", "avg", "min", "max", "size", "length", "coalesce", "head"),
        *("last", "tolower", "toupper", "tointeger", "tofloat", "tostring", "trim", "labels"),
        *("type", "nodes", "relationships", "startnode", "endnode", "abs", "round", "substring"),
        *("left", "right", "split", "reverse", "tail", "ceil", "floor", "sign", "date"),
        *("not", "distinct", "case"),
    }
)
_REFUSED: Final = frozenset(
    {
        *("CALL", "CREATE", "MERGE", "DELETE", "DETACH", "SET", "REMOVE", "LOAD", "UNWIND"),
        *("FOREACH", "USE", "UNION", "EXISTS", "SHOW", "DROP", "ALTER", "INSERT", "FINISH"),
        *("YIELD", "GRANT", "DENY", "REVOKE", "TERMINATE", "PROFILE", "EXPLAIN", "CYPHER"),
        *("LET", "FILTER", "REDUCE", "SEARCH", "USING"),
    }
)
_KEYWORDS: Final = _REFUSED.union(_CLAUSES, _INFIX, ("LIMIT",))


class StatementRefusedError(ConfigurationError):
    """A refused statement; the message gives the reason."""


class _Token(NamedTuple):
    # s string, i identifier, n number, r dots, c comparison, k literal, o operator, else itself
    kind: str
    text: str

    @property
    def word(self) -> str:
        """The upper-case keyword; empty for other kinds of token."""
        return self.text.upper() if self.kind in "ik" else ""


class _Clause(NamedTuple):
    name: str
    tokens: list[_Token]


def guarded(statement: str, *, scope: Scope | None, limit: int) -> str:
    """Return the statement, limited to the rows of a scope and to a number of rows.

    Args:
        statement: Untrusted Cypher.
        scope: The visible rows; the conditions refer to the parameters of `scope_parameters`.
        limit: Maximum number of rows.

    Raises:
        StatementRefusedError: The statement uses more than the accepted part of Cypher.

    Examples:
        >>> print(guarded("MATCH (a:Hazard) RETURN a.name", scope=None, limit=5))
        MATCH p_0 = (a:Hazard)
        WHERE all(p_node IN nodes(p_0) WHERE p_node:__Node__)
        WITH * LIMIT 9223372036854775807
        RETURN a.name LIMIT 5

    """
    clauses = _clauses(_tokens(statement))
    lines: list[str] = []
    bound: dict[str, None] = {}
    number = 0
    for clause, following in pairwise(clauses):
        if clause.name == "WHERE":
            continue
        parts = _parts(clause.tokens)
        paths = [f"p_{number + place}" for place in range(len(parts))]
        number += len(parts)
        matched = [_named(path, part) for path, part in zip(paths, parts, strict=True)]
        conditions = " AND ".join(_condition(name, scope) for name, _ in matched)
        where = _text(_expression(following.tokens)) if following.name == "WHERE" else ""
        own = [
            f"MATCH {', '.join(text for _, text in matched)}",
            f"WHERE {conditions}",
            f"WITH * {_BARRIER}{where and f' WHERE {where}'}",
        ]
        names = {name: None for part in parts for name in _variables(part)}
        names |= {name: None for name, _ in matched}
        if clause.name.startswith("OPTIONAL"):
            # The condition decides whether there is a match, not whether there is a row.
            new = ", ".join(name for name in names if name not in bound)
            own = ["OPTIONAL CALL (*) {", *own, f"RETURN {new}", "}", f"WITH * {_BARRIER}"]
        bound |= names
        lines += own
    lines.append(f"RETURN {_returned(clauses[-1].tokens, limit)}")
    return "\n".join(lines)


def _tokens(statement: str) -> list[_Token]:
    text = statement.strip().rstrip(";").rstrip()
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise StatementRefusedError(
                f"{text[at : at + 20].strip()!r} is not let through; write literals rather than "
                "parameters, strings without backslashes, and no comments or regular expressions"
            )
        kind = match.lastgroup or ""
        found.append(_token(kind, match[kind], found[-1] if found else _Token("", "")))
        at = match.end()
        if len(found) > _MAX_TOKENS:
            raise StatementRefusedError(f"the statement has more than {_MAX_TOKENS} words")
    return found


def _token(kind: str, text: str, before: _Token) -> _Token:
    word = text.upper()
    if kind != "i":
        return _Token(text if kind == "p" else kind, text)
    is_name = before.kind in (".", ":")  # of a property, a label or a type
    if word in _KEYWORDS and (is_name or before.kind in ("|", "&")):
        return _Token("i", f"`{text}`")
    if word in _REFUSED:
        raise StatementRefusedError(f"{text} is refused: a statement may only MATCH and RETURN")
    if text.strip("`").startswith("p_") and not is_name:
        raise StatementRefusedError(f"names that begin with p_ are taken, got {text}")
    if word in _INFIX:
        # A list behind it is no subscript, unless it is the name of a variable.
        if before.kind in ("(", "[", ",") or before.word in ("AS", "MATCH"):
            raise StatementRefusedError(f"{text} is no name of a variable")
        return _Token("o", text)
    return _Token("k" if word in _LITERALS else "i", text)


def _clauses(tokens: Sequence[_Token]) -> list[_Clause]:
    clauses: list[_Clause] = []
    depth = 0
    for token in tokens:
        depth += (token.text in "([{") - (token.text in ")]}") if token.kind == token.text else 0
        if token.word in _CLAUSES:
            if depth:
                raise StatementRefusedError(f"{token.text} inside brackets is refused")
            if token.word == "MATCH" and clauses and clauses[-1].name == "OPTIONAL":
                clauses[-1] = _Clause("OPTIONAL MATCH", [])
            else:
                clauses.append(_Clause(token.word, []))
        elif not clauses:
            raise StatementRefusedError(f"a statement begins with MATCH, got {token.text!r}")
        else:
            clauses[-1].tokens.append(token)
    _check_order([clause.name for clause in clauses])
    return clauses


def _check_order(names: Sequence[str]) -> None:
    order = " ".join(names)
    if not re.fullmatch(r"(?:(?:OPTIONAL )?MATCH (?:WHERE )?)+RETURN", order):
        raise StatementRefusedError(
            f"a statement is MATCH … WHERE … RETURN, with OPTIONAL MATCH between, got {order}"
        )


def _parts(tokens: Sequence[_Token]) -> list[list[_Token]]:
    """Return the patterns of a MATCH after checking each."""
    parts: list[list[_Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.kind in ("(", "[", "{")) - (token.kind in (")", "]", "}"))
        if token.kind == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    for part in parts:
        if not _PART.fullmatch("".join(token.kind for token in part)):
            raise StatementRefusedError(
                f"the pattern {_text(part)!r} is refused: write (a:Label {{key: 'value'}})"
                f"-[:TYPE*1..3]->(b), at most {MAX_HOPS} hops, and conditions behind WHERE"
            )
        _check_part(part)
    return parts


def _check_part(part: Sequence[_Token]) -> None:
    for before, token in pairwise(part):
        if before.kind in ("{", ","):
            _check_key(token)
        if token.kind == "n" and before.kind in ("*", "r") and float(token.text) > MAX_HOPS:
            raise StatementRefusedError(f"a pattern has at most {MAX_HOPS} hops, got {token.text}")


def _check_key(token: _Token) -> None:
    """Raise if a property, named by an identifier or a string, is internal."""
    if token.text.strip("`'\"") in INTERNAL:
        raise StatementRefusedError(f"the property {token.text} is internal")


def _variables(part: Sequence[_Token]) -> list[str]:
    """Return the variables of the nodes and relationships of a pattern."""
    return [
        token.text for before, token in pairwise(part) if before.kind in "([" and token.kind == "i"
    ]


def _named(path: str, part: list[_Token]) -> tuple[str, str]:
    """Return the path variable of a pattern (its own or a new one) and the pattern with it."""
    if len(part) > 1 and part[1].kind == "=":
        return part[0].text, _text(part)
    return path, f"{path} = {_text(part)}"


def _condition(path: str, scope: Scope | None) -> str:
    sees = sees_node("p_node", scope)
    node = "p_node:__Node__" if sees == "true" else f"p_node:__Node__ AND {sees}"
    conditions = [f"all(p_node IN nodes({path}) WHERE {node})"]
    edge = sees_edge("p_edge", scope)
    if edge != "true":
        conditions.append(f"all(p_edge IN relationships({path}) WHERE {edge})")
    return " AND ".join(conditions)


def _expression(tokens: list[_Token]) -> list[_Token]:
    """Return the tokens; raise if they contain a pattern or an unknown function."""
    if not tokens:
        raise StatementRefusedError("WHERE and RETURN need an expression")
    kinds = "".join(token.kind for token in tokens)
    found = _PATTERN.search(kinds)
    if found:
        raise StatementRefusedError(
            f"{found[0]!r} in a condition or a result is refused: patterns stand behind MATCH"
        )
    if _SUBSCRIPT.search(kinds):
        raise StatementRefusedError("a computed name of a property is refused: write node.name")
    _check_brackets(kinds)
    # In three tokens, the one of interest is in the middle.
    blank = _Token("", "")
    for before, token, after in zip([blank, *tokens], tokens, [*tokens[1:], blank], strict=False):
        is_call = after.kind == "(" and token.kind in ("s", "i", "n", "k")
        if is_call and (before.kind == "." or token.text.casefold() not in _FUNCTIONS):
            raise StatementRefusedError(f"the function {token.text} is refused")
        if before.kind == ".":
            _check_key(token)
        if token.kind == "[" and before.kind in ("s", "i", "n", "k", ")", "]"):
            _check_key(after)
    return tokens


def _check_brackets(kinds: str) -> None:
    """Raise on a closing bracket without an opening one: it could close one that we add."""
    opened: list[str] = []
    for kind in kinds:
        if kind in "([":
            opened.append(kind)
        elif kind in ")]" and (not opened or opened.pop() + kind not in ("()", "[]")):
            opened = ["?"]
            break
    if opened:
        raise StatementRefusedError("a condition or a result has brackets without a partner")


def _returned(tokens: list[_Token], limit: int) -> str:
    words = [token.word for token in tokens]
    if "LIMIT" in words:
        at = words.index("LIMIT")
        number = tokens[at + 1 :]
        if len(number) != 1 or not number[0].text.isdigit():
            raise StatementRefusedError("LIMIT takes one number, at the end")
        # Python refuses numbers of thousands of digits.
        limit, tokens = min(limit, int(number[0].text[:_DIGITS])), tokens[:at]
    if tokens and tokens[0].kind == "*":
        raise StatementRefusedError("RETURN * is refused: name what to return")
    return f"{_text(_expression(tokens))} LIMIT {limit}"


def _text(tokens: Sequence[_Token]) -> str:
    """Return the tokens as Cypher, with a space between adjacent words."""
    text, before = "", ""
    for token in tokens:
        text += f" {token.text}" if before in _WORDY and token.kind in _WORDY else token.text
        before = token.kind
    return text
