"""Tokenized chunks on disk: documents put together, dealt into groups, and dropped."""

import importlib.util
import itertools
import os
import random
import tempfile
import unittest
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.addons.corpora.filtering import (
    EMPTIED_DOCUMENTS,
    NEAR_DUPLICATES,
    SHORT_DOCUMENTS,
)
from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import Workers
from bert_tf.records import tokenized_corpus
from bert_tf.records.manifest import OfText
from bert_tf.records.tokenized_corpus import (
    DIGEST_BYTES,
    NO_TOKEN,
    TokenizedChunk,
    tokenize,
    tokenized_parts,
    work_folder,
)
from bert_tf.text.documents import TextLine
from bert_tf.text.sources import make_chunks
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import PackedTokenizer, WordPieceTokenizer

END = TextLine((), "")


def line(*sentences):
    return TextLine(sentences, " ".join(sentences))


def encode(text):
    """The lengths of the text's words; "x" gives no token."""
    lengths = [len(word) for word in text.split() if word != "x"]
    return np.array(lengths, np.uint16).tobytes()


class WorkFolderTest(tf.test.TestCase):
    def test_two_runs_that_begin_at_once(self):
        ours, theirs = (
            os.path.join(self.get_temp_dir(), f".x.work-{digit * 16}") for digit in "01"
        )
        their_run = work_folder(theirs)
        lock = files.lock

        def lock_after_them(path, in_use):
            with mock.patch.object(files, "lock", lock):
                if not os.path.exists(theirs):
                    their_run.__enter__()
                return lock(path, in_use)

        with (
            mock.patch.object(files, "lock", lock_after_them),
            self.assertRaisesRegex(InputError, "another run is making these"),
            work_folder(ours),
        ):
            pass
        self.assertEqual(os.listdir(self.get_temp_dir()), [os.path.basename(theirs)])
        their_run.__exit__(None, None, None)
        with work_folder(ours):
            pass
        self.assertEqual(os.listdir(self.get_temp_dir()), [])


class TokenizedPartsTest(tf.test.TestCase):
    def parts(self, lines, deduplicate="none", language=""):
        self.counts = TokenizedChunk()
        tokenizer = mock.Mock(encode=encode)
        with (
            mock.patch.object(
                tokenized_corpus, "_packed_tokenizer", return_value=tokenizer
            ),
            mock.patch.object(tokenized_corpus, "read_chunk", return_value=lines),
        ):
            chunk = mock.Mock(language=language)
            vocabulary = Vocabulary(["[PAD]", "a", "b", "c", "##d", "[UNK]"])
            return list(
                tokenized_parts(
                    chunk,
                    vocabulary,
                    OfText(True, "none", deduplicate, 5),
                    self.counts,
                )
            )

    def test_documents_sentences_tokens(self):
        (part,) = self.parts(
            [line("a bb", "ccc"), line("x"), line("d"), END, END, line("ee"), END]
        )
        self.assertEqual(part.tokens.tolist(), [1, 2, 3, 1, 2])
        self.assertEqual(part.sentence_lengths.tolist(), [2, 1, 1, 1])
        self.assertEqual(part.document_lengths.tolist(), [3, 1])
        self.assertEqual(
            self.counts.dropped, {NO_TOKEN: 1, f"characters of {NO_TOKEN}": 1}
        )

    def test_sentences_longer_than_a_sequence_are_cut_before_words(self):
        # Of 5 tokens that fit: pieces of 2. A word of four letters, ##d, continues one.
        lines = [line("a a a a a", "a bb a dddd a ccc", "a dddd dddd dddd dddd dddd")]
        (whole,) = self.parts(lines)
        self.assertEqual(whole.sentence_lengths.tolist(), [5, 6, 6])
        (part,) = self.parts(lines, language="th", deduplicate="paragraphs")
        self.assertEqual(part.tokens.tolist(), whole.tokens.tolist())
        pieces = [5, *(2, 2, 2), *(2, 2, 2)]
        self.assertEqual(part.sentence_lengths.tolist(), pieces)
        self.assertEqual(part.text_lengths.tolist(), [len(pieces)])
        self.assertEqual(self.counts.num_sentences, 3)
        (part,) = self.parts([line("a a a dddd a dddd a")], language="en")
        self.assertEqual(part.sentence_lengths.tolist(), [2, 2, 2, 1])
        (part,) = self.parts([line("a a dddd a dddd a a")], language="en")
        self.assertEqual(part.sentence_lengths.tolist(), [1, 2, 2, 2])

    def test_digests_tell_equal_texts(self):
        lines = [
            *(line("a", "b"), line("c"), END),
            *(line("a b"), line("c"), END),  # the same text, split otherwise
            *(line("a b c"), END),
        ]
        for deduplicate, lengths, expected in (
            ("none", [3, 2, 1], []),
            ("documents", [3, 2, 1], [0, 0, 1]),
            ("paragraphs", [2, 1, 1, 1, 1], [0, 1, 0, 1, 2]),
        ):
            (part,) = self.parts(lines, deduplicate=deduplicate)
            digests = part.digests.reshape(-1, DIGEST_BYTES).tolist()
            different = [
                digest for n, digest in enumerate(digests) if digest not in digests[:n]
            ]
            self.assertEqual([different.index(each) for each in digests], expected)
            self.assertEqual(part.text_lengths.tolist(), lengths)


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


