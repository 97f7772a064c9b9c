"""Synthetic questions for a known text: parts of a sentence mixed with wrong words."""

import re
from collections.abc import Sequence
from random import Random
from typing import Final

from llama_retrieval_ext.text.normalization import CJK

_SENTENCE: Final = re.compile(r"[^.!?\u3002\uff01\uff1f\n]+")
# Pairs of CJK characters (about as long as a word), and words of other scripts.
_WORD: Final = re.compile(rf"[{CJK}]{{1,2}}|(?:(?![{CJK}])\w)+")
_CJK: Final = re.compile(f"[{CJK}]")
# A sentence with fewer words is a heading or a fragment; questions are rarely longer.
_FEWEST, _MOST = 5, 12
_SHORTEST: Final = 3
# Share of the sentence that is kept, and share of that which is replaced. Without wrong words the
# questions are too easy, and calibration by them does not order real questions.
_REMEMBERED: Final = (0.3, 0.9)
_WRONG: Final = (0.2, 0.8)


def known_item_question(text: str, others: Sequence[str], random: Random) -> str | None:
    """Return a question made of the words of one sentence of a text.

    Three to twelve words of a random sentence stay, in their order; a fifth to four fifths of these
    are replaced by words of other texts. So the overlap between question and answer varies, as it
    does for real questions.

    Examples:
        >>> text = "Employees have 25 days of paid annual leave."
        >>> known_item_question(text, ["Lunch is at noon."], Random(1))
        'is have 25 Lunch of'
        >>> known_item_question("Contents", [text], Random(1)) is None
        True

    """
    sentences = [_WORD.findall(sentence) for sentence in _SENTENCE.findall(text)]
    usable = [words for words in sentences if len(set(words)) >= _FEWEST]
    if not usable:
        return None
    words = random.choice(usable)
    share = round(len(words) * random.uniform(*_REMEMBERED))
    kept = min(max(share, _SHORTEST), _MOST, len(words))
    question = [words[at] for at in sorted(random.sample(range(len(words)), kept))]
    for _ in range(round(kept * random.uniform(*_WRONG))):
        wrong = _WORD.findall(random.choice(others)) if others else []
        if wrong:
            question[random.randrange(kept)] = random.choice(wrong)
    return ("" if any(map(_CJK.match, question)) else " ").join(question)
