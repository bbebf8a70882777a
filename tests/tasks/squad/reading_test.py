import gzip
import json
import lzma

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.tasks.squad.reading import (
    Columns,
    EntryError,
    read_answer,
    read_file,
    read_tfds,
)
from tests.script_case import FolderCase
from tests.tasks.tfds_sets import mocked

CAFE = "The cafe closed."


def entry(text, start):
    return {"text": text, "answer_start": start}


class AnswersTest(tf.test.TestCase):
    def test_kept(self):
        for context, text, start in (
            (CAFE, "The cafe closed.", 0),
            (CAFE, "closed.", 9),
            (CAFE, ".", 15),
            (CAFE, "caf", 4),
            # Not at its place, but within the words there.
            (CAFE, "afe", 4),
            (CAFE, "closed", 4),
            (CAFE, " cafe ", 3),
            ("New  York", "New York", 0),
            ("New\r\nYork", "New York", 0),
            ("New York City", "New \n York", 0),
            # U+202F is between words for the original, and Python's split agrees.
            ("10\u202fkm wide", "10\u202fkm", 0),
            ("10\u202fkm wide", "10 km", 0),
            # U+00A0, U+3000 and so on are in a word for the original, and in no answer.
            ("10\u00a0km wide", "10\u00a0km", 0),
            ("10\u00a0km wide", "10 km", 0),
            ("(7\u2009000\u00a0km)", "7\u2009000 km", 1),
            ("10 km wide", "10\u00a0km", 0),
            ("東京\u3000大阪", "東京\u3000大阪", 0),
            # The blank before all words has the last one's number, -1.
            (" One", " One", 0),
            ("日本の首都", "首都", 3),
        ):
            answer = read_answer(entry(text, start), context)
            self.assertEqual(answer, (text, start))

    def test_not_in_the_words(self):
        for context, text, start, words in (
            (CAFE, "closed", 0, "'The cafe'"),
            (CAFE, "Cafe", 4, "'cafe'"),
            ("10\u00a0km wide", "10km", 0, r"'10\\xa0km'"),
            # From the last word to the first one: none.
            (" One two", " One", 0, "''"),
        ):
            with self.assertRaisesRegex(EntryError, f"{start}: {words}$"):
                read_answer(entry(text, start), context)

    def test_outside(self):
        for text, start in (("The", -1), (".", 16), ("closed.", 10), ("x" * 17, 0)):
            with self.assertRaisesRegex(EntryError, "not within the context's 16 char"):
                read_answer(entry(text, start), CAFE)

    def test_malformed(self):
        for value, reason in (
            (None, "an answer must be an object. Received: None"),
            ("The", "an answer must be an object. Received: 'The'"),
            ({"answer_start": 0}, "must have a `text`"),
            ({"text": 3, "answer_start": 0}, "must have a `text`"),
            ({"text": "The"}, "must be an integer. Received: None"),
            (entry("The", "0"), "must be an integer. Received: '0'"),
            (entry("The", 0.0), "must be an integer. Received: 0.0"),
            (entry("The", False), "must be an integer. Received: False"),
            (entry("", 0), "is empty: ''"),
            (entry(" \n", 0), "is empty"),
        ):
            with self.assertRaisesRegex(EntryError, reason):
                read_answer(value, CAFE)


IDS = ["t1", "t2", "t3", "r1"]
TOWER = "The tower is 300 m high. It leans."
RIVER = "The river Ohre flows to the Elbe."


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


def plain(*of_river):
    """Two articles, three paragraphs, four questions, and others of the last one."""
    first = [qa("t1", entry("300 m", 13)), qa("t2", entry("leans.", 28))]
    second = [qa("t3", entry("The tower", 0))]
    tower = article("Tower", (TOWER, first), ("", []), (TOWER[:24], second))
    river = article("River", (RIVER, [qa("r1", entry("Ohre", 10)), *of_river]))
    return {"version": "1.1", "data": [tower, river]}


