from bert_tf.base.errors import InputError
from bert_tf.tasks.squad.reading import read_file
from tests.script_case import FolderCase

WEBBER = (
    "Sunset Boulevard is a musical.\n\nIt opened on  Sunset   Blvd, by Lloyd Webber."
)
# 399 words.
LONG = "\n".join(f"word{number}" for number in range(399))


def trivia_answer(value, *aliases):
    return {
        "Value": value,
        "Aliases": [value, *aliases],
        "NormalizedAliases": [alias.lower().strip(".") for alias in aliases],
        "Type": "WikipediaEntity",
    }


def trivia_entry(number, answer, pages=(), results=()):
    return {
        "QuestionId": f"tc_{number}",
        "Question": f"Question {number}?",
        "Answer": answer,
        "EntityPages": [{"Title": "T", "Filename": name} for name in pages],
        "SearchResults": [{"Rank": 0, "Filename": name} for name in results],
    }


class TriviaQaTest(FolderCase):
    def setUp(self):
        super().setUp()
        web = "In sunset\u00e9, 1Sunset, not far from Sunset\nBlvd.\n"
        for name, text in (
            ("wikipedia/Webber.txt", WEBBER),
            ("wikipedia/Long.txt", LONG + " the Sunset BLVD. end"),
            ("wikipedia/Edge.txt", LONG + " SUNSET Blvd. end"),
            ("wikipedia/Empty.txt", ""),
            ("web/35/35_995.txt", web),
        ):
            self.write(f"evidence/{name}", text)

    def questions(self, *entries, folder="qa", **options):
        content = {"Data": entries, "Domain": "Wikipedia", "Version": 1.0}
        path = self.write(f"{folder}/wikipedia-train.json", content)
        return read_file(path, for_training=True, **options)

    def test_the_first_answer_in_each_document(self):
        sunset = trivia_answer("Sunset", "Sunset Blvd.", "Sunset Blvd")
        there = ["Webber.txt", "Long.txt", "Empty.txt", "Missing.txt"]
        with self.assertLogs(level="INFO") as logs:
            questions = self.questions(
                trivia_entry(1, sunset, there, ["35/35_995.txt"]),
                trivia_entry(2, trivia_answer("Rodgers", "Hart"), there),
                trivia_entry(3, trivia_answer("lloyd webber", "W"), ["Webber.txt"]),
                trivia_entry(4, sunset, ["Edge.txt"]),
                trivia_entry(5, trivia_answer(""), ["Webber.txt"]),
            )
        self.assertIn(
            "5 questions with 12 documents; left out: 2 whose file is not in"
            f" {self.path('evidence')}, 6 without an answer in their first 400 words.",
            "\n".join(logs.output),
        )
        first, web, last, edge = questions
        self.assertEqual(first.question_id, "tc_1--Webber.txt")
        self.assertEqual(first.text, "Question 1?")
        self.assertEqual(first.context, WEBBER)
        # The shorter alias, as it comes first; then whole words, the longest.
        self.assertEqual(first.answers, (("Sunset", 0),))
        self.assertEqual(web.answers, (("Sunset\nBlvd.", 34),))
        self.assertEqual(web.question_id, "tc_1--35/35_995.txt")
        self.assertEqual(last.answers, (("Lloyd Webber", WEBBER.index("Lloyd")),))
        self.assertEqual(edge.answers, (("SUNSET", len(LONG) + 1),))
        self.assertEqual(edge.context, LONG + " SUNSET")

    def test_what_it_depends_on(self):
        sunset = trivia_answer("Sunset", "Sunset Blvd")
        given = trivia_entry(1, sunset, ["Webber.txt"])
        one, other = (self.questions(given).identity["sha256"] for _ in range(2))
        self.assertEqual(one, other)
        self.write("evidence/wikipedia/Webber.txt", WEBBER + " More.")
        self.assertNotEqual(one, self.questions(given).identity["sha256"])

    def test_what_a_user_got_wrong(self):
        good = trivia_entry(1, trivia_answer("Sunset"), ["Webber.txt"])
        with self.assertRaisesRegex(InputError, "no folder of .*: give `evidence_dir`"):
            self.questions(good, folder="elsewhere/qa")
        elsewhere = {"folder": "elsewhere/qa", "evidence_dir": self.path("evidence")}
        self.assertEqual(self.questions(good, **elsewhere).num_questions, 1)
        without = {key: value for key, value in good.items() if key != "Answer"}
        with self.assertRaisesRegex(InputError, "entry 2 of Data must .*'Answer'"):
            self.questions(good, without)
        with self.assertRaisesRegex(InputError, "There is none that can be used"):
            self.questions(trivia_entry(1, trivia_answer("Rodgers"), ["Webber.txt"]))
        with self.assertRaisesRegex(InputError, 'whose key "data"'):
            read_file(self.path("qa", "wikipedia-train.json"))
