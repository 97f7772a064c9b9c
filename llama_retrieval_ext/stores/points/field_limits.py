"""Which fields of the metadata get an index: without one, a filter reads every node."""

from typing import Final

# Each index costs memory and a little of every insertion. Further fields are filtered all the same,
# only slower: some milliseconds per 10,000 nodes.
MOST_FIELDS: Final = 64
# A field of longer strings holds text, such as the window around a sentence. Nobody filters by such
# a value as a whole, and an index would hold all of them in memory.
LONGEST_VALUE: Final = 256