class ReaderTest(FolderCase):
    def read(self, content, **flags):
        """The questions, what was said of them, and the set."""
        path = self.write("squad.json", content)
        with self.assertLogs(level="DEBUG") as logs:
            questions = read_file(path, **flags)
        self.assertEqual(questions.source, path)
        messages = [
            record.getMessage().removeprefix(f"{path}: ") for record in logs.records
        ]
        self.assertLen(list(questions), questions.num_questions)
        return list(questions), messages, questions

    def of_river(self, *qas, for_training=True, **flags):
        """The questions read from those of one paragraph, and what was said."""
        flags = {"max_unusable_rows": 9.0, **flags, "for_training": for_training}
        questions, messages, found = self.read(plain(*qas), **flags)
        total = found.num_questions + found.num_skipped
        self.assertEqual(total, 4 + len(qas))
        self.assertEqual(
            messages.pop(), f"skipped {found.num_skipped} of {total} questions."
        )
        return questions[4:], messages

    def test_questions_in_the_files_order(self):
        for for_training in (False, True):
            questions, messages, found = self.read(plain(), for_training=for_training)
            contexts = (TOWER, TOWER, TOWER[:24], RIVER)
            answers = ("300 m", 13), ("leans.", 28), ("The tower", 0), ("Ohre", 10)
            for q, *expected in zip(questions, IDS, contexts, answers, strict=True):
                self.assertEqual([q.question_id, q.context, *q.answers], expected)
                self.assertEqual(q.text, f"What of {q.question_id}?")
            self.assertIs(questions[0].context, questions[1].context)
            self.assertEqual(messages, ["skipped 0 of 4 questions."])
            self.assertEqual(found.num_questions, 4)

    def test_whether_all_have_answers(self):
        for added, flags, expected in (
            ((), {}, True),
            ((qa("r2"),), {}, False),
            ((qa("r2"),), {"version_2_with_negative": True}, True),
        ):
            questions = read_file(self.write("squad.json", plain(*added)), **flags)
            self.assertEqual(questions.have_answers, expected)

    def test_packed_and_in_other_orders(self):
        content = json.dumps(plain(), indent=2).encode()
        for name, packed in (
            ("a.json", b"\xef\xbb\xbf" + content),
            ("a.json", json.dumps(plain(), sort_keys=True).encode()),
            ("a.json.gz", gzip.compress(content[:99]) + gzip.compress(content[99:])),
            ("a.json.xz", lzma.compress(content)),
        ):
            questions = read_file(self.write(name, packed))
            for _ in range(2):
                self.assertEqual([one.question_id for one in questions], IDS)

    def test_questions_without_an_answer(self):
        impossible = qa("r2", is_impossible=True, plausible_answers=[entry("", -9)])
        for for_training in (False, True):
            (question,), _ = self.of_river(
                impossible, for_training=for_training, version_2_with_negative=True
            )
            self.assertTrue(question.is_impossible)
            self.assertEqual(question.answers, ())
            with self.assertRaisesRegex(
                InputError,
                r"squad.json: article 2 \('River'\), paragraph 1, question 'r2': it has"
                " no answer, as in SQuAD 2.0: give `version_2_with_negative`.$",
            ):
                self.of_river(impossible, for_training=for_training)

    def test_no_answers_and_not_a_word_on_whether_there_are_any(self):
        content = {"data": [article("T", (TOWER, [qa("t1"), qa("t2")]))]}
        content["data"][0]["paragraphs"][0]["qas"][1]["is_impossible"] = False
        for for_training in (False, True):
            questions, _, found = self.read(
                content,
                version_2_with_negative=True,
                for_training=for_training,
                max_unusable_rows=0.5,
            )
            first, *others = questions
            self.assertTrue(first.is_impossible)
            # The one that says that it has an answer is trained on only with one.
            self.assertLen(others, 0 if for_training else 1)
            self.assertEqual(found.num_skipped, int(for_training))

    def test_answers_of_impossible_questions(self):
        impossible = qa("r2", entry("Ohre", 10), is_impossible=True)
        for for_training, answers in ((True, ()), (False, (("Ohre", 10),))):
            (question,), _ = self.of_river(
                impossible, for_training=for_training, version_2_with_negative=True
            )
            self.assertEqual(question.answers, answers)

    def test_what_costs_a_question(self):
        good = qa("r2", entry("Ohre", 10))
        for faulty, what, of_training_alone in (
            ({**good, "id": None}, "2: its `id` must be text or a number. Rec", False),
            ({**good, "id": True}, "2: its `id` must be text or a number. Rec", False),
            ({**good, "question": None}, "'r2': its `question` must be text.", False),
            ({**good, "question": [1]}, "'r2': its `question` must be text.", False),
            ({**good, "question": " "}, "'r2': its `question` is empty", True),
            ("r2", "2: it must be an object. Received: 'r2'", False),
            (qa("r2"), "'r2': it has no answer and is not marked as impossible", True),
            (qa("r2", answers=None), "'r2': its `answers` must be a list", True),
            (qa("r2", {"text": "Elbe"}), "'r2': an answer's `answer_start` mu", True),
            (qa("r2", is_impossible="no"), "'r2': its `is_impossible` must be", True),
        ):
            for for_training in {True, of_training_alone}:
                questions, (message,) = self.of_river(faulty, for_training=for_training)
                self.assertEmpty(questions)
                where = "article 2 ('River'), paragraph 1, question "
                self.assertStartsWith(message, where + what)
                self.assertEndsWith(message, "; skipped.")

    def test_training_skips_few_questions_or_stops(self):
        path = self.write("squad.json", plain(qa("r2"), qa("r3")))
        message = (
            r"'r2': it has no ans.*\(2 of 6 questions cannot .* most {} may be: `m"
        )
        for flags, most in (({}, 0), ({"max_unusable_rows": 1}, 1)):
            with self.assertRaisesRegex(InputError, message.format(most)):
                read_file(path, for_training=True, **flags)
        found = read_file(path, for_training=True, max_unusable_rows=0.34)
        self.assertEqual(found.num_skipped, 2)

    def test_an_id_that_repeats_costs_a_question_to_answer_alone(self):
        again = qa("r1", entry("Ohre", 10))
        questions, (message,) = self.of_river(again, for_training=False)
        self.assertEmpty(questions)
        self.assertIn("question 'r1': a question before it has the same id", message)
        questions, messages = self.of_river(again, for_training=True)
        self.assertLen(questions, 1)
        self.assertEmpty(messages)

    def test_faulty_answers_cost_no_question_that_is_not_trained_on(self):
        faulty = qa(
            "r2",
            *(entry("Elbe", 28), entry("Elbe", 10), entry("", 5)),
            *({"text": "the Elbe"}, {"answer_start": 3}, "Elbe"),
        )
        (question,), messages = self.of_river(faulty, for_training=False)
        # Those that have a text are scored by it, as the official evaluation does.
        self.assertEqual(
            question.answers, (("Elbe", 28), ("Elbe", -1), ("", -1), ("the Elbe", -1))
        )
        self.assertLen(messages, 5)
        self.assertIn("'r2': the answer 'Elbe' is not in the words", messages[0])
        for faulty, number in (
            ({"id": "r2", "question": "Where?"}, 0),
            (qa("r2", answers=None), 0),
            (qa("r2"), 0),
            (qa("r2", answers="Elbe"), 1),
            (qa("r2", is_impossible=0), 1),
        ):
            (question,), messages = self.of_river(faulty, for_training=False)
            self.assertEqual((question.answers, question.is_impossible), ((), False))
            self.assertLen(messages, number)

    def test_one_of_several_answers_is_trained_on(self):
        (question,), _ = self.of_river(
            qa("r2", entry("Elbe", 0), entry("Ohre", 10), entry("Elbe", 28))
        )
        self.assertEqual(question.answers, (("Ohre", 10),))
        # It may be part of a word.
        (question,), _ = self.of_river(qa(262133, entry("hre", 10)))
        self.assertEqual(question.answers, (("hre", 10),))
        self.assertEqual(question.question_id, "262133")

    def test_malformed_articles_and_paragraphs(self):
        tower = r"squad.json: article 1 \('Tower'\), paragraph 4: it must be an object"
        for paragraph, message in (
            ("text", f"{tower} with \"qas\", a list. Received: 'text'"),
            ({"context": TOWER}, f'{tower} with "qas"'),
            ({"qas": [qa("a")]}, f'{tower} with "context", a str'),
            ({"context": 5, "qas": []}, f'{tower} with "context"'),
        ):
            content = plain()
            content["data"][0]["paragraphs"].append(paragraph)
            with self.assertRaisesRegex(InputError, message):
                read_file(self.write("squad.json", content))
        for added in ("article", {"title": "Empty"}, {"paragraphs": "text"}):
            content = plain()
            content["data"].append(added)
            with self.assertRaisesRegex(InputError, 'article 3.* with "paragraphs"'):
                read_file(self.write("squad.json", content))

    def test_files_that_are_none(self):
        for content, reason in (
            (b"", "not valid JSON: Expecting value"),
            (b"1", r'key "data" has the list of articles. Received: 1\.$'),
            ([1], r"squad.json:1: it must be a JSON object. Received: int\.$"),
            ({"id": "Ohre"}, r"list of articles. Received: \{'id': 'Ohre'\}\.$"),
            ({"data": {"a": 1}}, "list of articles. Received: "),
            ({"data": []}, r"skipped 0 of 0 questions. There is none"),
            (b'{"data":\n [}', ":2: not valid JSON: Expecting value"),
            (b"[" * 100_000, "squad.json:1: not valid JSON: "),
            (b"[" + b"1" * 5_000 + b"]", "squad.json:1: not valid JSON: "),
            ('["ü"]'.encode("latin-1"), r"json:1: not UTF-8 \(byte 0xfc\)"),
            ('[1,\n\n"语'.encode()[:-1], r"json:3: not UTF-8 \(byte 0xe8\)"),
        ):
            with self.assertRaisesRegex(InputError, reason) as raised:
                read_file(self.write("squad.json", content))
            self.assertNotIn("\n", str(raised.exception))
        folder = self.get_temp_dir()
        for path, reason in (
            ("nowhere.json", "No such SQuAD file: nowhere.json"),
            (folder, f"{folder} is a folder: give the path of a file"),
        ):
            with self.assertRaisesRegex(InputError, reason):
                read_file(path)


