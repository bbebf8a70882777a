"""Tokenized chunks on disk: documents put together, dealt into groups, and dropped."""

import itertools
import os
import tempfile

import tensorflow as tf

from bert_tf.records.tokenized_chunks import TokenizeJob, tokenize_chunk
from bert_tf.records.tokenized_corpus import (
    EMPTIED_DOCUMENTS,
    REPEATED_DOCUMENTS,
    REPEATED_PARAGRAPHS,
    SHORT_DOCUMENTS,
    TokenizedCorpus,
    choose_sentences,
)
from bert_tf.text.documents import make_chunks
from bert_tf.text.vocabulary import Vocabulary

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
        vocab_file = os.path.join(folder, "vocab.txt")
        Vocabulary(TOKENS).save(vocab_file)
        chunks = make_chunks(
            paths, input_format="text", chunk_bytes=chunk_bytes, **options
        )
        self.summaries = [
            tokenize_chunk(
                TokenizeJob(
                    index=index,
                    chunk=chunk,
                    work_folder=folder,
                    vocab_file=vocab_file,
                    do_lower_case=True,
                    deduplicate=deduplicate,
                )
            )
            for index, chunk in enumerate(chunks)
        ]
        self.folder = folder
        self.num_chunks = len(chunks)
        return TokenizedCorpus(
            work_folder=folder,
            token_type="uint16",
            chunk_documents=tuple(summary.num_documents for summary in self.summaries),
        )

    def choose(self, deduplicate="none", min_document_tokens=0):
        return choose_sentences(
            self.folder,
            self.summaries,
            deduplicate=deduplicate,
            min_document_tokens=min_document_tokens,
        )

    def pool(self, corpus, joins=True):
        return as_lists(corpus.pool([joins] * self.num_chunks))


class PoolTest(CorpusCase):
    def test_one_file(self):
        corpus = self.tokenize("12\n3\n\n\n4\n\n")
        self.assertEqual(self.pool(corpus), [[[1, 2], [3]], [[4]]])

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

    def test_a_chunk_that_is_there_is_not_made_again(self):
        self.tokenize("1\n")
        before = sorted(os.listdir(self.folder))
        job = TokenizeJob(
            index=0,
            chunk=None,
            work_folder=self.folder,
            vocab_file="nowhere",
            do_lower_case=True,
        )
        self.assertEqual(tokenize_chunk(job), self.summaries[0])
        self.assertEqual(sorted(os.listdir(self.folder)), before)


class GroupTest(CorpusCase):
    def test_documents_are_dealt_like_cards(self):
        text = "".join(f"{number}\n\n" for number in range(1, 10))
        for chunk_bytes in (1, 4, 11, 1000):
            corpus = self.tokenize(text, chunk_bytes=chunk_bytes)
            groups = [as_lists(corpus.group(group, 4)) for group in range(4)]
            self.assertEqual(
                groups,
                [
                    [[[1]], [[5]], [[9]]],
                    [[[2]], [[6]]],
                    [[[3]], [[7]]],
                    [[[4]], [[8]]],
                ],
            )

    def test_a_group_may_be_empty(self):
        corpus = self.tokenize("1\n\n2\n")
        self.assertEqual(as_lists(corpus.group(2, 3)), [])


class ChooseSentencesTest(CorpusCase):
    def test_repeated_documents(self):
        texts = ("1\n2\n\n3\n\n1\n2\n\n", "3\n\n2\n1\n\n1\n2\n")
        corpus = self.tokenize(*texts, deduplicate="documents")
        dropped = self.choose("documents")
        self.assertEqual(dropped, {REPEATED_DOCUMENTS: 3})
        self.assertEqual(
            self.pool(corpus, joins=False), [[[1], [2]], [[3]], [[2], [1]]]
        )
        # The dropped ones keep their numbers: nobody changes the group.
        self.assertEqual(as_lists(corpus.group(0, 2)), [[[1], [2]], [[2], [1]]])
        self.assertEqual(as_lists(corpus.group(1, 2)), [[[3]]])

    def test_repeated_paragraphs(self):
        text = "1. 2\n3\n\n3\n1\n1. 2\n\n3\n\n4\n"
        corpus = self.tokenize(text, deduplicate="paragraphs", split_sentences=True)
        dropped = self.choose("paragraphs")
        self.assertEqual(dropped, {REPEATED_PARAGRAPHS: 3, EMPTIED_DOCUMENTS: 1})
        self.assertLen(self.pool(corpus), 3)
        self.assertEqual([len(doc) for doc in self.pool(corpus)], [3, 1, 1])

    def test_short_documents(self):
        corpus = self.tokenize("12\n3\n\n4\n\n567\n\n8\n9\n")
        self.assertEqual(self.choose(min_document_tokens=3), {SHORT_DOCUMENTS: 2})
        self.assertEqual(self.pool(corpus), [[[1, 2], [3]], [[5, 6, 7]]])
        self.assertEqual(as_lists(corpus.group(0, 2)), [[[1, 2], [3]], [[5, 6, 7]]])
        self.assertEqual(as_lists(corpus.group(1, 2)), [])

    def test_nothing_to_drop(self):
        corpus = self.tokenize("1\n\n2\n", deduplicate="documents")
        self.assertEqual(self.choose("documents"), {})
        self.assertEqual(self.pool(corpus), [[[1]], [[2]]])


if __name__ == "__main__":
    tf.test.main()
