import pickle

import tensorflow as tf

from bert_tf.squad.examples import Paragraph
from bert_tf.squad.paragraphs import ParagraphTokenizer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.squad.toy_tokens import TOKENS, tokenizer


def tokenized(context):
    return ParagraphTokenizer(tokenizer())(Paragraph(context=context))


def tokens(paragraph):
    return [TOKENS[token_id] for token_id in paragraph.ids]


def words(paragraph):
    return [paragraph.context[start:end] for start, end in paragraph.words]


class ParagraphTokenizerTest(tf.test.TestCase):
    def test_tokens_and_their_words(self):
        paragraph = tokenized("A bde\t(c-e).\r\n中d  b")
        self.assertEqual(words(paragraph), ["A", "bde", "(c-e).", "中d", "b"])
        self.assertEqual(
            tokens(paragraph),
            ["a", "b", "##d", "##e", "(", "c", "-", "e", ")", ".", "中", "d", "b"],
        )
        self.assertEqual(
            paragraph.word_of_token, [0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 4]
        )

    def test_which_spaces_separate_words(self):
        # The original's blanks; the no-break, ideographic and line separators are none.
        paragraph = tokenized("a\u202fb c\u00a0d\u3000e\u2028a")
        self.assertEqual(words(paragraph), ["a", "b", "c\u00a0d\u3000e\u2028a"])
        self.assertEqual(paragraph.word_of_token, [0, 1, 2, 2, 2, 2])
        self.assertEqual(tokens(paragraph), list("abcdea"))

    def test_words_without_a_token(self):
        paragraph = tokenized("\u00a0 a \u200b\x85 b \u0301")
        self.assertEqual(words(paragraph), ["\u00a0", "a", "\u200b\x85", "b", "\u0301"])
        self.assertEqual(paragraph.word_of_token, [1, 3])

    def test_paragraphs_without_a_word_or_a_token(self):
        for context, num_words in (("", 0), (" \t\u202f\n", 0), ("\u00a0 \x00", 2)):
            paragraph = tokenized(context)
            self.assertEqual(paragraph.ids, [])
            self.assertEqual(paragraph.word_of_token, [])
            self.assertLen(paragraph.words, num_words)
            self.assertEqual(paragraph.offsets, [])
            self.assertEqual(paragraph.id_array.tolist(), [])

    def test_offsets(self):
        # An accent, on its own and not, belongs to its letter.
        paragraph = tokenized("a\u0301 (É-中 bd")
        self.assertEqual(tokens(paragraph), ["a", "(", "e", "-", "中", "b", "##d"])
        self.assertEqual(
            paragraph.offsets, [(0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (8, 9), (9, 10)]
        )

    def test_written_special_tokens(self):
        recognizing = WordPieceTokenizer(
            Vocabulary(TOKENS), recognize_special_tokens=True
        )
        paragraph = ParagraphTokenizer(recognizing)(Paragraph(context="a [MASK]-b"))
        self.assertEqual(tokens(paragraph), ["a", "[MASK]", "-", "b"])
        self.assertEqual(paragraph.word_of_token, [0, 1, 1, 1])

    def test_a_paragraph_is_tokenized_once(self):
        tokenize = ParagraphTokenizer(tokenizer())
        one, other = Paragraph(context="a b"), Paragraph(context="c")
        first = tokenize(one)
        self.assertEqual(tokenize(other).ids, [TOKENS.index("c")])
        self.assertIs(tokenize(one), first)
        # Another object with the same text, as data sets have it.
        self.assertIs(tokenize(Paragraph(context="a b", title="t")), first)

    def test_paragraphs_long_ago_are_forgotten(self):
        tokenize = ParagraphTokenizer(tokenizer())
        first = tokenize(Paragraph(context="a"))
        for number in range(10):
            tokenize(Paragraph(context=f"b{'-' * number}"))
        again = tokenize(Paragraph(context="a"))
        self.assertIsNot(again, first)
        self.assertEqual(again.ids, first.ids)

    def test_may_be_pickled(self):
        tokenize = ParagraphTokenizer(tokenizer())
        first = tokenize(Paragraph(context="a bd"))
        copy = pickle.loads(pickle.dumps(tokenize))
        self.assertEqual(copy(Paragraph(context="a bd")).ids, first.ids)


if __name__ == "__main__":
    tf.test.main()
