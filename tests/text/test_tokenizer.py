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
from tests.cases import each_case

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
        *("火災", "\uff05", "\uff0c", ".", "-", "'", "\u200d"),
    ]
)
TEXTS = st.one_of(
    st.text(), st.lists(st.one_of(SNIPPETS, st.sampled_from([" ", "\n", ""]))).map("".join)
)
CONFIGURATIONS = st.sampled_from(TOKENIZERS)


@given(CONFIGURATIONS, TEXTS)
def test_term_counts_are_the_counted_tokens(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.term_counts(text) == Counter(map(term_id, tokenizer.tokens(text)))


@given(CONFIGURATIONS, TEXTS)
def test_query_terms_are_the_counted_query_tokens(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.query_terms(text) == Counter(map(term_id, tokenizer.query_tokens(text)))


@given(CONFIGURATIONS, TEXTS)
def test_a_text_has_every_token_of_itself_as_a_query(tokenizer: Tokenizer, text: str) -> None:
    assert set(tokenizer.query_tokens(text)) <= set(tokenizer.tokens(text))


@given(CONFIGURATIONS, TEXTS)
def test_a_query_is_empty_only_if_the_document_would_be(tokenizer: Tokenizer, text: str) -> None:
    assert bool(tokenizer.query_tokens(text)) == bool(tokenizer.tokens(text))


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


@given(st.text(alphabet="安全生产法规定火灾", min_size=1), st.text(alphabet="安全 法a。"))
def test_a_chinese_query_finds_the_text_it_is_cut_from(query: str, context: str) -> None:
    document = DEFAULT.tokens(context + query + context)
    assert set(DEFAULT.query_tokens(query)) <= set(document)


@given(TEXTS)
def test_equal_tokenizers_give_equal_tokens(text: str) -> None:
    other = Tokenizer.from_dict(json.loads(json.dumps(DEFAULT.to_dict())))
    assert other == DEFAULT
    assert other.tokens(text) == DEFAULT.tokens(text)


@each_case("tokenizer", TOKENIZERS)
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


def test_tokenizers_that_differ_are_not_equal() -> None:
    assert len({*TOKENIZERS, Tokenizer()}) == len(TOKENIZERS)


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"split_identifiers.*'ngrams'"):
        Tokenizer.from_dict(DEFAULT.to_dict() | {"ngrams": 3})


def test_a_missing_field_is_refused_instead_of_guessed() -> None:
    recorded = DEFAULT.to_dict()
    del recorded["language"]
    with pytest.raises(ConfigurationError, match=r"has the fields.*'language'"):
        Tokenizer.from_dict(recorded)


@each_case("version", [TOKENIZER_VERSION + 1, 0, None, "1", True])
def test_another_version_is_refused_naming_both(version: object) -> None:
    with pytest.raises(ConfigurationError, match=f"version {TOKENIZER_VERSION} .*{version!r}"):
        Tokenizer.from_dict(DEFAULT.to_dict() | {"version": version})


@each_case(
    ("field", "value"),
    [
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
    ],
)
def test_a_value_that_cannot_work_is_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError):
        Tokenizer.from_dict(DEFAULT.to_dict() | {field: value})


def test_an_unknown_language_is_told_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'klingon'.*english.*russian"):
        Tokenizer(language="klingon")


def test_threads_share_a_tokenizer() -> None:
    texts = [f"running thread{n} parses Wörter, 火灾{n} and user_name{n}" for n in range(200)]
    alone = [Tokenizer().term_counts(text) for text in texts]
    shared = Tokenizer()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(shared.term_counts, texts * 4)) == alone * 4


def test_the_length_of_a_document_is_the_number_of_its_tokens() -> None:
    text = "火灾 and user_name and fire"
    assert sum(DEFAULT.term_counts(text).values()) == len(DEFAULT.tokens(text)) == 9
