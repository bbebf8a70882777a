"""The tokenizer as a TensorFlow graph, for a SavedModel that takes raw text.

Token for token what `WordPieceTokenizer` gives. tensorflow-text's BertTokenizer is not:
it has rules and Unicode data of its own. Here its part is the greedy longest match
alone, on words that are normalised already; what normalising needs is in the graph, as
constants. To load such a SavedModel takes tensorflow and tensorflow-text.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.conversion.graph_characters import repeat_range
from bert_tf.conversion.graph_words import (
    CodePoints,
    Words,
    decode,
    keep_whole,
    split_words,
)
from bert_tf.conversion.unicode_tables import unicode_tables
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary
from bert_tf.text.wordpiece import CONTINUATION, MAX_CHARACTERS_PER_WORD

_MAX_BYTES_PER_CHARACTER = 4

# No piece is, begins or goes on with white space, so this word is [UNK].
_UNKNOWN_WORD = " "

_TEXTS = [tf.TensorSpec([None], tf.string, "texts")]


class GraphEncoding(NamedTuple):
    """Each text's tokens, and where they stand in it: int32, [B, (tokens)], ragged.

    Attributes:
        ids: the tokens.
        starts: where what a token was made of begins, in characters (code points).
        ends: and ends, half open.
        byte_starts: the same place in bytes of the text as it was given.
        byte_ends: and its end.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    byte_starts: tf.RaggedTensor
    byte_ends: tf.RaggedTensor


class GraphTokenizer(tf.Module):
    """Texts to ids, in TensorFlow and tensorflow-text operations alone.

    It holds no asset and no table that must be initialised: `tf.saved_model.save` takes
    it, by itself or as part of a model. As with any `tf.function`, a method does not
    keep its object alive.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        do_lower_case: bool = True,
        recognize_special_tokens: bool = False,
        name: str | None = None,
    ):
        """Makes the tables."""
        super().__init__(name)
        self._do_lower_case = do_lower_case
        self._special_tokens = [
            token
            for token in (PAD, UNK, CLS, SEP, MASK)
            if recognize_special_tokens and token in vocabulary
        ]
        self._unicode = unicode_tables(do_lower_case)
        self._unknown_id = vocabulary.unk_id
        # tensorflow-text refuses some of the tokens that no word can be.
        tokens = {
            token: token_id
            for token, token_id in vocabulary.ids.items()
            if _is_possible(token)
        }
        self._ids = np.array(list(tokens.values()), np.int32)
        self._lengths = np.array([len(token) for token in vocabulary.tokens], np.int32)
        self._pieces = _longest_match(list(tokens))

    @tf.function(input_signature=_TEXTS, autograph=False)
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of the texts' tokens; no [CLS] or [SEP] is added."""
        with tf.device("CPU:0"):  # strings live there, and what goes along with them
            _, words = self._words(texts)
            ids, ids_of_text = self._match(words)
            return tf.RaggedTensor.from_row_splits(
                ids.flat_values, ids_of_text, validate=False
            )

    @tf.function(input_signature=_TEXTS, autograph=False)
    def encode_with_offsets(self, texts: tf.Tensor) -> GraphEncoding:
        """The ids of the texts' tokens, and what each was made of.

        As `WordPieceTokenizer.encode_with_offsets`: a token covers the source of its
        characters, and the accents removed after them.
        """
        with tf.device("CPU:0"):
            text, words = self._words(texts)
            ids, ids_of_text = self._match(words)
            starts, ends = self._places(ids, words)
            # Not `tf.repeat`, whose memory is the texts' number times the longest's.
            tokens = tf.range(tf.size(starts))
            text_of = tf.searchsorted(ids_of_text, tokens, side="right") - 1
            text_begins = tf.gather(text.row_splits, text_of)
            parts = (
                ids.flat_values,
                starts - text_begins,
                ends - text_begins,
                tf.gather(text.byte_starts, starts),
                # A line feed ends the text, so there always is a next character.
                tf.gather(text.byte_starts, ends),
            )
            return GraphEncoding(
                *(
                    tf.RaggedTensor.from_row_splits(part, ids_of_text, validate=False)
                    for part in parts
                )
            )

    def _words(self, texts: tf.Tensor) -> tuple[CodePoints, Words]:
        text = decode(texts, self._unicode)
        if self._special_tokens:
            text = keep_whole(text, self._special_tokens)
        return text, split_words(text, self._unicode, self._do_lower_case)

    def _match(self, words: Words) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The ids by word [W, (tokens)], and where texts begin in all ids [B + 1]."""
        strings = tf.strings.unicode_encode(words.characters, "UTF-8")
        too_long = words.characters.row_lengths() > MAX_CHARACTERS_PER_WORD
        pieces = self._pieces.tokenize(tf.where(too_long, _UNKNOWN_WORD, strings))
        ids = pieces.with_flat_values(tf.gather(self._ids, pieces.flat_values))
        return ids, tf.cast(tf.gather(ids.row_splits, words.row_splits), tf.int32)

    def _places(
        self, ids: tf.RaggedTensor, words: Words
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Where tokens begin and end among the batch's characters: [T], [T]."""
        # The tokens of a word have all its characters, in order; [UNK] has all alone.
        firsts = ids.row_starts()
        first_ids = tf.gather(ids.flat_values, firsts)
        first_lengths = tf.where(
            tf.equal(first_ids, self._unknown_id),
            tf.cast(words.characters.row_lengths(), tf.int32),
            tf.gather(self._lengths, first_ids),
        )
        lengths = tf.tensor_scatter_nd_update(
            tf.gather(self._lengths, ids.flat_values) - len(CONTINUATION),
            firsts[:, None],
            first_lengths,
        )
        token_of = repeat_range(lengths)
        return (
            tf.math.segment_min(words.starts, token_of),
            tf.math.segment_max(words.ends, token_of),
        )


def _is_possible(token: str) -> bool:
    """Whether it may be a word, or a part of one: U+0000 is removed from the text."""
    length = len(token.removeprefix(CONTINUATION))
    return 0 < length <= MAX_CHARACTERS_PER_WORD and "\0" not in token


def _longest_match(tokens: list[str]):
    try:
        import tensorflow_text
    except ImportError as error:
        raise InputError(
            "A model that takes raw text needs tensorflow-text: "
            "pip install tensorflow-text"
        ) from error
    try:
        return tensorflow_text.FastWordpieceTokenizer(
            tokens,
            suffix_indicator=CONTINUATION,
            max_bytes_per_word=MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER,
            token_out_type=tf.int32,
            unknown_token=UNK,
            no_pretokenization=True,
        )
    except RuntimeError as error:
        raise InputError(
            "The vocabulary does not fit into a model that takes raw text; export one "
            f"that takes ids. tensorflow-text: {error}"
        ) from error
