"""The tokenizer as a value, and what its documents and queries agree on."""

import copy
import json
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.segmentation import term_id
from llama_retrieval_ext.text.tokenizer import TOKENIZER_VERSION, Tokenizer
from tests.cases import cases

DEFAULT = Tokenizer()
TOKENIZERS = [
    DEFAULT,
    Tokenizer(cjk="words"),
    Tokenizer(split_identifiers=False, stop_words="none"),
    Tokenizer(language="none", stop_words=("de", "la")),
    Tokenizer(language="french"),
]
# Texts that look like text: words, names, CJK and signs next to each other.
SNIPPETS = st.sampled_from(
    [
        *("the", "running", "user_name", "getHTTPResponse2", "C++", "c#", ".NET", "1.2.3", "1,000"),
        *("don't", "e-mail", "École", "école", "é", "e\u0301", "0\u0300", "β", "℃", "हिन्दी", "🔥"),
        *("火灾", "安全生产法", "\U00020000火", "タワー", "へ", "한국어", "…", "ﾊﾟ", "\uff11\uff12"),
        *("ห้องสมุด", "น้ำ", "ເປີດ", "ព្រឹក", "မြန်မာ", "๒๕๖๗", "٢٠٢٤", "کتابی", "\u200b", "\u17d2"),
        *("火災", "\uff05", "\uff0c", "\u200d", "\u2019s", "++", "\ud800", *".-',()\"#"),
    ]
)
TEXTS = st.one_of(
    st.text(), st.lists(st.one_of(SNIPPETS, st.sampled_from([" ", "\n", ""]))).map("".join)
)
CONFIGURATIONS = st.sampled_from(TOKENIZERS)


@given(CONFIGURATIONS, TEXTS)
def test_a_text_has_every_token_of_itself_as_a_query(tokenizer: Tokenizer, text: str) -> None:
    assert set(tokenizer.query_tokens(text)) <= set(tokenizer.tokens(text))


@given(CONFIGURATIONS, TEXTS, TEXTS)
def test_tokens_of_two_texts_do_not_touch_each_other(
    tokenizer: Tokenizer, first: str, second: str
) -> None:
    together = tokenizer.tokens(f"{first} {second}")
    assert together == tokenizer.tokens(first) + tokenizer.tokens(second)


@given(CONFIGURATIONS, TEXTS)
def test_tokens_are_words_that_white_space_can_join(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.tokens(text)
    assert " ".join(tokens).split() == tokens


@cases("tokenizer", TOKENIZERS)
def test_a_used_tokenizer_survives_pickling_copying_and_json(tokenizer: Tokenizer) -> None:
    used = tokenizer.tokens("Résumés of 火灾")
    for twin in (
        pickle.loads(pickle.dumps(tokenizer)),
        copy.deepcopy(tokenizer),
        copy.copy(tokenizer),
        Tokenizer.from_dict(json.loads(json.dumps(tokenizer.to_dict()))),
        eval(repr(tokenizer)),
    ):
        assert twin == tokenizer
        assert hash(twin) == hash(tokenizer)
        assert twin.tokens("Résumés of 火灾") == used


def test_a_pickle_holds_the_configuration_and_no_caches() -> None:
    tokenizer = Tokenizer()
    before = len(pickle.dumps(tokenizer))
    tokenizer.term_counts("many different words that are now known")
    assert len(pickle.dumps(tokenizer)) == before


def test_a_missing_or_unknown_field_is_refused() -> None:
    recorded = DEFAULT.to_dict()
    del recorded["language"]
    for fields in (recorded, DEFAULT.to_dict() | {"ngrams": 3}):
        with pytest.raises(ConfigurationError, match="a tokenizer has the fields"):
            Tokenizer.from_dict(fields)


@cases("version", [TOKENIZER_VERSION + 1, 0, None, "1", True])
def test_another_version_is_refused_naming_both(version: object) -> None:
    with pytest.raises(ConfigurationError, match=f"version {TOKENIZER_VERSION} .*{version!r}"):
        Tokenizer.from_dict(DEFAULT.to_dict() | {"version": version})


def test_a_value_that_cannot_work_is_refused(subtests: pytest.Subtests) -> None:
    for field, value in [
        ("language", "klingon"),
        ("language", None),
        ("stop_words", "german"),
        ("stop_words", ["of the"]),
        ("stop_words", ["什么"]),
        ("stop_words", [""]),
        ("stop_words", [7]),
        ("stop_words", None),
        ("cjk", "trigrams"),
        ("cjk", ["bigrams"]),
        ("split_identifiers", "yes"),
        ("split_identifiers", 1),
    ]:
        with subtests.test(field=field), pytest.raises(ConfigurationError):
            Tokenizer.from_dict(DEFAULT.to_dict() | {field: value})


@pytest.mark.slow
def test_threads_share_a_tokenizer() -> None:
    texts = [f"running thread{n} parses Wörter, 火灾{n} and user_name{n}" for n in range(200)]
    alone = [Tokenizer().term_counts(text) for text in texts]
    shared = Tokenizer()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(shared.term_counts, texts * 4)) == alone * 4


