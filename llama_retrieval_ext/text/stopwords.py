"""English words that ask or join and say nothing about what is asked for."""

from typing import Final

# The closed word classes that queries are full of. Question words matter most: they are rare in
# documents, so BM25 would weigh them as if they told documents apart. Negations are in: a bag of
# words cannot say what is not. Left out are "if" and "while", which questions about code are about,
# and words that are also names or nouns ("may", "will", "might", "must").
# fmt: off
ENGLISH_STOP_WORDS: Final = frozenset({
    # articles, conjunctions, prepositions, particles
    "a", "an", "the", "and", "or", "but", "of", "at", "by", "for", "from", "in", "into", "on", "to",
    "with", "as", "so", "than", "then", "such", "about", "no", "nor", "not",
    # auxiliaries
    "am", "are", "be", "been", "being", "can", "could", "did", "do", "does", "had", "has", "have",
    "is", "should", "was", "were", "would",
    # question words
    "how", "what", "when", "where", "which", "who", "whom", "whose", "why",
    # pronouns and determiners
    "i", "me", "my", "we", "us", "our", "you", "your", "he", "him", "his", "she", "her", "it",
    "its", "they", "them", "their", "this", "that", "these", "those", "there", "here",
})
# fmt: on
