"""SQuAD files: their questions in order, faults with their places, memory."""

import copy
import gzip
import hashlib
import json
import lzma
import os
import tempfile
import tracemalloc

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.squad.reader import SquadFile

IDS = ["t1", "t2", "t3", "r1"]
TOWER = "The tower is 300 m high. It leans."
RIVER = "The river Ohre flows to the Elbe."


def answer(text, start):
    return {"text": text, "answer_start": start}


def qa(question_id, *answers, **values):
    """A question of its own words."""
    question = f"What of {question_id}?"
    return {"id": question_id, "question": question, "answers": [*answers], **values}


def article(title, *paragraphs):
    """An article of (context, questions)."""
    return {
        "title": title,
        "paragraphs": [{"context": text, "qas": qas} for text, qas in paragraphs],
    }


def plain():
    """Two articles, three paragraphs, four questions."""
    return {
        "version": "1.1",
        "data": [
            article(
                "Tower",
                (
                    TOWER,
                    [qa("t1", answer("300 m", 13)), qa("t2", answer("leans.", 28))],
                ),
                ("", []),
                (TOWER[:24], [qa("t3", answer("The tower", 0))]),
            ),
            article("River", (RIVER, [qa("r1", answer("Ohre", 10))])),
        ],
    }


class ReaderTest(tf.test.TestCase):
    def file(self, content, name="squad.json", **flags):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        path = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), name)
        with open(path, "wb") as file:
            file.write(content)
        return SquadFile(path, **flags)

    def read(self, content, **flags):
        """The questions, what was said of them, and the report."""
        file = self.file(content, **flags)
        with self.assertLogs(level="DEBUG") as logs:
            questions = list(file)
            file.report.log_summary()
        messages = [
            record.getMessage().removeprefix(f"{file.path}: ")
            for record in logs.records
        ]
        return questions, messages, file.report

    def of_river(self, *qas, for_training=True, **flags):
        """The questions read from those of one paragraph, and what was said."""
        content = plain()
        content["data"][1]["paragraphs"][0]["qas"] += qas
        questions, messages, report = self.read(
            content, for_training=for_training, **flags
        )
        self.assertEqual(report.num_questions, 4 + len(qas))
        self.assertLen(questions, report.num_usable)
        return questions[4:], messages, report

    def test_questions_in_the_files_order(self):
        for for_training in (False, True):
            questions, messages, report = self.read(plain(), for_training=for_training)
            self.assertEqual([q.question_id for q in questions], IDS)
            self.assertEqual(
                [q.text for q in questions], [f"What of {i}?" for i in IDS]
            )
            titles = [q.paragraph.title for q in questions]
            self.assertEqual(titles, ["Tower", "Tower", "Tower", "River"])
            self.assertEqual(
                [q.paragraph.context for q in questions],
                [TOWER, TOWER, TOWER[:24], RIVER],
            )
            self.assertIs(questions[0].paragraph, questions[1].paragraph)
            self.assertEqual(
                [q.answers for q in questions],
                [
                    (("300 m", 13),),
                    (("leans.", 28),),
                    (("The tower", 0),),
                    (("Ohre", 10),),
                ],
            )
            self.assertEqual(messages, ["Skipped 0 of 4 questions."])
            self.assertEqual(report.num_usable, 4)

    def test_again_and_packed_and_in_other_orders(self):
        content = json.dumps(plain(), indent=2).encode()
        for name, packed in (
            ("a.json", content),
            ("a.json", b"\xef\xbb\xbf" + content),
            ("a.json", json.dumps(plain(), sort_keys=True).encode()),
            ("a.json.gz", gzip.compress(content[:99]) + gzip.compress(content[99:])),
            ("a.json.xz", lzma.compress(content)),
        ):
            file = self.file(packed, name)
            for _ in range(2):
                ids = [question.question_id for question in file]
                self.assertEqual(ids, IDS)
            if packed is not content:
                continue
            first, second = iter(file), iter(file)
            next(first)
            self.assertEqual(next(second).question_id, "t1")
            self.assertEqual(next(first).question_id, "t2")

    def test_identity(self):
        content = json.dumps(plain()).encode()
        expected = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "version_2_with_negative": True,
            "for_training": False,
        }
        for name, packed in (("a", content), ("a.gz", gzip.compress(content))):
            file = self.file(packed, name, version_2_with_negative=True)
            self.assertEqual(file.identity, expected)
        file = self.file(content, for_training=True)
        self.assertEqual(
            file.identity,
            {**expected, "version_2_with_negative": False, "for_training": True},
        )

    def test_questions_without_an_answer(self):
        impossible = qa("r2", is_impossible=True, plausible_answers=[answer("", -9)])
        for for_training in (False, True):
            (question,), _, _ = self.of_river(
                impossible, for_training=for_training, version_2_with_negative=True
            )
            self.assertTrue(question.is_impossible)
            self.assertEqual(question.answers, ())
            with self.assertRaisesRegex(
                InputError,
                r"squad.json: article 2 \('River'\), paragraph 1, question 'r2': it has"
                " no answer, as in SQuAD 2.0: give --version_2_with_negative.$",
            ):
                self.of_river(impossible, for_training=for_training)

    def test_no_answers_and_not_a_word_on_whether_there_are_any(self):
        content = {"data": [article("T", (TOWER, [qa("t1"), qa("t2")]))]}
        content["data"][0]["paragraphs"][0]["qas"][1]["is_impossible"] = False
        for for_training in (False, True):
            questions, _, report = self.read(
                content, version_2_with_negative=True, for_training=for_training
            )
            first, *others = questions
            self.assertTrue(first.is_impossible)
            # The one that says that it has an answer is trained on only with one.
            self.assertLen(others, 0 if for_training else 1)
            self.assertEqual(report.skipped.total(), int(for_training))

    def test_answers_of_impossible_questions(self):
        entry = qa("r2", answer("Ohre", 10), is_impossible=True)
        (question,), _, _ = self.of_river(entry, version_2_with_negative=True)
        self.assertEqual(question.answers, ())
        (question,), _, _ = self.of_river(
            entry, for_training=False, version_2_with_negative=True
        )
        self.assertEqual(question.answers, (("Ohre", 10),))

    def test_numbers_as_ids(self):
        (question,), _, _ = self.of_river(qa(262133, answer("Elbe", 28)))
        self.assertEqual(question.question_id, "262133")

    def test_malformed_questions(self):
        good = qa("r2", answer("Ohre", 10))
        for name, value, what in (
            ("id", None, "question 2: its `id` must be text or a number. Found: None"),
            ("id", True, "question 2: its `id` must be text or a number. Found: True"),
            ("id", "r1", "question 'r1': a question before it has the same id"),
            ("question", None, "question 'r2': its `question` must be text. Found: No"),
            ("question", [1], "question 'r2': its `question` must be text. Found: [1]"),
        ):  # fmt: skip
            for for_training in (False, True):
                questions, messages, _ = self.of_river(
                    {**good, name: value}, for_training=for_training
                )
                self.assertEmpty(questions)
                where = "article 2 ('River'), paragraph 1, "
                self.assertStartsWith(messages[0], f"{where}{what}")
                self.assertEndsWith(messages[0], "; skipped.")
                kind = "with the id of an earlier one" if value == "r1" else "malformed"
                self.assertEqual(messages[1], f"Skipped 1 of 5 questions: 1 {kind}.")
        questions, messages, _ = self.of_river("r2", good)
        self.assertLen(questions, 1)
        self.assertIn("question 2: it must be an object. Found: 'r2'", messages[0])

    def test_answers_that_cannot_be_trained_on(self):
        bad_place = answer("Elbe", 30)
        for entry, what, kind in (
            (qa("r2"), "has no answer, nor is it impossible", "without an answer"),
            (qa("r2", answers=None), "`answers` must be a list", "malformed"),
            (qa("r2", answers={"text": ["Elbe"]}), "must be a list", "malformed"),
            (qa("r2", {"text": "Elbe"}), "`answer_start` must be", "malformed"),
            (qa("r2", answer("", 0)), "an answer is empty", "malformed"),
            (qa("r2", is_impossible="no"), "must be true or false", "malformed"),
            (qa("r2", bad_place), "not within", "with an answer outside the context"),
            (
                qa("r2", answer("Elbe", 10)),
                "the answer 'Elbe' is not in the words at answer_start 10: 'Ohre'",
                "with an answer that the words at its place do not give",
            ),
        ):
            questions, messages, _ = self.of_river(entry)
            self.assertEmpty(questions)
            self.assertStartsWith(
                messages[0], "article 2 ('River'), paragraph 1, question 'r2': "
            )
            self.assertIn(what, messages[0])
            self.assertEqual(messages[1], f"Skipped 1 of 5 questions: 1 {kind}.")

    def test_faulty_answers_cost_no_question_that_is_not_trained_on(self):
        entry = qa(
            "r2",
            answer("Elbe", 28),
            answer("Elbe", 10),
            answer("", 5),
            {"text": "the Elbe"},
            {"answer_start": 3},
            "Elbe",
        )
        (question,), messages, _ = self.of_river(entry, for_training=False)
        # Those that have a text are scored by it, as the official evaluation does.
        self.assertEqual(
            question.answers,
            (("Elbe", 28), ("Elbe", -1), ("", -1), ("the Elbe", -1)),
        )
        self.assertLen(messages, 6)
        self.assertIn("'r2': the answer 'Elbe' is not in the words", messages[0])
        self.assertEqual(
            messages[-1],
            "Skipped 0 of 5 questions. Also: faulty answers of questions that are"
            " kept: 5.",
        )
        for entry in (
            {"id": "r2", "question": "Where?"},
            qa("r2", answers=None),
            qa("r2"),
        ):
            (question,), messages, _ = self.of_river(entry, for_training=False)
            self.assertEqual(question.answers, ())
            self.assertEqual(messages, ["Skipped 0 of 5 questions."])
        for entry in (qa("r2", answers="Elbe"), qa("r2", is_impossible=0)):
            (question,), messages, _ = self.of_river(entry, for_training=False)
            self.assertFalse(question.is_impossible)
            self.assertLen(messages, 2)

    def test_one_of_several_answers_is_trained_on(self):
        (question,), messages, _ = self.of_river(
            qa("r2", answer("Elbe", 0), answer("Ohre", 10), answer("Elbe", 28))
        )
        self.assertEqual(question.answers, (("Ohre", 10),))
        self.assertEqual(
            messages,
            [
                "Skipped 0 of 5 questions. Also: questions with several answers, of"
                " which one is trained on: 1."
            ],
        )

    def test_answers_with_other_characters(self):
        (question,), messages, _ = self.of_river(qa("r2", answer("hre", 10)))
        self.assertEqual(question.answers, (("hre", 10),))
        self.assertIn("'r2': the answer 'hre' stands there as 'Ohr'.", messages[0])
        self.assertIn(
            "Also: answers that stand in the text with other characters: 1.",
            messages[1],
        )

    def test_malformed_articles_and_paragraphs(self):
        content = plain()
        content["data"][0]["paragraphs"] += [
            "text",
            {"context": TOWER},
            {"qas": [qa("a"), qa("b"), qa("c")]},
            {"context": 5, "qas": [], "id": 3},
        ]
        content["data"] += [
            "article",
            {"title": "Empty"},
            {"title": "Text", "paragraphs": "text"},
            {"title": 7, "paragraphs": []},
        ]
        questions, messages, report = self.read(content)
        self.assertLen(questions, 4)
        tower = "article 1 ('Tower'), paragraph"
        wanted = "a paragraph must be an object with a list `qas`. Found:"
        self.assertEqual(
            messages,
            [
                f"{tower} 4: {wanted} 'text'.",
                f"{tower} 5: {wanted} {{'context': {TOWER!r}}}.",
                f"{tower} 6: the paragraph's `context` must be text. Found: None;"
                " skipped.",
                f"{tower} 7: the paragraph's `context` must be text. Found: 5;"
                " skipped.",
                "article 3: it must be an object. Found: 'article'.",
                "article 4 ('Empty'): it must have a list `paragraphs`.",
                "article 5 ('Text'): it must have a list `paragraphs`.",
                "Skipped 3 of 7 questions: 3 malformed. Also: malformed"
                " paragraphs: 4; malformed articles: 3.",
            ],
        )
        self.assertEqual(report.skipped, {"malformed": 3})

    def test_faults_are_said_once(self):
        content = plain()
        content["data"][0]["paragraphs"][0]["qas"].append(qa("t1"))
        file = self.file(content)
        with self.assertLogs(level="WARNING") as logs:
            next(iter(file))  # not complete
            self.assertEqual(file.report.num_questions, 0)
            for _ in range(3):
                self.assertLen(list(file), 4)
                self.assertEqual(file.report.skipped.total(), 1)
        self.assertLen(logs.output, 1)

    def test_files_that_are_none(self):
        for content, reason in (
            (b"", r"squad.json: the file is empty\.$"),
            (b" \n ", r"squad.json: the file is empty\.$"),
            ([1], r'key "data" has the list of articles. Found: a list\.$'),
            ("a", r'key "data" has the list of articles. Found: \'a\'\.$'),
            ({"id": "Ohre"}, r'key "data" has the list of articles. Its keys: id\.$'),
            (dict.fromkeys("abcdefg"), r"Its keys: a, b, c, d, e, \.\.\.\.$"),
            ({"data": {"a": 1}}, r"Found there: \{'a': 1\}\.$"),
            ({"data": []}, r"no question in it that can be used. Skipped 0 of 0"),
            (b'{"data": [], "data": []}', r'the key "data" is there twice\.$'),
            (b'{"data": [}', r"squad.json:1:11: not valid JSON: Expecting value\.$"),
        ):
            with self.assertRaisesRegex(InputError, reason) as raised:
                list(self.file(content))
            self.assertNotIn("\n", str(raised.exception))

    def test_a_file_cut_off(self):
        content = json.dumps(plain()).encode()
        for length in range(len(content)):
            ids = []
            with self.assertRaises(InputError):
                ids.extend(q.question_id for q in self.file(content[:length]))

    def test_no_question_that_can_be_used(self):
        content = plain()
        for each in content["data"]:
            for paragraph in each["paragraphs"]:
                for entry in paragraph["qas"]:
                    del entry["question"]
        with self.assertRaisesRegex(InputError, "Skipped 4 of 4 questions: 4 malf"):
            list(self.file(content))

    def test_no_such_file(self):
        with self.assertRaisesRegex(InputError, "No such SQuAD file: nowhere.json"):
            SquadFile("nowhere.json")
        with self.assertRaisesRegex(InputError, "is a folder, not a file"):
            SquadFile(self.get_temp_dir())

    def test_memory_does_not_grow_with_the_file(self):
        """One article of 12 MB, as some converters write them."""
        entry = {"context": 500 * "The tower. ", "qas": [qa("t", answer("tower", 4))]}
        path = os.path.join(self.get_temp_dir(), "large.json")
        with open(path, "w") as file:
            file.write('{"data": [{"title": "T", "paragraphs": [')
            for number in range(2_000):
                each = copy.deepcopy(entry)
                each["qas"][0]["id"] = str(number)
                file.write(f"{',' * bool(number)}{json.dumps(each)}")
            file.write("]}]}")
        self.assertGreater(os.path.getsize(path), 11e6)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        count = sum(1 for _ in SquadFile(path, for_training=True))
        self.assertEqual(count, 2_000)
        self.assertLess(tracemalloc.get_traced_memory()[1], 6e6)


if __name__ == "__main__":
    tf.test.main()