TOKENIZER = Tokenizer()


@cases("text", ["", " ", "\n\u3000", "...", "🔥", "___", "\ud800", "\u0301", "'"])
def test_text_without_words_has_no_tokens(text: str) -> None:
    assert TOKENIZER.tokens(text) == TOKENIZER.query_tokens(text) == []
    assert TOKENIZER.term_counts(text) == TOKENIZER.query_terms(text) == {}


def found(query: str, document: str, *, by: Tokenizer = DEFAULT) -> float:
    """The share of the query's tokens that the document has."""
    tokens = by.query_tokens(query)
    return sum(token in by.tokens(document) for token in tokens) / len(tokens)


def test_words_that_stock_bm25_misses_are_found(subtests: pytest.Subtests) -> None:
    for query, document in [
        ("知识图谱", "大语言模型的知识图谱检索增强生成技术"),
        ("火", "发生火灾时应当报警"),
        ("臺灣的軟體", "台湾的软体"),
        ("検索", "日本語の文書を検索する"),
        ("검색", "검색한다"),
        ("C", "Written in C for speed"),
        ("C++", "Modern C++ in depth"),
        ("Ｃ＋＋", "C++"),  # noqa: RUF001
        (".NET", "The .NET runtime"),
        ("3.12", "New in Python 3.12.1"),
        ("1000", "about 1,000 people"),
    ]:
        with subtests.test(query=query):
            assert found(query, document) == 1.0


# Sentences as words, which are written without spaces.
SENTENCES = {
    "Thai": "ห้องสมุด เปิด เวลา เก้า โมง เช้า ทุกวัน น้ำ ดื่ม แก้ว ใหญ่ ๆ",
    "Lao": "ຫ້ອງສະໝຸດ ເປີດ ເກົ້າໂມງ ເຊົ້າ ນ້ຳ",
    "Khmer": "បណ្ណាល័យ បើក នៅ ម៉ោង ប្រាំបួន ព្រឹក",
    "Burmese": "စာကြည့်တိုက် သည် မနက် ကိုး နာရီ ဖွင့် သည်",
}


@cases("language", SENTENCES)
@cases("tokenizer", [DEFAULT, Tokenizer(cjk="words"), Tokenizer(language="none")])
def test_words_in_sentences_without_spaces_are_found(language: str, tokenizer: Tokenizer) -> None:
    words = SENTENCES[language].split()
    for sentence in ("".join(words), "\u200b".join(words), f"GPT{''.join(words)}7"):
        for word in words:
            assert found(word, sentence, by=tokenizer) == 1.0
    assert found("".join(reversed(words[0])), "".join(words), by=tokenizer) < 1.0