WORDS = [f"w{number}" for number in range(50)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def as_lists(documents):
    """Documents as the words' numbers."""
    tokens = (documents.tokens.astype(int) - TOKENS.index("w0")).tolist()
    sentences = documents.sentence_starts.tolist()
    starts = documents.document_starts.tolist()
    return [
        [tokens[sentences[s] : sentences[s + 1]] for s in range(begin, end)]
        for begin, end in itertools.pairwise(starts)
    ]


class CorpusCase(tf.test.TestCase):
    def tokenize(self, *texts, chunk_bytes=1 << 20, deduplicate="none", **options):
        """The corpus of some files, w1 and so on written as 1 and so on."""
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        paths = []
        for number, text in enumerate(texts):
            paths.append(os.path.join(folder, f"{number}.txt"))
            with open(paths[-1], "w") as file:
                file.write(" ".join(f"w{c}" if c.isdigit() else c for c in text))
        chunks = make_chunks(
            paths, input_format="text", chunk_bytes=chunk_bytes, **options
        )
        of_text = OfText(True, "none", deduplicate, None)
        corpus = tokenize(chunks, Vocabulary(TOKENS), of_text, folder, Workers(1))
        self.summaries, self.folder = corpus.chunks, folder
        return corpus

    def choose(self, corpus, deduplicate="none", min_document_tokens=0):
        return corpus.choose_sentences(
            deduplicate=deduplicate, min_document_tokens=min_document_tokens
        )

    def pool(self, corpus, joins=True):
        return as_lists(corpus.documents(joins_files=joins))


class PoolTest(CorpusCase):
    def test_the_end_of_a_file_ends_no_document(self):
        for texts, expected in (
            (("1\n", "2\n"), [[[1], [2]]]),
            (("1\n\n", "2\n"), [[[1]], [[2]]]),
            (("1\n", "\n2\n"), [[[1]], [[2]]]),
            (("1\n", "", "2"), [[[1], [2]]]),
            (("1\n", "\n", "2"), [[[1]], [[2]]]),
            (("1\n\n3", "4\n\n5\n", "6"), [[[1]], [[3], [4]], [[5], [6]]]),
            (("1\n2", "3", "4\n5"), [[[1], [2], [3], [4], [5]]]),
        ):
            corpus = self.tokenize(*texts)
            self.assertEqual(self.pool(corpus), expected)

    def test_unless_it_is_said_to(self):
        corpus = self.tokenize("1\n2", "3\n")
        self.assertEqual(self.pool(corpus, joins=False), [[[1], [2]], [[3]]])

    def test_chunks_of_any_size(self):
        texts = ("1\n23\n\n4\n\n\n5", "6\n7\n\n8\n", "\n9\n\n1\n2\n3\n")
        expected = self.pool(self.tokenize(*texts))
        self.assertEqual(
            expected,
            [[[1], [2, 3]], [[4]], [[5], [6], [7]], [[8]], [[9]], [[1], [2], [3]]],
        )
        for chunk_bytes in (1, 2, 3, 5, 8, 13):
            corpus = self.tokenize(*texts, chunk_bytes=chunk_bytes)
            self.assertEqual(self.pool(corpus), expected)


class GroupTest(CorpusCase):
    def test_documents_are_dealt_like_cards(self):
        text = "".join(f"{number}\n\n" for number in range(1, 10))
        for chunk_bytes in (1, 4, 11, 1000):
            corpus = self.tokenize(text, chunk_bytes=chunk_bytes)
            groups = [as_lists(corpus.documents(group, 4)) for group in range(4)]
            self.assertEqual(
                groups,
                [[[[1]], [[5]], [[9]]], [[[2]], [[6]]], [[[3]], [[7]]], [[[4]], [[8]]]],
            )


class ChooseSentencesTest(CorpusCase):
    def test_repeated_documents(self):
        texts = ("1\n2\n\n3\n\n1\n2\n\n", "3\n\n2\n1\n\n1\n2\n")
        corpus = self.tokenize(*texts, deduplicate="documents")
        dropped = self.choose(corpus, "documents")
        counts = {"repeated documents": 3, "tokens of repeated documents": 5}
        self.assertEqual(dropped, counts)
        self.assertEqual(
            self.pool(corpus, joins=False), [[[1], [2]], [[3]], [[2], [1]]]
        )
        # The dropped ones keep their numbers: nobody changes the group.
        self.assertEqual(as_lists(corpus.documents(0, 2)), [[[1], [2]], [[2], [1]]])
        self.assertEqual(as_lists(corpus.documents(1, 2)), [[[3]]])

    @unittest.skipUnless(importlib.util.find_spec("rensa"), "the extra `near`")
    def test_near_duplicates(self):
        draw = random.Random(0).choices
        first, other = ("".join(draw("123456789", k=400)) for _ in range(2))
        # Of 396 runs of five tokens, five are others with each token that changes.
        near = [
            first[:200] + "x" + first[201:],
            first[5:],
            "1" + first,
        ]
        far = first[:100] + other[:300]
        texts = [first, other, *near, far, "12", "12", "13"]
        text = "".join("\n".join((t[:50], t[50:])).strip() + "\n\n" for t in texts)
        kept = [first, other, far, "12", "13"]
        expected = None
        for chunk_bytes in (300, 1000, 1 << 20):
            corpus = self.tokenize(text, deduplicate="near", chunk_bytes=chunk_bytes)
            dropped = self.choose(corpus, "near")
            num_tokens = sum(map(len, near)) + 2
            self.assertEqual(
                dropped,
                {NEAR_DUPLICATES: 4, f"tokens of {NEAR_DUPLICATES}": num_tokens},
            )
            found = self.pool(corpus, joins=False)
            self.assertEqual([sum(map(len, doc)) for doc in found], [*map(len, kept)])
            expected = expected or found
            self.assertEqual(found, expected)

    def test_repeated_paragraphs(self):
        text = "1. 2\n3\n\n3\n1\n1. 2\n\n3\n\n4\n"
        corpus = self.tokenize(text, deduplicate="paragraphs", split_sentences=True)
        dropped = self.choose(corpus, "paragraphs")
        counts = {"repeated paragraphs": 3, "tokens of repeated paragraphs": 5}
        self.assertEqual(dropped, counts | {EMPTIED_DOCUMENTS: 1})
        self.assertLen(self.pool(corpus), 3)
        self.assertEqual([len(doc) for doc in self.pool(corpus)], [3, 1, 1])

    def test_short_documents(self):
        corpus = self.tokenize("12\n3\n\n4\n\n567\n\n8\n9\n")
        self.assertEqual(
            self.choose(corpus, min_document_tokens=3),
            {SHORT_DOCUMENTS: 2, f"tokens of {SHORT_DOCUMENTS}": 3},
        )
        self.assertEqual(self.pool(corpus), [[[1, 2], [3]], [[5, 6, 7]]])
        self.assertEqual(as_lists(corpus.documents(0, 2)), [[[1, 2], [3]], [[5, 6, 7]]])
        self.assertEqual(as_lists(corpus.documents(1, 2)), [])
