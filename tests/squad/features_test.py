import pickle
import random

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.squad.examples import Answer, Paragraph, Question
from bert_tf.squad.features import Featurizer
from tests.squad.toy_tokens import ids, question, tokenizer


def featurizer(length=12, stride=3, query=4, for_training=True):
    return Featurizer(
        tokenizer(),
        max_seq_length=length,
        doc_stride=stride,
        max_query_length=query,
        for_training=for_training,
    )


def featurize(one, **options):
    (features,) = featurizer(**options)([one])
    return features


def answer_of(context, answer, start=None):
    """The answer's tokens in a paragraph."""
    start = context.index(answer) if start is None else start
    one = Question(
        question_id="q",
        text="",
        paragraph=Paragraph(context=context),
        answers=(Answer(answer, start),),
    )
    return featurize(one).answer


class WindowsTest(tf.test.TestCase):
    def windows(self, num_tokens, **options):
        one = question(" ".join("a" * num_tokens), text="e")
        return featurize(one, for_training=False, **options).windows

    def test_stride(self):
        # The question leaves room for 8.
        self.assertEqual(self.windows(1), [(0, 1)])
        self.assertEqual(self.windows(8), [(0, 8)])
        self.assertEqual(self.windows(9), [(0, 8), (3, 6)])
        self.assertEqual(self.windows(11), [(0, 8), (3, 8)])
        self.assertEqual(self.windows(12), [(0, 8), (3, 8), (6, 6)])

    def test_a_stride_that_is_longer_than_a_window(self):
        for stride in (8, 9, 1000):
            self.assertEqual(self.windows(17, stride=stride), [(0, 8), (8, 8), (16, 1)])

    def test_the_smallest_stride_and_room(self):
        self.assertEqual(
            self.windows(3, length=5, query=1, stride=1), [(0, 1), (1, 1), (2, 1)]
        )

    def test_the_question_leaves_what_room_it_does_not_need(self):
        one = question("a a a a a a a a", text="")
        features = featurize(one, length=10, for_training=False)
        self.assertEqual(features.windows, [(0, 7), (3, 5)])

    def test_a_question_is_cut(self):
        one = question("a b", text="a bd-c e")
        features = featurize(one, for_training=False)
        self.assertEqual(features.query_ids, ids("a b ##d -"))
        self.assertEqual(features.offset, 6)
        self.assertEqual(featurize(one, query=2, for_training=False).offset, 4)

    def test_a_question_of_spaces(self):
        features = featurize(question("a", text=" \u00a0\n"), for_training=False)
        self.assertEqual(features.query_ids, [])
        self.assertEqual(features.offset, 2)
        self.assertEqual(features.windows, [(0, 1)])

    def test_a_paragraph_without_tokens(self):
        for context in ("", " ", "\u00a0"):
            for for_training in (False, True):
                one = question(context, answer=context)
                features = featurize(one, for_training=for_training)
                self.assertEqual(features.windows, [])
                self.assertIsNone(features.answer)
                self.assertEqual(features.max_context(), [])

    def test_questions_in_their_order(self):
        paragraph = Paragraph(context="a b")
        questions = [
            Question(question_id=str(number), text=text, paragraph=paragraph)
            for number, text in enumerate(("a", "b", "", "c"))
        ]
        found = list(featurizer(for_training=False)(questions))
        self.assertEqual([one.question for one in found], questions)
        self.assertEqual([len(one.query_ids) for one in found], [1, 1, 0, 1])
        self.assertLen({id(one.paragraph) for one in found}, 1)


class MaxContextTest(tf.test.TestCase):
    def shown_best(self, num_tokens, *, room, stride):
        """Of each window, the first and last token that it shows best."""
        one = question(" ".join("a" * num_tokens), text="")
        features = featurize(
            one, length=room + 3, query=1, stride=stride, for_training=False
        )
        spans = []
        for window, best in zip(features.windows, features.max_context(), strict=True):
            self.assertLen(best, window.length)
            places = [window.start + place for place in best.nonzero()[0].tolist()]
            # They are one after another.
            self.assertEqual(places, list(range(places[0], places[-1] + 1)))
            spans.append((places[0], places[-1]))
        return spans

    def test_one_window(self):
        self.assertEqual(self.shown_best(4, room=9, stride=1), [(0, 3)])

    def test_more_context_wins(self):
        # Windows 0-4, 3-7, 6-10. Token 3 has 1 on its right in the first one, 0 on its
        # left in the second; token 4 has 0 and 1.
        self.assertEqual(
            self.shown_best(11, room=5, stride=3), [(0, 3), (4, 6), (7, 10)]
        )

    def test_the_first_of_equals_wins(self):
        # Windows 0-3, 1-4, 2-5: token 2 has 1 in the first two.
        self.assertEqual(self.shown_best(6, room=4, stride=1), [(0, 2), (3, 3), (4, 5)])

    def test_length_counts_for_a_hundredth(self):
        # Windows of 200 tokens and, from 190 on, of 60. Token 195: 4 + 2.0 on its right
        # in the first one, 5 + 0.6 on its left in the second; token 196: 3 + 2.0, 6.6.
        self.assertEqual(
            self.shown_best(250, room=200, stride=190), [(0, 195), (196, 249)]
        )

    def test_no_overlap(self):
        self.assertEqual(self.shown_best(5, room=4, stride=4), [(0, 3), (4, 4)])