# As the library shuffles them: id, title, context, answers.
ROWS = (
    ("t2", "Tower", TOWER, [("leans.", 28)]),
    ("r1", "River", RIVER, [("Ohre", 10), ("Ohre ", 10)]),
    ("t1", "Tower", TOWER, [("300 m", 13)]),
    ("r2", "River", RIVER, []),
)


def squad_rows():
    """ROWS with the features of all sets."""
    return [
        {
            "id": question_id,
            "title": title,
            "context": context,
            "question": "What of it?",
            "answers": {
                "text": [text for text, _ in answers],
                "answer_start": [start for _, start in answers],
            },
            "plausible_answers": {"text": ["no"], "answer_start": [0]},
            "is_impossible": False,
        }
        for question_id, title, context, answers in ROWS
    ]


class LibrarysSetsTest(tf.test.TestCase):
    def test_questions_by_paragraph(self):
        with mocked(squad_rows()):
            squad = read_tfds(TfdsRows("squad/v1.1", "validation", None), "validation")
            questions = list(squad)
        self.assertEqual(questions[0].text, "What of it?")
        self.assertIs(questions[0].context, questions[1].context)
        self.assertEqual(
            [(q.question_id, q.context, q.answers) for q in questions],
            [
                ("t2", TOWER, (("leans.", 28),)),
                ("t1", TOWER, (("300 m", 13),)),
                ("r1", RIVER, (("Ohre", 10), ("Ohre ", 10))),
                ("r2", RIVER, ()),
            ],
        )
        expected = {"tfds": "squad/v1.1/3.0.0", "split": "validation"}
        expected |= {"version_2_with_negative": False, "for_training": False}
        self.assertEqual(squad.identity, expected)
        self.assertEqual(squad.num_questions, 4)

    def test_sets_without_these_features(self):
        with mocked(squad_rows()), self.assertRaisesRegex(
            InputError, "glue/cola/2.0.0 must have the features of SQuAD.* It has:"
        ) as raised:  # fmt: skip
            read_tfds(TfdsRows("glue/cola", "train", None), "train")
        self.assertNotIn("\n", str(raised.exception))


