"""A random stream that gives the numbers it is told.

The words of a Mersenne Twister's state become its output by four invertible steps, so
a state can be written that gives any 624 words.
"""

import numpy as np

from bert_tf.instances.pairs import Documents, starts


class Script:
    """Collects draws, in order, and makes a stream of them."""

    def __init__(self):
        self.words = []

    def shuffle(self, order):
        """A shuffle of as many values, after which the n-th is the order[n]-th."""
        values = list(range(len(order)))
        for index in range(len(order) - 1, 0, -1):
            other = values.index(order[index])
            self.below(other, index + 1)
            values[index], values[other] = values[other], values[index]
        assert values == list(order)
        return self

    def random(self, value):
        """A `random()` of about that value, never above."""
        numerator = int(value * 2**53)
        self.words += [(numerator >> 26) << 5, (numerator & (2**26 - 1)) << 6]
        return self

    def below(self, value, limit):
        """A `randrange(limit)`."""
        assert 0 <= value < limit
        self.words.append(value << (32 - limit.bit_length()))
        return self

    def between(self, value, first, last):
        """A `randint(first, last)`."""
        return self.below(value - first, last - first + 1)

    def stream(self):
        """The stream; `is_used_up` says whether all of it was drawn."""
        state = np.zeros(625, np.uint32)
        state[: len(self.words)] = [untempered(word) for word in self.words]
        return state

    def is_used_up(self, stream):
        """Whether just the draws that were told have been drawn."""
        return stream[624] == len(self.words)


def untempered(word):
    """The state's word that becomes this output."""
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    shifted = word
    for _ in range(5):
        shifted = word ^ (shifted << 7) & 0x9D2C5680
    word = shifted & 0xFFFFFFFF
    shifted = word
    for _ in range(3):
        shifted = word ^ (shifted >> 11)
    return shifted & 0xFFFFFFFF


def documents_of(documents, dtype=np.int32):
    """`Documents` of lists of sentences, which are lists of ids."""
    sentences = [sentence for document in documents for sentence in document]
    return Documents(
        np.array([token for ids in sentences for token in ids], dtype),
        starts([len(ids) for ids in sentences]),
        starts([len(document) for document in documents]),
    )
