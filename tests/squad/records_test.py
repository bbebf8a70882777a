from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.squad import records
from bert_tf.squad.examples import Answer, Paragraph, Question
from bert_tf.squad.features import Featurizer
from tests.squad.toy_tokens import ids, question, tokenizer

LABELS = ("start_positions", "end_positions", "is_impossible")


def featurizer(length=9, stride=2, query=2, for_training=True):
    return Featurizer(
        tokenizer(),
        max_seq_length=length,
        doc_stride=stride,
        max_query_length=query,
        for_training=for_training,
    )


def rows(blocks):
    """All blocks' arrays as one, as lists."""
    blocks = list(blocks)
    return {
        name: np.concatenate([block[name] for block in blocks]).tolist()
        for name in blocks[0]
    }


def records_of(*questions, **options):
    make = featurizer(**options)
    found = rows(
        records.blocks(
            make(questions), make.max_seq_length, for_training=make.for_training
        )
    )
    assert found == rows(records.parallel_blocks(questions, make, num_workers=1))
    return found


def many_questions():
    """Of several lengths, some without windows, some of them for one paragraph."""
    for number in range(0, 60, 3):
        paragraph = Paragraph(context=" ".join("abcde"[: number % 5] * (number // 2)))
        for shift in range(3):
            yield Question(
                question_id=f"{number + shift}",
                text="c " * shift,
                paragraph=paragraph,
                answers=(Answer("a", 0),),
                is_impossible=number % 4 == 0,
            )


class RecordsTest(tf.test.TestCase):
    def test_a_short_paragraph(self):
        found = records_of(question("b (1895-1943)", text="a", answer="1895"))
        self.assertEqual(
            found,
            {
                "unique_ids": [[1000000000], [1000000001]],
                "input_ids": [
                    ids("[CLS] a [SEP] b ( 1895 - 1943 [SEP]"),
                    ids("[CLS] a [SEP] 1895 - 1943 ) [SEP] [PAD]"),
                ],
                "input_mask": [[1] * 9, [1] * 8 + [0]],
                "segment_ids": [
                    [0, 0, 0, 1, 1, 1, 1, 1, 1],
                    [0, 0, 0, 1, 1, 1, 1, 1, 0],
                ],
                "start_positions": [[5], [3]],
                "end_positions": [[5], [3]],
                "is_impossible": [[0], [0]],
            },
        )

    def test_padding(self):
        found = records_of(question("b", text="a c", answer="b"), length=10)
        self.assertEqual(found["input_ids"], [ids("[CLS] a c [SEP] b [SEP]") + [0] * 4])
        self.assertEqual(found["input_mask"], [[1] * 6 + [0] * 4])
        self.assertEqual(found["segment_ids"], [[0] * 4 + [1] * 2 + [0] * 4])

    def test_an_answer_that_a_window_does_not_show_whole(self):
        # Windows of 3 tokens: a b c, c d e; and, of 6, an answer in none of them.
        found = records_of(
            question("a b c d e", text="", answer="b c"), length=6, query=1
        )
        self.assertEqual(found["start_positions"], [[3], [0]])
        self.assertEqual(found["end_positions"], [[4], [0]])
        found = records_of(
            question("a b c d e", text="", answer="c d"), length=6, query=1
        )
        self.assertEqual(found["start_positions"], [[0], [2]])
        self.assertEqual(found["end_positions"], [[0], [3]])
        found = records_of(
            question("a b c d e a", text="", answer="b c d e"), length=6, query=1
        )
        self.assertEqual(found["start_positions"], [[0]] * 3)
        self.assertEqual(found["end_positions"], [[0]] * 3)
        self.assertEqual(found["is_impossible"], [[0]] * 3)

    def test_an_answer_at_the_ends_of_a_window(self):
        found = records_of(
            question("a b c d e", text="", answer="c"), length=6, query=1
        )
        self.assertEqual(found["start_positions"], [[4], [2]])
        self.assertEqual(found["end_positions"], [[4], [2]])

    def test_an_impossible_question(self):
        found = records_of(question("a b", is_impossible=True))
        self.assertEqual([found[name] for name in LABELS], [[[0]], [[0]], [[1]]])

    def test_an_answer_without_a_token(self):
        # The original's numbers, from the next token to the one before.
        found = records_of(question("a \u00a0 b", text="", answer="\u00a0"))
        self.assertEqual(found["start_positions"], [[3]])
        self.assertEqual(found["end_positions"], [[2]])

    def test_for_prediction_there_are_no_labels(self):
        found = records_of(question("a", answer="a"), for_training=False)
        self.assertEqual(
            set(found), {"unique_ids", "input_ids", "input_mask", "segment_ids"}
        )

    def test_a_question_of_spaces(self):
        found = records_of(question("a", text=" ", answer="a"))
        self.assertEqual(found["input_ids"][0][:5], ids("[CLS] [SEP] a [SEP] [PAD]"))
        self.assertEqual(found["start_positions"], [[2]])

    def test_numbers_go_on(self):
        make = featurizer()
        questions = [one for _ in range(4) for one in many_questions()]
        blocks = list(
            records.parallel_blocks(questions, make, num_workers=1, first_unique_id=7)
        )
        self.assertGreater(len(blocks), 1)
        found = rows(blocks)["unique_ids"]
        self.assertEqual(found, [[7 + number] for number in range(len(found))])

    def test_no_windows_no_block(self):
        make = featurizer(for_training=False)
        for questions in ([], [question(" ")]):
            self.assertEqual(list(records.blocks(make(questions), 9)), [])
            self.assertEqual(
                list(records.parallel_blocks(questions, make, num_workers=1)), []
            )

    def test_blocks_are_bounded(self):
        make = featurizer(length=8, stride=1, for_training=False)
        questions = [question("a " * 500, number=number) for number in range(30)]
        for blocks in (
            records.blocks(make(questions), 8),
            records.parallel_blocks(questions, make, num_workers=1),
        ):
            sizes = [len(block["unique_ids"]) for block in blocks]
            self.assertGreater(len(sizes), 5)
            self.assertLess(max(sizes), 3000)
            self.assertEqual(sum(sizes), 30 * 497)

    def test_a_small_set_starts_no_process(self):
        with mock.patch("concurrent.futures.ProcessPoolExecutor.submit") as submit:
            found = rows(
                records.parallel_blocks(many_questions(), featurizer(), num_workers=2)
            )
        submit.assert_not_called()
        self.assertGreater(len(found["unique_ids"]), 100)

    def test_the_same_whatever_the_number_of_processes(self):
        # One in three questions has a token too many.
        make = featurizer(query=1)
        questions = [one for _ in range(4) for one in many_questions()]
        cut = [records.CutQuestions(), records.CutQuestions()]
        with mock.patch.object(records, "_GROUPS_ALONE", 1):
            one, two = (
                list(
                    records.parallel_blocks(
                        questions, make, num_workers=number, cut=cut[number - 1]
                    )
                )
                for number in (1, 2)
            )
        self.assertEqual([counted.number for counted in cut], [80, 80])
        self.assertEqual(len(one), len(two))
        self.assertGreater(len(one), 2)
        for here, there in zip(one, two, strict=True):
            self.assertAllEqual(list(here), list(there))
            for name, array in here.items():
                self.assertAllEqual(array, there[name])
                self.assertEqual(array.dtype, np.int64)


if __name__ == "__main__":
    tf.test.main()
