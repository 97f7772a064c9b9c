"""Cited answers: what the model is sent, and which citations hold."""

# ruff: noqa: RUF001 - Chinese punctuation on purpose

import asyncio
from collections.abc import Callable

import pytest
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.query_engine import CustomQueryEngine

from llama_retrieval_ext import RRF, KnowledgeBase, Query, Scope
from llama_retrieval_ext.capabilities import RAGGenerator
from llama_retrieval_ext.capabilities.query_engine import as_hits
from llama_retrieval_ext.capabilities.rag import RAGAnswer, check_citations
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.testing import FakeRetriever, FlakyRetriever, ScriptedLLM
from tests.capabilities.conftest import ACME, QUESTION
from tests.cases import cases

Generated = Callable[..., RAGAnswer]


@pytest.fixture(params=["sync", "async", "stream", "astream", "query", "aquery"])
def generated(request: pytest.FixtureRequest) -> Generated:
    """Each way to an answer."""

    async def last(rag: RAGGenerator, *args: object, **kwargs: object) -> RAGAnswer:
        return [each async for each in rag.astream(*args, **kwargs)][-1]  # type: ignore[arg-type]

    def engine(rag: RAGGenerator, query: str, **kwargs: object) -> Query:
        del rag
        return Query(query, **kwargs)  # type: ignore[arg-type]

    ways: dict[str, Callable[..., RAGAnswer]] = {
        "sync": lambda rag, *args, **kw: rag.generate(*args, **kw),
        "async": lambda rag, *args, **kw: asyncio.run(rag.agenerate(*args, **kw)),
        "stream": lambda rag, *args, **kw: list(rag.stream(*args, **kw))[-1],
        "astream": lambda rag, *args, **kw: asyncio.run(last(rag, *args, **kw)),
        "query": lambda rag, *args, **kw: rag.query(engine(rag, *args, **kw)),
        "aquery": lambda rag, *args, **kw: asyncio.run(rag.aquery(engine(rag, *args, **kw))),
    }
    return ways[request.param]


def test_an_answer_cites_hits_of_its_scope_alone(kb: KnowledgeBase, generated: Generated) -> None:
    llm = ScriptedLLM(["<think>44 or 25?</think>Annual leave is 25 days a year [1]."])
    answer = generated(RAGGenerator(kb.retriever(), llm=llm), QUESTION, scope=ACME)
    assert answer.text == "Annual leave is 25 days a year [1]."
    assert [citation.hit.node.ref_doc_id for citation in answer.citations] == ["acme-leave"]
    assert answer.is_supported
    (prompt,) = llm.prompts
    assert QUESTION in prompt
    assert "acme" in prompt
    assert "beta" not in prompt
    assert "44" not in prompt


@cases(
    ("said", "problem"),
    [
        ("Annual leave is 25 days [7].", "no passage [7]"),
        ("Annual leave is 30 days [1].", "30 is not in [1]"),
        ("Quantum chromodynamics rocks [1].", "no word in common"),
        ("Annual leave is 25 days.", "cites no passage"),
        ("Annual leave is 25 days [1]. It was 31 days in Rome [1].", "31 is not in [1]"),
    ],
)
def test_an_answer_whose_citations_do_not_hold_is_marked(
    kb: KnowledgeBase, said: str, problem: str
) -> None:
    answer = RAGGenerator(kb.retriever(), llm=ScriptedLLM([said])).generate(QUESTION, scope=ACME)
    assert not answer.is_supported
    assert problem in answer.problems[0]
    assert answer.text == said


def test_an_answer_without_relevant_passages_says_so(
    kb: KnowledgeBase, generated: Generated
) -> None:
    silent = ScriptedLLM([])
    nowhere = generated(RAGGenerator(kb.retriever(), llm=silent), QUESTION, scope=Scope("none"))
    assert not nowhere.is_answered
    assert silent.prompts == []
    llm = ScriptedLLM(["<think>hm</think>\nNOT_IN_PASSAGES."])
    answer = generated(RAGGenerator(kb.retriever(), llm=llm), "Who is Ada?", scope=ACME)
    assert (answer.is_answered, answer.citations) == (False, ())
    assert answer.text == "The documents do not answer this question."


def test_context_skips_the_retrieval() -> None:
    retriever = FakeRetriever([("n1", 0.9, "not this")])
    llm = ScriptedLLM(["Lunch is at noon [2]."])
    rag = RAGGenerator(retriever, llm=llm)
    answer = rag.generate("When is lunch?", ["Tea is at four.", "Lunch is at noon."])
    assert [citation.node_id for citation in answer.citations] == ["context-2"]
    assert retriever.calls == []
    with pytest.raises(ConfigurationError, match="nothing is retrieved"):
        rag.generate("When is lunch?", ["Tea"], scope=ACME)


