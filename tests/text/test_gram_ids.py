from array import array

from hypothesis import given
from hypothesis import strategies as st

from llama_retrieval_ext.text.gram_ids import packed_grams
from llama_retrieval_ext.text.segmentation import document_grams, is_run, runs, term_id

CJK_CHARACTERS = st.sampled_from(
    [char for char in map(chr, range(0x20010)) if is_run(char) or ord(char) < 0x80]
)


@given(
    st.text(
        st.one_of(st.sampled_from("火災法臺タワーへ한국a, \n\0\U0001f525\ud800"), CJK_CHARACTERS)
    )
)
def test_every_gram_has_the_id_of_its_string(text: str) -> None:
    expected = [term_id(gram) for run in runs(text) for gram in document_grams(run)]
    assert sorted(array("I", packed_grams(text))) == sorted(expected)