@cases(
    ("query", "document"),
    [
        ("2024", "عام ٢٠٢٤"),
        ("2024", "سال ۲۰۲۴"),
        ("2024", "वर्ष २०२४"),
        ("2567", "พ.ศ. ๒๕๖๗"),
        ("२०२४", "the year 2024"),
        ("3.14", "\u0663\u066b\u0661\u0664"),
        ("1000", "\u0661\u066c\u0660\u0660\u0660 ريال"),
        ("database", "data\u200bbase"),
        ("database", "\u202adata\u200e\u2066base\u2069\u202c"),
        ("abc123", "abc\u200f\U000e0041123"),
        ("火灾", "火\u200b灾"),
        ("ภาษา", "ภาษา\u200bไทย"),
        ("کتابی", "كتابي"),
        ("كتابي", "کتابی"),
        ("مستشفي", "مستشفى"),
        ("مدرسه", "مدرسۂ مدرسہ"),
        ("ٱلكتاب", "الكتاب"),
    ],
)
@cases("language", ["english", "arabic"])
def test_digits_letters_and_invisible_signs_of_all_keyboards_are_one(
    query: str, document: str, language: str
) -> None:
    assert found(query, document, by=Tokenizer(language=language)) == 1.0


@cases("query", ["not", "to be or not to be", "what is it", "The Who", "I", "what ___"])
def test_a_query_of_stop_words_alone_keeps_them(query: str) -> None:
    assert found(query, f"He said: {query}.") == 1.0


def test_documents_keep_stop_words_for_any_list() -> None:
    text = "what is not in the list"
    lists = [Tokenizer(stop_words=words) for words in ("english", "none", ("list",))]
    assert lists[0].tokens(text) == lists[1].tokens(text) == lists[2].tokens(text)


def test_a_name_is_found_in_its_other_spellings(subtests: pytest.Subtests) -> None:
    for query, document in [
        ("userName", "user_name = 1"),
        ("user name", "getUserName()"),
        ("http server", "class HTTPServer2:"),
        ("path join", "os.path.join(a, b)"),
        ("email", "by e-mail"),
        ("UTF-8", "utf8"),
        ("john.smith@acme.com", "write to <John.Smith@ACME.com>!"),
        ("ecole", "L'École primaire"),
        ("strasse", "Hauptstraße Straße"),
        ("women", "women's rights"),
        ("हिन्दी", "मेरी हिन्दी है"),
        ("retrieval", "the retrie-\nval of"),
        ("retrieval", "the retrie\u00ad \r\n  val of"),
        ("well-known retrie", "a well-\nknown retrie-\nval"),
    ]:
        with subtests.test(query=query):
            assert found(query, document) == 1.0


@cases(
    ("query", "document"),
    [
        ("C", "C++ and C# only"),
        ("costdays", "cost -\ndays"),
        ("costdays", "cost\n- days"),
        ("C++", "plain C"),
        ("火山", "山火"),
        ("123", "1.2.3"),
        ("タワー", "たわー"),
    ],
)
def test_texts_that_only_look_alike_do_not_match(query: str, document: str) -> None:
    assert found(query, document) < 1.0


def test_words_in_capitals_are_no_stop_words() -> None:
    assert DEFAULT.query_tokens("What's IT about?") == ["it"]
    assert DEFAULT.query_tokens("What is IT's budget?") == ["it", "budget"]
    assert DEFAULT.query_tokens("How do I parse it?") == ["pars"]


def test_own_stop_words_replace_the_english_ones() -> None:
    german = Tokenizer(language="german", stop_words=("der", "die", "Das"))
    assert german.query_tokens("das Haus the") == ["haus", "the"]


def test_without_splitting_a_name_is_one_word() -> None:
    plain = Tokenizer(split_identifiers=False, language="none")
    assert plain.tokens("getUserName user_name os.path") == [
        "getusername",
        "user_name",
        "os",
        "path",
    ]
    assert found("c++ 1.2.3", "C++ at 1.2.3", by=plain) == 1.0


def test_chinese_words_bring_their_characters() -> None:
    words = Tokenizer(cjk="words")
    assert "规定" in words.tokens("安全生产法规定")
    assert found("火", "发生火灾时", by=words) == 1.0
    assert words.tokens("東京タワーへ")[-4:] == ["ー", "タワ", "ワー", "へ"]


@given(CONFIGURATIONS, TEXTS)
def test_term_counts_are_the_counted_tokens(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.term_counts(text) == Counter(map(term_id, tokenizer.tokens(text)))


@given(CONFIGURATIONS, TEXTS)
def test_query_terms_are_the_counted_query_tokens(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.query_terms(text) == Counter(map(term_id, tokenizer.query_tokens(text)))
