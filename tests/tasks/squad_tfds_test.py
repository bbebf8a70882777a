"""SQuAD of TensorFlow Datasets: the library's own sets, mocked, and one made here."""

import tempfile

import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.errors import InputError
from bert_tf.tasks.squad_tfds import TfdsSquad

TOWER = "The tower is 300 m high. It leans."
RIVER = "The river Ohre flows to the Elbe."
# As the library shuffles them: id, title, context, answers.
ROWS = (
    ("t2", "Tower", TOWER, [("leans.", 28)]),
    ("r1", "River", RIVER, [("Ohre", 10), ("Ohre ", 10)]),
    ("t1", "Tower", TOWER, [("300 m", 13)]),
    ("r2", "River", RIVER, []),
)
BY_PARAGRAPH = ["t2", "t1", "r1", "r2"]


def rows(features, *, ids_of_two=(), question=b"What of it?"):
    """ROWS with the features of a set; those of two are impossible."""
    for question_id, title, context, answers in ROWS:
        texts = [text for text, _ in answers]
        starts = [start for _, start in answers]
        row = {
            "id": question_id,
            "title": title,
            "context": context,
            "question": question,
            "answers": {"text": texts, "answer_start": starts},
            "plausible_answers": {"text": ["no"], "answer_start": [0]},
            "is_impossible": question_id in ids_of_two,
        }
        yield {name: row[name] for name in features}


def mocked(**kwargs):
    def as_dataset(self, split, **_):
        return tf.data.Dataset.from_generator(
            lambda: rows(self.info.features, **kwargs),
            output_types=self.info.features.dtype,
            output_shapes=self.info.features.shape,
        )

    return tfds.testing.mock_data(
        as_dataset_fn=as_dataset, policy=tfds.testing.MockPolicy.USE_CODE
    )


class LibrarysSetsTest(tf.test.TestCase):
    def test_questions_by_paragraph(self):
        with mocked():
            squad = TfdsSquad("squad/v1.1", "validation")
            questions = list(squad)
        self.assertEqual([q.question_id for q in questions], BY_PARAGRAPH)
        self.assertEqual(questions[0].text, "What of it?")
        self.assertIs(questions[0].paragraph, questions[1].paragraph)
        self.assertEqual(questions[1].paragraph.context, TOWER)
        self.assertEqual(questions[2].paragraph.title, "River")
        self.assertEqual(
            [q.answers for q in questions],
            [
                (("leans.", 28),),
                (("300 m", 13),),
                (("Ohre", 10), ("Ohre ", 10)),
                (),
            ],
        )
        self.assertEqual(
            squad.identity,
            {
                "tfds": "squad/v1.1/3.0.0",
                "split": "validation",
                "version_2_with_negative": False,
                "for_training": False,
            },
        )
        self.assertEqual(squad.report.num_usable, 4)

    def test_training(self):
        with mocked(), self.assertLogs(level="WARNING") as logs:
            squad = TfdsSquad("squad/v1.1", "train", for_training=True)
            questions = list(squad)
            self.assertLen(list(squad), 3)
        self.assertEqual([len(q.answers) for q in questions], [1, 1, 1])
        (warning,) = (line for line in logs.output if "skipped" in line)
        self.assertIn(
            "tfds:squad/v1.1/3.0.0:train: article 'River', question 'r2': it has no"
            " answer, nor is it impossible; skipped.",
            warning,
        )

    def test_questions_without_an_answer(self):
        with mocked(ids_of_two=("r2",)):
            squad = TfdsSquad(
                "squad/v2.0", "train", version_2_with_negative=True, for_training=True
            )
            impossible = [q.question_id for q in squad if q.is_impossible]
            self.assertEqual(impossible, ["r2"])
            with self.assertRaisesRegex(
                InputError, "'r2'.* SQuAD 2.0: give --version_2_with_negative"
            ):
                list(TfdsSquad("squad/v2.0", "train"))

    def test_other_sets_of_these_features(self):
        for name in ("xquad/zh", "mlqa/de", "tydi_qa"):
            with mocked():
                questions = list(TfdsSquad(name, "validation"))
            self.assertEqual([q.question_id for q in questions], BY_PARAGRAPH)

    def test_texts_that_are_not_utf8(self):
        with mocked(question=b"Wo\xdf?"), self.assertRaisesRegex(
            InputError, r"tfds:squad/.*: a question is not UTF-8 \(byte 0xdf\)"
        ):  # fmt: skip
            list(TfdsSquad("squad/v1.1", "train"))

    def test_sets_without_these_features(self):
        with mocked(), self.assertRaisesRegex(
            InputError, "glue/cola/2.0.0 must have the features of SQuAD.* It has:"
        ) as raised:  # fmt: skip
            TfdsSquad("glue/cola", "train")
        self.assertNotIn("\n", str(raised.exception))


class Towers(tfds.core.GeneratorBasedBuilder):
    """Questions as the library prepares them, without titles."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = None  # nothing is downloaded, so no checksums lie beside the code

    def _info(self):
        answers = {"text": tfds.features.Text(), "answer_start": tf.int32}
        features = {
            "id": tfds.features.Text(),
            "context": tfds.features.Text(),
            "question": tfds.features.Text(),
            "answers": tfds.features.Sequence(answers),
            "picture": tfds.features.Tensor(shape=(4,), dtype=tf.int64),
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number in range(600):
            yield (
                number,
                {
                    "id": str(number),
                    "context": f"Tower {number % 30} is {number % 30} m high.",
                    "question": f"Question {number}?",
                    "answers": {"text": ["Tower"], "answer_start": [0]},
                    "picture": [1, 2, 3, 4],
                },
            )


class PreparedSetTest(tf.test.TestCase):
    def test_all_questions_of_a_split_by_paragraph(self):
        tfds.disable_progress_bar()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        squad = TfdsSquad("towers", "train", folder, for_training=True)
        questions = list(squad)
        numbers = [int(question.question_id) for question in questions]
        self.assertCountEqual(numbers, range(600))
        for place, question in enumerate(questions):
            # 30 paragraphs of 20 questions each.
            self.assertEqual(numbers[place] % 30, numbers[place - place % 20] % 30)
            self.assertIs(question.paragraph, questions[place - place % 20].paragraph)
            self.assertStartsWith(
                question.paragraph.context, f"Tower {numbers[place] % 30} is"
            )
            self.assertEqual(question.text, f"Question {numbers[place]}?")
        self.assertEqual([int(q.question_id) for q in squad], numbers)
        self.assertLen(list(TfdsSquad("towers", "train[:10%]", folder)), 60)
        with self.assertRaisesRegex(
            InputError, "towers/1.0.0 has no split 'test'; it has: train"
        ):
            list(TfdsSquad("towers", "test", folder))


if __name__ == "__main__":
    tf.test.main()