class TableTest(FolderCase):
    def questions(self, name, content, **options):
        return read_file(self.write(name, content), **options)

    def test_csv_tsv_and_json_lines(self):
        rows = [
            {"question": "What closed?", "context": CAFE, "answer": "cafe"},
            {
                "question": "Again?",
                "context": "A cat, a cat.",
                "answer": "cat",
                "answer_start": "9",
            },
        ]
        table = "question,context,answer,answer_start\n"
        table += f'What closed?,{CAFE},cafe,\nAgain?,"A cat, a cat.",cat,9\n'
        tsv = "question\tcontext\tanswer\tanswer_start\n"
        tsv += f"What closed?\t{CAFE}\tcafe\t\nAgain?\tA cat, a cat.\tcat\t9\n"
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        for name, content in (("x.csv", table), ("x.tsv", tsv), ("x.jsonl", lines)):
            for for_training in (True, False):
                found = self.questions(name, content, for_training=for_training)
                one, other = found
                self.assertEqual(one.answers, (("cafe", 4),))
                self.assertEqual(other.answers, (("cat", 9),))
                self.assertEqual(one.text, "What closed?")
                self.assertTrue(found.have_answers)
            numbers = ["1", "2"] if name == "x.jsonl" else ["2", "3"]
            self.assertEqual([each.question_id for each in found], numbers)

    def test_other_names_and_squads_own_answers(self):
        row = {
            "id": "a7",
            "q": "What?",
            "text": CAFE,
            "answers": {"text": ["cafe", "The cafe"], "answer_start": [4, 0]},
        }
        columns = Columns("q", "text", "answers")
        (one,) = self.questions("x.jsonl", json.dumps(row), columns=columns)
        self.assertEqual(one.question_id, "a7")
        self.assertEqual(one.answers, (("cafe", 4), ("The cafe", 0)))
        # Hugging Face's lines of SQuAD need no flag.
        row = {
            "id": "1",
            "question": "What?",
            "context": CAFE,
            "answers": row["answers"],
        }
        for for_training in (True, False):
            (one,) = self.questions(
                "x.jsonl", json.dumps(row), for_training=for_training
            )
            self.assertEqual(one.answers[0], ("cafe", 4))

    def test_answers_with_other_blanks(self):
        context = "It is 7\u00a0000\u202fkm long,\u3000or 7\u00a0000\u202fm."
        for answer in ("7 000 km", "7\u00a0000\u202fkm", " 7  000 km"):
            row = {"question": "?", "context": context, "answer": answer}
            (one,) = self.questions("x.jsonl", json.dumps(row), for_training=True)
            self.assertEqual(one.answers, (("7\u00a0000\u202fkm", 6),))
        row["answer"] = "7 000"
        with self.assertLogs(level="WARNING") as logs:
            self.questions("x.jsonl", json.dumps(row))
        self.assertIn("1 answers occur several times", logs.output[0])

    def test_without_an_answer(self):
        table = f"question,context,answer\nWhat?,{CAFE},cafe\nWho?,{CAFE},\n"
        for for_training in (True, False):
            _, none = self.questions(
                "x.csv", table, for_training=for_training, version_2_with_negative=True
            )
            self.assertTrue(none.is_impossible)
        _, unknown = self.questions("x.csv", table)
        self.assertEqual((unknown.answers, unknown.is_impossible), ((), False))
        with self.assertRaisesRegex(InputError, "line 3: it has no answer"):
            self.questions("x.csv", table, for_training=True)
        # Without the column they are unknown, rather than impossible.
        found = self.questions(
            "x.csv", f"question,context\nWhat?,{CAFE}\n", version_2_with_negative=True
        )
        self.assertFalse(found.have_answers)

    def test_what_is_wrong_has_its_line(self):
        for content, message in (
            (
                f"question,context,answer\nWhat?,{CAFE},tea\n",
                "line 2: its context does not have 'tea'",
            ),
            (
                "question,text,answer\na,b,c\n",
                "x.csv: no column 'context' .* 'question', 'text', 'answer'",
            ),
            ("question,context,answer\na,b\n", "line 2: the row has 2 columns"),
            (f"question,context,answer,answer_start\na,{CAFE},cafe,11\n", "line 2: "),
            ("question,context,answer\n", "none that can be used"),
            ("", "x.csv: the file is empty"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.questions("x.csv", content, for_training=True)
        for content, message in (
            ("3\n", "x.jsonl:1: it must be a JSON object. Received: int"),
            ('{"question": "a", "context": 3, "answer": "b"}\n', "must be text"),
            (
                '{"question": "a", "context": "b", "answer": ["b", "b"],'
                ' "answer_start": [0]}\n',
                "an answer_start for each answer",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.questions("x.jsonl", content, for_training=True)

    def test_several_places_are_counted(self):
        table = "question,context,answer\nWhat?,a b a,a\nWho?,a b,a\n"
        with self.assertLogs(level="WARNING") as logs:
            one, _ = self.questions("x.csv", table, for_training=True)
        self.assertIn("1 answers occur several times", logs.output[0])
        self.assertEqual(one.answers, (("a", 0),))
