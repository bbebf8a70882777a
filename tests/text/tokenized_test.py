"""A chunk's lines as packed ids: what is in which document, and what is left out."""

from array import array

import numpy as np
import tensorflow as tf

from bert_tf.text.documents import TextLine
from bert_tf.text.tokenized import DIGEST_BYTES, NO_TOKEN, ChunkTokenizer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import PackedTokenizer, WordPieceTokenizer

END = TextLine((), "", 0)


def line(*sentences):
    return TextLine(sentences, " ".join(sentences), 1)


def encode(text):
    """The lengths of the text's words; "x" gives no token."""
    lengths = [len(word) for word in text.split() if word != "x"]
    return np.array(lengths, np.uint16).tobytes()


class ChunkTokenizerTest(tf.test.TestCase):
    def parts(self, lines, max_bytes=1 << 20, **digests):
        self.tokenizer = ChunkTokenizer(encode, np.uint16, **digests)
        return list(self.tokenizer.parts(lines, max_bytes))

    def test_documents_sentences_tokens(self):
        (part,) = self.parts(
            [line("a bb", "ccc"), line("x"), line("d"), END, END, line("ee"), END]
        )
        self.assertEqual(array("H", bytes(part.tokens)).tolist(), [1, 2, 3, 1, 2])
        self.assertEqual(part.sentence_lengths.tolist(), [2, 1, 1, 1])
        self.assertEqual(part.document_lengths.tolist(), [3, 1])
        self.assertEqual(self.tokenizer.dropped, {NO_TOKEN: 1})
        self.assertFalse(self.tokenizer.begins_with_end)
        self.assertTrue(self.tokenizer.ends_with_end)

    def test_ends_at_the_borders(self):
        for lines, begins, ends in (
            ([line("a")], False, False),
            ([END, line("a")], True, False),
            ([line("x"), END, line("a")], True, False),
            ([line("a"), END, line("x")], False, True),
            ([END], True, True),
            ([], False, False),
        ):
            self.parts(lines)
            self.assertEqual(self.tokenizer.begins_with_end, begins)
            self.assertEqual(self.tokenizer.ends_with_end, ends)

    def test_parts_end_with_documents(self):
        lines = [line("a b c"), line("d"), END, line("e"), END, line("f g"), END]
        parts = self.parts(lines, max_bytes=4)
        self.assertEqual(
            [part.document_lengths.tolist() for part in parts], [[2], [1, 1], []]
        )
        self.assertEqual(
            [part.sentence_lengths.tolist() for part in parts], [[3, 1], [1, 2], []]
        )

    def test_digests_tell_equal_texts(self):
        lines = [
            *(line("a", "b"), line("c"), END),
            *(line("a b"), line("c"), END),  # the same text, split otherwise
            *(line("a b c"), END),
        ]
        (part,) = self.parts(lines, digest_documents=True, digest_paragraphs=True)
        documents = [
            bytes(part.document_digests[start : start + DIGEST_BYTES])
            for start in range(0, len(part.document_digests), DIGEST_BYTES)
        ]
        self.assertLen(documents, 3)
        self.assertEqual(documents[0], documents[1])
        self.assertNotEqual(documents[0], documents[2])
        paragraphs = [
            bytes(part.paragraph_digests[start : start + DIGEST_BYTES])
            for start in range(0, len(part.paragraph_digests), DIGEST_BYTES)
        ]
        self.assertEqual(part.paragraph_lengths.tolist(), [2, 1, 1, 1, 1])
        self.assertEqual(paragraphs[:2], paragraphs[2:4])
        self.assertLen(set(paragraphs), 3)


class PackedTokenizerTest(tf.test.TestCase):
    def test_the_tokenizers_ids(self):
        vocabulary = Vocabulary(["[PAD]", "[UNK]", "play", "##ing", "cat", "##s", "."])
        tokenizer = WordPieceTokenizer(vocabulary)
        for dtype in (np.uint16, np.int32):
            packed = PackedTokenizer(tokenizer, dtype)
            for text in (
                "playing cats.",
                "",
                " \t ",
                "Cat\x1fs",  # str.split would split here, the original does not
                "no\u00a0cats\u3000play.ing",
                "x" * 300 + " cat",
            ):
                ids = np.frombuffer(packed.encode(text), dtype).tolist()
                self.assertEqual(ids, tokenizer.encode(text))

    def test_ids_must_fit(self):
        vocabulary = Vocabulary(["[UNK]", *map(str, range(200))])
        with self.assertRaisesRegex(ValueError, "up to 200. Received: int8"):
            PackedTokenizer(WordPieceTokenizer(vocabulary), np.int8)


if __name__ == "__main__":
    tf.test.main()
