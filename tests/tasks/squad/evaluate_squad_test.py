import codecs
import gzip
import json
import os

from absl import flags, logging

from bert_tf.base.errors import InputError
from bert_tf.tasks.squad import evaluate_squad
from tests.processes import run_python
from tests.script_case import FolderCase, printed


def question(question_id, *answers):
    return {
        "id": question_id,
        "question": "What?",
        "answers": [{"text": text, "answer_start": 0} for text in answers],
    }


def squad(version, *questions):
    """A file's content: the questions in paragraphs of one each, in one article."""
    paragraphs = [{"context": "red dog", "qas": [each]} for each in questions]
    return {"version": version, "data": [{"title": "Dogs", "paragraphs": paragraphs}]}


V1 = squad("1.1", question("a", "red dog", "dog"), question("b", "cat"))
V2 = squad("v2.0", question("a", "red dog", "dog"), question("b"), question("c"))


class EvaluateSquadTest(FolderCase):
    def run_on(self, data, predictions, *arguments):
        files = {"dev.json": data, "predictions.json": predictions}
        paths = [self.write(name, content) for name, content in files.items()]
        return printed(evaluate_squad, *paths, *arguments)

    def test_packed_data_and_ids_that_are_numbers(self):
        data = squad("1.1", question(7, "red dog"), question("b", "cat"))
        packed = gzip.compress(codecs.BOM_UTF8 + json.dumps(data).encode())
        path = self.write("dev.json.gz", packed)
        predictions = self.write("predictions.json", {"7": "Red dog", "b": "dog"})
        self.assertEqual(
            printed(evaluate_squad, path, predictions),
            '{"exact_match": 50.0, "f1": 50.0}\n',
        )

    def test_null_odds(self):
        predictions = {"a": "dog", "b": "cat", "c": "dog"}
        odds = self.write("null_odds.json", {"a": -3.25, "b": 2, "c": 1.5})
        report = json.loads(self.run_on(V2, predictions, f"--na_prob_file={odds}"))
        # b and c are above 1.0.
        self.assertEqual(report["exact"], 100.0)
        self.assertEqual((report["best_f1"], report["best_f1_thresh"]), (100.0, -3.25))
        self.assertNotIn("pr_f1_ap", report)
        # The official script's way of writing it, behind the files.
        report = json.loads(
            self.run_on(
                V2, predictions, "--na-prob-file", odds, "--na-prob-thresh", "1.75"
            )
        )
        self.assertAllClose(report["exact"], 200 / 3)

    def test_pictures_and_a_file_of_scores(self):
        odds = self.write("null_odds.json", {"a": -3.25, "b": 2, "c": 1.5, "x": 0})
        folder = self.path("images")
        said = self.run_on(
            V2,
            {"a": "dog", "b": "cat", "c": "dog"},
            f"--na_prob_file={odds}",
            f"--out_image_dir={folder}",
            f"--out_file={self.path('eval.json')}",
        )
        self.assertEqual(said, "")
        report = self.read_json("eval.json")
        self.assertEqual(
            [*report][-4:],
            ["best_f1_thresh", "pr_exact_ap", "pr_f1_ap", "pr_oracle_ap"],
        )
        # What is answered first is all that is answerable, and right.
        self.assertEqual(report["pr_f1_ap"], 100.0)
        self.assertCountEqual(
            os.listdir(folder),
            [
                *("pr_exact.png", "pr_f1.png", "pr_oracle.png"),
                *("na_prob_hist_hasAns.png", "na_prob_hist_noAns.png"),
            ],
        )

    def test_whose_rules(self):
        predictions = {"a": "", "b": "cat"}
        odds = self.write("null_odds.json", {"a": 0.5, "b": 0.25})
        unnamed = {"data": V1["data"]}
        unanswerable = squad("1.1", question("a"), question("b", "cat"))
        for data, arguments, is_version_2 in (
            (V1, [], False),
            (unnamed, [], False),
            (squad("2.0", *map(question, "ab", "xy")), [], True),
            (unanswerable, [], True),
            (V1, ["--version=2.0"], True),
            (squad("v2.0", *map(question, "ab", "xy")), ["--version=1.1"], False),
            (V1, [f"--na_prob_file={odds}"], True),
        ):
            printed = self.run_on(data, predictions, *arguments)
            self.assertEqual("HasAns_f1" in printed, is_version_2, (data, arguments))

    def test_questions_without_a_prediction_and_predictions_without_a_question(self):
        with self.assertLogs(logging.get_absl_logger(), "WARNING") as logs:
            printed = self.run_on(V1, {"a": "dog", "x": "y", "z": ""})
        self.assertEqual(printed, '{"exact_match": 50.0, "f1": 50.0}\n')
        self.assertIn("1 questions have no prediction; such as b", logs.output[0])
        self.assertIn("2 predictions are for no question", logs.output[1])
        with self.assertRaisesRegex(InputError, "^2 of 3 .* no prediction.* b;"):
            self.run_on(V2, {"a": "dog"})

    def test_data_of_another_form(self):
        for data in (
            [],
            {"data": 3},
            {"data": ["x"]},
            {"data": [{"title": "Dogs"}]},
            {"data": [{"paragraphs": [{}]}]},
            squad("1.1", {"answers": []}),
            squad("1.1", {"id": "a"}),
            squad("1.1", {"id": "a", "answers": [{"text": 3}]}),
        ):
            with self.assertRaisesRegex(InputError, "not in SQuAD's format at quest"):
                self.run_on(data, {})
        with self.assertRaisesRegex(InputError, "no questions in it"):
            self.run_on({"data": []}, {})

    def test_predictions_of_another_form(self):
        for predictions in (["dog"], {"a": [{"text": "dog"}]}, {"a": None}):
            with self.assertRaisesRegex(InputError, "predictions file"):
                self.run_on(V1, predictions)
        odds = self.write("null_odds.json", {"a": "dog"})
        with self.assertRaisesRegex(InputError, "not a file of null odds: question a"):
            self.run_on(V2, {}, f"--na_prob_file={odds}")

    def test_what_the_command_line_lacks(self):
        paths = self.path("data.json"), self.path("predictions.json")
        over_one = f"--out_file={self.path('.', 'predictions.json')}"
        for arguments, message in (
            (["dev.json"], "Give the data and the predictions"),
            (["dev.json", "p.json", "--out_image_dir=d"], "needs --na_prob_file"),
            (["d", "p", "--version=1.1", "--na_prob_file=n"], "leave --version=1.1"),
            (["nowhere.json", "p.json"], "No such SQuAD file: nowhere.json"),
            ([*paths, over_one], "predictions.json is also an input file"),
        ):
            with self.assertRaisesRegex((InputError, flags.Error), message):
                printed(evaluate_squad, *arguments)

    def test_needs_no_tensorflow(self):
        data, predictions = self.write("d.json", V1), self.write("p.json", {"a": "dog"})
        program = (
            "import sys; from bert_tf import evaluate_squad as script;"
            "from bert_tf.base import cli;"
            "script.run(cli.parse(script.run, sys.argv[1:]));"
            "assert not {'tensorflow', 'keras', 'matplotlib'} & {*sys.modules}"
        )
        self.assertEqual(run_python("-c", program, data, predictions).returncode, 0)