def test_a_degraded_retrieval_degrades_the_answer(kb: KnowledgeBase) -> None:
    both = kb.retriever("vector", name="v") | FlakyRetriever(
        [("n1", 0.9)], failures=9, error=RuntimeError("down")
    )
    rag = RAGGenerator(both >> RRF(), llm=ScriptedLLM(["Annual leave is 25 days [1]."]))
    answer = rag.generate(QUESTION, scope=ACME)
    assert "down" in answer.degraded[0].reason
    assert answer.to_dict()["degraded"]


def test_a_rag_generator_is_a_query_engine_that_streams(kb: KnowledgeBase) -> None:
    said = "Annual leave is 25 days [1]."
    rag = RAGGenerator(kb.retriever(), llm=ScriptedLLM([said, said]), streaming=True)
    assert isinstance(rag, CustomQueryEngine)
    response = rag.query(Query(QUESTION, scope=ACME))
    assert isinstance(response, StreamingResponse)
    assert "".join(response.response_gen) == said

    async def streamed() -> str:
        response = await rag.aquery(Query(QUESTION, scope=ACME))
        assert isinstance(response, AsyncStreamingResponse)
        return "".join([part async for part in response.async_response_gen()])

    assert asyncio.run(streamed()) == said


def test_a_streamed_answer_is_repeated_once_after_reasoning_without_a_tag() -> None:
    said = "They say 25.</think>Annual leave is 25 days [1]."
    retriever = FakeRetriever([("leave", 0.9, "Annual leave is 25 days.")])
    rag = RAGGenerator(retriever, llm=ScriptedLLM([said, said]), streaming=True)
    response = rag.query(QUESTION)
    assert isinstance(response, StreamingResponse)
    assert "".join(response.response_gen) == "They say\nAnnual leave is 25 days [1]."


# Each line has spellings of the same value.
SAME = [
    "{}天年假: 25 / 二十五 / ２５ / 贰拾伍",
    "{} days of leave: twenty-five / 25 / twenty five / 25.0",
    "工期{}天: 一百二十 / 120 / 一百二",
    "预算{}元: 3万 / 三万 / 30000 / 30,000",
    "预算{}元: 1.5亿 / 一亿五千万 / 150,000,000 / 15000万",
    "税率{}: 百分之五 / 5% / 5 percent / 百分之5 / five per cent",
    "会议在{}举行: 五月四日 / 5月4日 / 05-04",
    "会议在{}举行: 2026年5月4日 / 二〇二六年五月四日 / 2026-05-04 / 4 May 2026 / May 4th, 2026",
    "占{}的股份: 三分之一 / 1/3 / one third",
    "长{}米: 三点五 / 3.5 / 3,5",
    "按{}条: 第九 / 第9 / 九",
    "costs {} euros: 1,200 / 1200 / 1 200 / 1.200 / 1'200 / one thousand two hundred",
    "a budget of {} dollars: 1.5 million / 1,500,000 / 150万",
    "the {} article: ninth / 9th",
    "重{}: 五千克 / 5千克 / 5kg",
    "等待{}小时: 一个半 / 1.5 / 1½ / 1 1/2",
    "试用期为{}: 半年 / 6个月 / 六个月",
    "会议在{}开始: 下午三点半 / 15:30 / 3:30 pm",
    "合计{}元: 壹万贰仟叁佰 / 壹萬貳仟參佰 / 12300",
    "工期{}天: 廿五 / 25 / 二十五",
    "costs {} euros: 2.5 bn / 2.5 billion / 2,500,000,000",
    "takes {} hours: two and a half / 2.5 / 2½",
    "lasts {} days: 3-5 / 3 to 5 / three to five / 三至五 / 三五",
    "等待{}: 一个半小时 / 90分钟 / one and a half hours",
    "under {}: Article IX / Article 9 / 第九条",
]


@pytest.mark.slow
@cases("line", SAME)
def test_numbers_of_the_same_value_support_a_citation(line: str) -> None:
    template, _, spellings = line.partition(": ")
    texts = [template.format(spelling) for spelling in spellings.split(" / ")]
    for text in texts:
        for passage in texts:
            _, problems = check_citations(f"{text}[1]。", as_hits([f"公司规定 leave: {passage}."]))
            assert not any("no" in problem or "没有 " in problem for problem in problems), (
                text,
                passage,
            )


