import random
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.records.spec import RecordSpec
from bert_tf.tasks.squad import windows
from bert_tf.tasks.squad.reading import GoldAnswer, Question
from bert_tf.tasks.squad.windows import QuestionFeaturizer
from tests.tasks.squad.toy_tokens import TOKENS, ids, question, tokenizer


def tokenized(context):
    return featurizer().paragraph(context)


def tokens(paragraph):
    return [TOKENS[token_id] for token_id in paragraph.ids]


def words(paragraph):
    return [paragraph.context[start:end] for start, end in paragraph.words]


class ParagraphTest(tf.test.TestCase):
    def test_tokens_and_their_words(self):
        paragraph = tokenized("A bde\t(c-e).\r\n中d  b")
        self.assertEqual(words(paragraph), ["A", "bde", "(c-e).", "中d", "b"])
        found = "a b ##d ##e ( c - e ) . 中 d b"
        self.assertEqual(tokens(paragraph), found.split())
        expected = [0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 4]
        self.assertEqual(paragraph.word_of_token, expected)

    def test_which_spaces_separate_words(self):
        for context, expected_words, word_of_token in (
            # The original's blanks; no-break, ideographic and line separators are none.
            (
                *("a\u202fb c\u00a0d\u3000e\u2028a", "a|b|c\u00a0d\u3000e\u2028a"),
                [0, 1, 2, 2, 2, 2],
            ),
            # Words without a token.
            ("\u00a0 a \u200b\x85 b \u0301", "\u00a0|a|\u200b\x85|b|\u0301", [1, 3]),
            ("", "", []),
            (" \t\u202f\n", "", []),
            ("\u00a0 \x00", "\u00a0|\x00", []),
        ):
            paragraph = tokenized(context)
            self.assertEqual("|".join(words(paragraph)), expected_words)
            self.assertEqual(paragraph.word_of_token, word_of_token)
            self.assertLen(paragraph.offsets, len(word_of_token))

    def test_offsets(self):
        # An accent, on its own and not, belongs to its letter.
        paragraph = tokenized("a\u0301 (É-中 bd")
        self.assertEqual(tokens(paragraph), ["a", "(", "e", "-", "中", "b", "##d"])
        self.assertEqual(
            paragraph.offsets, [(0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (8, 9), (9, 10)]
        )

    def test_a_paragraph_is_tokenized_once(self):
        tokenize = featurizer().paragraph
        first = tokenize("a b")
        self.assertEqual(tokenize("c").ids, [TOKENS.index("c")])
        # Another object with the same text, as data sets have it.
        self.assertIs(tokenize(" ".join("ab")), first)


def featurizer(length=12, stride=3, query=4, **options):
    sizes = {"max_seq_length": length, "doc_stride": stride, "max_query_length": query}
    return QuestionFeaturizer(tokenizer(), **{"for_training": True, **options, **sizes})


def featurize(one, **options):
    (features,) = featurizer(**options)([one])
    return features


def answer_of(context, answer, start=None):
    """The answer's tokens in a paragraph."""
    start = context.index(answer) if start is None else start
    one = Question(
        question_id="q", text="", context=context, answers=(GoldAnswer(answer, start),)
    )
    return featurize(one).answer


class WindowsTest(tf.test.TestCase):
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

    def test_by_hand(self):
        for num_tokens, room, stride, expected in (
            (4, 9, 1, [(0, 3)]),
            # Windows 0-4, 3-7, 6-10. Token 3 has 1 on its right in the first one, 0 on
            # its left in the second; token 4 has 0 and 1.
            (11, 5, 3, [(0, 3), (4, 6), (7, 10)]),
            # The first of equals: windows 0-3, 1-4, 2-5; token 2 has 1 in two of them.
            (6, 4, 1, [(0, 2), (3, 3), (4, 5)]),
            # Length counts for a hundredth: windows of 200 tokens and, from 190 on, of
            # 60. Token 195: 4 + 2.0 on its right in the first one, 5 + 0.6 on its left
            # in the second; token 196: 3 + 2.0, 6.6.
            (250, 200, 190, [(0, 195), (196, 249)]),
            # No overlap.
            (5, 4, 4, [(0, 3), (4, 4)]),
        ):
            found = self.shown_best(num_tokens, room=room, stride=stride)
            self.assertEqual(found, expected)


class AnswerTest(tf.test.TestCase):
    def test_by_hand(self):
        for context, answer, expected in (
            # Narrowed to the answer's tokens.
            ("a (1895-1943).", "1895", (2, 2)),
            ("a (1895-1943).", "1895-1943", (2, 4)),
            ("a (1895-1943).", "1943).", (4, 6)),
            # "b" is a token of "bde"; "de" and "18" are no tokens there.
            ("a bde c", "b", (1, 1)),
            ("a bde c", "de", (1, 3)),
            ("a 1895", "18", (1, 1)),
            # White space counts to the word before; before all words that is the last.
            ("a b c", " b", (1, 1)),
            ("a 1895 c", " 18", (0, 1)),
            (" a b", " ", (1, -1)),
            # Words without a token: from the next token to the one before.
            ("a \u00a0 b", "\u00a0", (1, 0)),
            ("\u00a0 b", "\u00a0", (0, -1)),
            ("b \u00a0", "\u00a0", (1, 0)),
        ):
            self.assertEqual(answer_of(context, answer), expected, (context, answer))
        for context, answer, start, expected in (
            # The first of several places in the words, as in the original.
            ("c b-b", "b", 4, (1, 1)),
            ("b c-b", "b", 4, (3, 3)),
            # Other writing.
            ("a\u0301 É 中中", "E\u0301 中", 3, (1, 2)),
        ):
            self.assertEqual(answer_of(context, answer, start=start), expected)

    def test_none(self):
        self.assertIsNone(featurize(question("a", is_impossible=True)).answer)
        given = question("a", answer="a")
        self.assertIsNone(featurize(given, for_training=False).answer)

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
    def test_settings_tell_features_apart(self):
        others = {"length": 13, "stride": 2, "query": 3, "for_training": False}
        settings = [featurizer(**{k: v}).settings for k, v in others.items()]
        settings.append(featurizer().settings)
        for number, one in enumerate(settings):
            self.assertEqual(settings.index(one), number)
        self.assertEqual(featurizer().settings, settings[-1])


LABELS = ("start_positions", "end_positions", "is_impossible")


def featurizer_records(**options):
    return featurizer(**{"length": 9, "stride": 2, "query": 2, **options})


def rows(blocks):
    """All blocks' arrays as one, as lists."""
    blocks = list(blocks)
    return {
        name: np.concatenate([block[name] for block in blocks]).tolist()
        for name in blocks[0]
    }


def records_of(*questions, **options):
    make = featurizer_records(**options)
    length, for_training = make.max_seq_length, make.for_training
    found = rows(windows.blocks(make(questions), length, for_training=for_training))
    assert found == rows(windows.parallel_blocks(questions, make, num_workers=1))
    return found


def many_questions():
    """Of several lengths, some without windows, some of them for one paragraph."""
    for number in range(0, 60, 3):
        context = " ".join("abcde"[: number % 5] * (number // 2))
        for shift in range(3):
            yield Question(
                question_id=f"{number + shift}",
                text="c " * shift,
                context=context,
                answers=(GoldAnswer("a", 0),),
                is_impossible=number % 4 == 0,
            )


class RecordsTest(tf.test.TestCase):
    def test_a_short_paragraph(self):
        found = records_of(question("b (1895-1943)", text="a", answer="1895"))
        first = ids("[CLS] a [SEP] b ( 1895 - 1943 [SEP]")
        second = ids("[CLS] a [SEP] 1895 - 1943 ) [SEP] [PAD]")
        expected = {
            "unique_ids": [[1000000000], [1000000001]],
            "input_ids": [first, second],
            "input_mask": [[1] * 9, [1] * 8 + [0]],
            "segment_ids": [[0] * 3 + [1] * 6, [0] * 3 + [1] * 5 + [0]],
            "start_positions": [[5], [3]],
            "end_positions": [[5], [3]],
            "is_impossible": [[0], [0]],
        }
        self.assertEqual(found, expected)

    def test_where_a_window_shows_the_answer(self):
        # Windows of 3 tokens: a b c, c d e. One that does not show it whole has none.
        for context, answer, starts, ends in (
            ("a b c d e", "b c", [3, 0], [4, 0]),
            ("a b c d e", "c d", [0, 2], [0, 3]),
            ("a b c d e", "c", [4, 2], [4, 2]),
            ("a b c d e a", "b c d e", [0, 0, 0], [0, 0, 0]),
            # The original's numbers, from the next token to the one before.
            ("a \u00a0 b", "\u00a0", [3], [2]),
        ):
            one = question(context, text="", answer=answer)
            found = records_of(one, length=6, query=1)
            expected = starts, ends, [0] * len(starts)
            for name, values in zip(LABELS, expected, strict=True):
                self.assertEqual(found[name], [[value] for value in values])

    def test_numbers_go_on(self):
        make = featurizer_records()
        questions = [one for _ in range(4) for one in many_questions()]
        blocks = list(windows.parallel_blocks(questions, make, num_workers=1))
        self.assertGreater(len(blocks), 1)
        found = rows(blocks)["unique_ids"]
        self.assertEqual(found, [[10**9 + number] for number in range(len(found))])

    def test_no_windows_no_block(self):
        make = featurizer_records(for_training=False)
        for questions in ([], [question(" ")]):
            self.assertEqual(list(windows.blocks(make(questions), 9)), [])
            self.assertEqual(
                list(windows.parallel_blocks(questions, make, num_workers=1)), []
            )

    def test_blocks_are_bounded(self):
        make = featurizer_records(length=8, stride=1, for_training=False)
        questions = [question("a " * 500, number=number) for number in range(30)]
        for blocks in (
            windows.blocks(make(questions), 8),
            windows.parallel_blocks(questions, make, num_workers=1),
        ):
            sizes = [len(block["unique_ids"]) for block in blocks]
            self.assertGreater(len(sizes), 5)
            self.assertLess(max(sizes), 3000)
            self.assertEqual(sum(sizes), 30 * 497)

    def test_the_same_whatever_the_number_of_processes(self):
        make = featurizer_records(query=1)
        questions = [one for _ in range(4) for one in many_questions()]
        with mock.patch.object(windows, "_GROUPS_ALONE", 1):
            one, two = (
                list(windows.parallel_blocks(questions, make, num_workers=number))
                for number in (1, 2)
            )
        self.assertEqual(len(one), len(two))
        self.assertGreater(len(one), 2)
        for here, there in zip(one, two, strict=True):
            self.assertAllEqual(list(here), list(there))
            for name, array in here.items():
                self.assertAllEqual(array, there[name])
                self.assertEqual(array.dtype, there[name].dtype)


class SchemaTest(tf.test.TestCase):
    def test_what_the_originals_reader_expects(self):
        sizes = {"max_seq_length": 12, "doc_stride": 4, "max_query_length": 3}
        make = QuestionFeaturizer(tokenizer(), for_training=True, **sizes)
        questions = [
            question("a b c d e a b c d e", text="a c", answer="c d"),
            question("a b", text="", is_impossible=True),
        ]
        (block,) = windows.parallel_blocks(questions, make, num_workers=1)
        serialized = RecordSpec.spans(12, for_training=True).serialize_block(block)
        # The names and lengths of its name_to_features, as scalars.
        names = ["unique_ids", "start_positions", "end_positions"]
        spec = dict.fromkeys(names, tf.io.FixedLenFeature([], tf.int64))
        names = ["input_ids", "input_mask", "segment_ids"]
        spec |= dict.fromkeys(names, tf.io.FixedLenFeature([12], tf.int64))
        parsed = tf.io.parse_example(serialized, spec)
        # [CLS] a c [SEP], and a window of 7 tokens: c and d are its third and fourth.
        self.assertAllEqual(parsed["unique_ids"], 1000000000 + np.arange(3))
        self.assertAllEqual(parsed["start_positions"], [6, 0, 0])
        self.assertAllEqual(parsed["end_positions"], [7, 0, 0])