class AnswerTest(tf.test.TestCase):
    def test_a_word(self):
        self.assertEqual(answer_of("a b c", "b"), (1, 1))
        self.assertEqual(answer_of("a bde c", "bde"), (1, 3))
        self.assertEqual(answer_of("a bd c-d", "bd c"), (1, 3))

    def test_narrowed_to_the_answers_tokens(self):
        self.assertEqual(answer_of("a (1895-1943).", "1895"), (2, 2))
        self.assertEqual(answer_of("a (1895-1943).", "1895-1943"), (2, 4))
        self.assertEqual(answer_of("a (1895-1943).", "1943)."), (4, 6))

    def test_part_of_a_token(self):
        # "b" is a token of "bde"; "de" and "18" are no tokens there.
        self.assertEqual(answer_of("a bde c", "b"), (1, 1))
        self.assertEqual(answer_of("a bde c", "de"), (1, 3))
        self.assertEqual(answer_of("a 1895", "18"), (1, 1))

    def test_the_first_of_several_places_in_the_words(self):
        # As in the original, even where the answer is the second one.
        self.assertEqual(answer_of("c b-b", "b", start=4), (1, 1))
        self.assertEqual(answer_of("b c-b", "b", start=4), (3, 3))

    def test_the_paragraphs_ends(self):
        self.assertEqual(answer_of("a b c", "a"), (0, 0))
        self.assertEqual(answer_of("a b c", "c"), (2, 2))
        self.assertEqual(answer_of("a b c ", "c "), (2, 2))
        self.assertEqual(answer_of("a b c", "a b c"), (0, 2))
        self.assertEqual(answer_of("a", "a"), (0, 0))

    def test_white_space_counts_to_the_word_before(self):
        self.assertEqual(answer_of("a b c", " b"), (1, 1))
        self.assertEqual(answer_of("a 1895 c", " 18"), (0, 1))
        # Before all words the original comes upon the last one.
        self.assertEqual(answer_of(" a b", " "), (1, -1))

    def test_other_writing(self):
        self.assertEqual(answer_of("a\u0301 É 中中", "E\u0301 中", start=3), (1, 2))
        self.assertEqual(answer_of("a 中中d", "中d"), (2, 3))

    def test_words_without_a_token(self):
        # From the next token to the one before, as in the original.
        self.assertEqual(answer_of("a \u00a0 b", "\u00a0"), (1, 0))
        self.assertEqual(answer_of("\u00a0 b", "\u00a0"), (0, -1))
        self.assertEqual(answer_of("b \u00a0", "\u00a0"), (1, 0))

    def test_none(self):
        self.assertIsNone(featurize(question("a", is_impossible=True)).answer)
        self.assertIsNone(
            featurize(question("a", answer="a"), for_training=False).answer
        )

    def test_the_first_answer_counts(self):
        one = Question(
            question_id="q",
            text="",
            paragraph=Paragraph(context="a b c"),
            answers=(Answer("b", 2), Answer("c", 4)),
        )
        self.assertEqual(featurize(one).answer, (1, 1))

    def test_refuses_a_question_without_an_answer(self):
        with self.assertRaisesRegex(ValueError, "must have an answer.*'q0'"):
            featurize(question("a"))

    def test_as_word_by_word_and_token_by_token(self):
        rng = random.Random(0)
        pieces = ["a", "bd", "(", "-b", "é", "中", " ", " ", "\u00a0", "\t", "\u200b"]
        narrowed = 0
        for _ in range(1000):
            context = "".join(rng.choices(pieces, k=rng.randint(1, 12)))
            start = rng.randrange(len(context))
            answer = context[start : rng.randint(start + 1, len(context))]
            if not tokenizer().encode(context) or context[0].isspace():
                continue
            expected = plain_answer(context, answer, start)
            self.assertEqual(answer_of(context, answer, start), expected[0])
            narrowed += expected[1]
        self.assertGreater(narrowed, 100)


def plain_answer(context, answer, start):
    """The answer's tokens, and whether they are fewer than its words'.

    Each character is given its word, each token too; of all spans in the words' tokens,
    those that begin first and end last come first.
    """
    encode = tokenizer().encode
    word_of_character = []
    words = [""]
    for character in context:
        if character in " \t\r\n\u202f":
            word_of_character.append(len(words) - 1 - (words[-1] == ""))
            if words[-1]:
                words.append("")
        else:
            words[-1] += character
            word_of_character.append(len(words) - 1)
    tokens = [(token, number) for number, w in enumerate(words) for token in encode(w)]
    begin = word_of_character[start]
    end = word_of_character[start + len(answer) - 1]
    first = sum(word < begin for _, word in tokens)
    last = sum(word <= end for _, word in tokens) - 1
    for i in range(first, last + 1):
        for j in range(last, i - 1, -1):
            if [token for token, _ in tokens[i : j + 1]] == encode(answer):
                return (i, j), (i, j) != (first, last)
    return (first, last), False


class FeaturizerTest(tf.test.TestCase):
    def test_refuses_lengths_that_leave_no_room(self):
        with self.assertRaisesRegex(InputError, "greater.*Received: 12 and 9"):
            featurizer(query=9)
        featurizer(query=8)
        with self.assertRaisesRegex(InputError, "--doc_stride.*at least 1.*: 0"):
            featurizer(stride=0)
        with self.assertRaisesRegex(InputError, "--max_query_length.*at least 0"):
            featurizer(query=-1)

    def test_settings_tell_features_apart(self):
        settings = [
            featurizer(**options).settings
            for options in (
                {},
                {"length": 13},
                {"stride": 2},
                {"query": 3},
                {"for_training": False},
            )
        ]
        for number, one in enumerate(settings):
            self.assertEqual(settings.index(one), number)
        self.assertEqual(featurizer().settings, settings[0])

    def test_may_be_pickled(self):
        make = featurizer()
        one = question("a b c", answer="b")
        next(make([one]))
        copy = pickle.loads(pickle.dumps(make))
        self.assertEqual(next(copy([one])).answer, (1, 1))
        self.assertEqual(copy.settings, make.settings)


if __name__ == "__main__":
    tf.test.main()