@cases(
    ("said", "passage", "missing"),
    [
        ("员工每年享有三十天年假", "员工每年享有二十五天年假。", "三十"),
        ("养护不少于九天", "养护不少于7d", "九"),
        ("养护不少于一天", "一般养护不少于7天", "一"),
        ("预算3亿元", "预算3万元", "3亿"),
        ("预算3万元", "预算3元", "3万"),
        ("深度超过6米的基坑", "深度超过5m的基坑", "6"),
        ("税率为百分之六", "税率为5%", "百分之六"),
        ("The leave is thirty days", "The leave is 25 days", "thirty"),
        ("It takes nine days", "It takes 7 days", "nine"),
        ("It opens on 4 June 2026", "It opens on 2026-05-04", "4 June"),
        ("会议在5月5日举行", "会议在2026年5月4日举行", "5月5日"),
        ("It opens on May 5, 2026", "It opens on 4 May 2026", "May 5"),
        ("试用期为半年", "试用期为三个月", "半年"),
        ("等待两个半小时", "等待2小时", "两个半"),
        ("It takes two and a half hours", "It takes 2 hours", "two and a half"),
        ("It takes between ten and fifteen days", "It takes 10 to 20 days", "fifteen"),
        ("It opens at 5:30 pm", "It opens at 17:45", "5:30 pm"),
        ("It is on the second floor", "It is on the 3rd floor", "second"),
        ("It costs 1,200 euros", "It costs 1.2 euros", "1,200"),
        ("按第九条执行", "按第8条执行", "第九"),
        ("It follows Article IX", "It follows Article VIII", "Article IX"),
        ("需要三五天", "需要十天", "三五"),
        ("版本为 1.2.3 的软件", "版本为 1.2.4 的软件", "1.2.3"),
    ],
)
def test_a_number_of_another_value_is_not_supported(said: str, passage: str, missing: str) -> None:
    citations, (problem,) = check_citations(f"{said} [1].", as_hits([passage]), language="en")
    assert citations == ()
    assert f": {missing} is not in [1]" in problem


@cases(
    ("said", "passage"),
    [
        ("施工一般应当十分注意安全", "施工应当注意安全"),
        ("千万不要在四川的一个基坑施工", "不要在四川的基坑施工"),
        ("These two rules of leave are about one thing", "leave rules"),
        ("You may march on leave", "the leave"),
    ],
)
def test_a_word_with_a_numeral_is_a_word(said: str, passage: str) -> None:
    assert check_citations(f"{said} [1].", as_hits([passage]))[1] == ()


@cases(
    ("said", "passage"),
    [
        ("25天", "员工每年享有二十五天年假。"),
        ("截至5月10日", "报名时间为5月4日至10日。"),
        ("It ends on May 6", "It lasts from May 4-6."),
        ("It begins on 4 May", "It lasts from 4-6 May."),
        ("5月4日开工", "2026.5.4开工"),
    ],
)
def test_a_short_answer_and_a_day_of_a_range_are_supported(said: str, passage: str) -> None:
    assert check_citations(f"{said} [1].", as_hits([passage]))[1] == ()


@cases(
    ("form", "numbers"),
    [
        *[(form, [1]) for form in ("[1]", "【1】", "［１］", "[[1]]", "[^1]", "[^1^]", "[ 1 ]")],
        *[
            (form, [1])
            for form in ("[Source 1]", "[source: 1]", "[Passage #1]", "[来源1]", "[Doc. 1]")
        ],
        *[(form, [1]) for form in ("【1†source】", "【1†handbook.pdf】")],
        *[
            (form, [1, 2])
            for form in ("[1, 2]", "[1; 2]", "[1][2]", "[1 and 2]", "[1、2]", "[1 和 2]")
        ],
        *[(form, [1, 2]) for form in ("[Source 1, Source 2]", "[1 & 2]", "[^1][^2]", "[1] [2]")],
        *[
            (form, [1, 2, 3])
            for form in ("[1-3]", "[1–3]", "[1 to 3]", "[1, 2-3]", "[1, 2, and 3]")
        ],
    ],
)
@cases("stop", [" {}.", ". {}", "{}。"])
def test_forms_of_citations_are_read(form: str, numbers: list[int], stop: str) -> None:
    answer = f"Lunch is at noon{stop.format(form)}"
    citations, problems = check_citations(answer, as_hits(["Lunch is at noon."] * 3))
    assert ([citation.number for citation in citations], problems) == (numbers, ())


def test_a_citation_beside_code_is_read() -> None:
    answer = "Lunch, `lunch[2]`, is at noon [1].\n```\nlunch[3]\n```\nLunch is at noon [1]."
    citations, problems = check_citations(answer, as_hits(["Lunch is at noon."]))
    assert ([citation.number for citation in citations], problems) == ([1, 1], ())
    assert citations[0].statement == "Lunch, `lunch[2]`, is at noon"


@cases(
    "text",
    [
        "a[1]",
        "x_y[1]",
        "arr[0] and arr[1]",
        "row[1] = noon",
        "`lunch[1]`",
        "a[1].time",
        "[1.5]",
        "[x]",
        "[2024]",
        "list[int]",
    ],
)
def test_indices_and_code_are_no_citations(text: str) -> None:
    (problem,) = check_citations(f"Lunch is at noon, {text}", as_hits(["Lunch is at noon."]))[1]
    assert problem == "the answer cites no passage"


def test_a_zero_before_a_decimal_comma_counts() -> None:
    assert check_citations("Es sind 0,5 Euro [1].", as_hits(["Es sind 5 Euro."]))[1]
