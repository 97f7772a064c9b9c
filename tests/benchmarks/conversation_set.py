# ruff: noqa: RUF001 - Chinese punctuation
"""Generated conversations, and questions that short replies answer, for `bench_conversations`.

Two people talk in sessions over a year. A reply to a question of the other person names no topic,
so that it is found only by what was said before it. Each topic comes up for both people, and some
of them again in another month; small talk names the topics as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final, NamedTuple

Row = tuple[str, str, datetime]


class Language(NamedTuple):
    """The texts of a language; ``{t}`` is a topic, ``{s}`` a speaker, ``{m}`` a month."""

    speakers: tuple[str, str]
    topics: list[str]
    openers: list[str]
    replies: list[str]
    talk: list[str]
    questions: list[str]
    dated: list[str]
    months: list[str]


ENGLISH: Final = Language(
    ("Ann", "Bob"),
    [
        *("pottery course", "marathon", "job interview", "trip to Lisbon", "guitar lessons"),
        *("garden fence", "chess tournament", "driving test", "kitchen renovation", "book club"),
        *("camping weekend", "language exam", "wedding speech", "piano recital", "cooking contest"),
        *("art exhibition", "science fair", "dog adoption", "charity run", "photography class"),
    ],
    [
        "How did the {t} go?",
        "Any news about the {t}?",
        "You promised to tell me about the {t}.",
        "Is the {t} over already?",
        "What happened with the {t}?",
    ],
    [
        "Better than I feared, everybody clapped at the end.",
        "Not so well, I slept badly the night before.",
        "It was cancelled because of the storm.",
        "Great! My sister came along and we laughed a lot.",
        "I had to stop half-way, my knee hurt again.",
        "Yes, last Friday! I still cannot believe it.",
        "They moved it to the autumn, so I have to wait.",
        "Expensive, but I would do it again at once.",
        "I met an old friend from school there, of all people.",
        "Honestly, it was boring, and I left early.",
    ],
    [
        "I saw a poster about a {t} in town today.",
        "My neighbour talks about nothing but a {t}.",
        "It has been raining here for three days.",
        "I cooked soup and watched an old film.",
        "Work was stressful, but the weekend is near.",
        "Did you sleep well?",
        "Let us meet for coffee soon.",
        "Sounds good to me!",
        "The bus was late again this morning.",
    ],
    [
        "How did the {t} of {s} go?",
        "What did {s} say about the {t}?",
        "What happened with {s}'s {t}?",
    ],
    ["How did {s}'s {t} in {m} 2023 go?", "What did {s} say about the {t} in {m} 2023?"],
    [
        *("January", "February", "March", "April", "May", "June", "July", "August"),
        *("September", "October", "November", "December"),
    ],
)
CHINESE: Final = Language(
    ("小安", "阿波"),
    [
        *("陶艺课", "马拉松", "面试", "里斯本旅行", "吉他课", "围栏", "象棋比赛", "驾照考试"),
        *("厨房装修", "读书会", "露营", "英语考试", "婚礼致辞", "钢琴演出", "烹饪比赛", "画展"),
    ],
    ["{t}怎么样了？", "{t}有消息吗？", "你答应过要跟我讲{t}的事。", "{t}已经结束了吗？"],
    [
        "比我想的好，最后大家都鼓掌了。",
        "不太顺利，前一天晚上没睡好。",
        "因为暴风雨取消了。",
        "太棒了！我妹妹也来了，我们笑了很久。",
        "中途只好停下，膝盖又疼了。",
        "对，上个星期五！我到现在都不敢相信。",
        "推迟到秋天了，还得等。",
        "说实话很无聊，我提前走了。",
    ],
    [
        "今天在城里看到一张{t}的海报。",
        "我邻居天天在说{t}。",
        "这里已经下了三天雨。",
        "我煮了汤，看了一部老电影。",
        "工作很累，不过快到周末了。",
        "你睡得好吗？",
        "今天早上公交车又晚点了。",
    ],
    ["{s}的{t}怎么样？", "关于{t}，{s}说了什么？"],
    ["{s}2023年{m}的{t}怎么样？", "2023年{m}{s}的{t}结果如何？"],
    [f"{month}月" for month in range(1, 13)],
)


class Question(NamedTuple):
    """A question, the session and number of the message that answers it, and its kind."""

    text: str
    session: str
    at: int
    kind: str


@dataclass
class Conversations:
    """Sessions of two people, and questions about them."""

    sessions: dict[str, list[Row]] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)


def conversations(language: Language, *, seed: int = 0) -> Conversations:
    """Return two dozen sessions, and a question for each reply."""
    random, made = Random(seed), Conversations()
    subjects = [(topic, who) for topic in language.topics for who in language.speakers]
    again = random.sample(subjects, len(subjects) // 3)
    random.shuffle(subjects)
    for number, some in enumerate(_parts([*subjects, *random.sample(again, len(again))], 24)):
        name, start = f"s{number}", datetime(2023, 1 + number // 2, 3, 18, tzinfo=UTC)
        start += timedelta(days=14 * (number % 2))
        rows: list[Row] = []
        for topic, who in some:
            other = language.speakers[who == language.speakers[0]]
            talk = [random.choice(language.talk) for _ in range(random.randint(2, 6))]
            opener, reply = random.choice(language.openers), random.choice(language.replies)
            said = [(random.choice(language.speakers), text) for text in talk]
            for speaker, text in [*said, (other, opener), (who, reply)]:
                about = topic if text == opener else random.choice(language.topics)
                at = start + timedelta(minutes=len(rows))
                rows.append((speaker, text.format(t=about), at))
            is_dated = (topic, who) in again
            words = random.choice(language.dated if is_dated else language.questions)
            month = language.months[start.month - 1]
            text = words.format(t=topic, s=who, m=month)
            made.questions.append(
                Question(text, name, len(rows) - 1, "date" if is_dated else "speaker")
            )
        made.sessions[name] = rows
    return made


def _parts(items: list[tuple[str, str]], count: int) -> Iterator[list[tuple[str, str]]]:
    for number in range(count):
        yield items[number::count]
