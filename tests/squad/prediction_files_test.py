import json
import os
import tempfile

import tensorflow as tf

from bert_tf.squad.decoding import Decoded, NBestEntry
from bert_tf.squad.prediction_files import PredictionFiles


def decoded(*texts, score_diff=None):
    """Answers of these texts, with scores that are long to write."""
    entries = [
        NBestEntry(text, 1 / (3 + rank), 0.1 * rank, -1e-20 / 3, (0, len(text)))
        for rank, text in enumerate(texts)
    ]
    best = next((text for text in texts if text), "")
    return Decoded(entries, best, score_diff)


class PredictionFilesTest(tf.test.TestCase):
    def folder(self):
        return tempfile.mkdtemp(dir=self.get_temp_dir())

    def content(self, folder, name):
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
            return file.read()

    def test_every_character(self):
        folder = self.folder()
        one = Decoded([NBestEntry("a", 1.0, 2.0, 1e-7, (0, 1))], "a", None)
        with open(os.path.join(folder, "null_odds.json"), "w") as file:
            file.write("{}")  # of a prediction of SQuAD 2.0, before
        with PredictionFiles(folder, False) as written:
            written.add("q1", one)
            written.finish()
        self.assertEqual(
            self.content(folder, "predictions.json"), '{\n    "q1": "a"\n}\n'
        )
        self.assertEqual(
            self.content(folder, "nbest_predictions.json"),
            "{\n"
            '    "q1": [\n'
            "        {\n"
            '            "text": "a",\n'
            '            "probability": 1.0,\n'
            '            "start_logit": 2.0,\n'
            '            "end_logit": 1e-07\n'
            "        }\n"
            "    ]\n"
            "}\n",
        )
        self.assertEqual(
            sorted(os.listdir(folder)), ["nbest_predictions.json", "predictions.json"]
        )

    def test_as_json_writes_it(self):
        folder = self.folder()
        awkward = 'a "quote"\\, é 中 🜁 \u2028\n\t\x7f\ud800'
        answers = {
            "q1": decoded("x", "", awkward, score_diff=-0.1),
            awkward: decoded("", score_diff=1e6),
            "q3": decoded("", "y", score_diff=2.5),
            "q4": Decoded(
                [NBestEntry("z", float("nan"), float("inf"), float("-inf"), (0, 1))],
                "z",
                float("nan"),
            ),
        }
        with PredictionFiles(folder, True, prefix="dev_") as written:
            for question_id, of_question in answers.items():
                written.add(question_id, of_question)
            self.assertEqual(os.listdir(folder), [os.path.basename(written._temporary)])
            written.finish(threshold=3.0)
        expected = {
            "predictions": {"q1": "x", awkward: "", "q3": "y", "q4": "z"},
            "null_odds": {q: of_q.score_diff for q, of_q in answers.items()},
            "nbest_predictions": {
                question_id: [
                    {
                        "text": entry.text,
                        "probability": entry.probability,
                        "start_logit": entry.start_logit,
                        "end_logit": entry.end_logit,
                    }
                    for entry in of_question.n_best
                ]
                for question_id, of_question in answers.items()
            },
        }
        self.assertEqual(
            sorted(os.listdir(folder)),
            sorted(f"dev_{name}.json" for name in expected),
        )
        for name, values in expected.items():
            self.assertEqual(
                self.content(folder, f"dev_{name}.json"),
                json.dumps(values, indent=4) + "\n",
                name,
            )

    def test_what_a_threshold_is_chosen_by(self):
        with PredictionFiles(self.folder(), True) as written:
            written.add("q1", decoded("x", "", score_diff=1.0))
            written.add("q2", decoded("", "y", score_diff=3.0))
            self.assertEqual(written.best_texts, {"q1": "x", "q2": "y"})
            self.assertEqual(written.null_odds, {"q1": 1.0, "q2": 3.0})
            self.assertEqual(written.answers(1.0), {"q1": "x", "q2": ""})
            self.assertEqual(written.answers(3.0), {"q1": "x", "q2": "y"})
            self.assertEqual(written.answers(0.9), {"q1": "", "q2": ""})

    def test_no_question(self):
        folder = self.folder()
        with PredictionFiles(folder, True) as written:
            written.finish()
        self.assertEqual(
            sorted(os.listdir(folder)),
            ["nbest_predictions.json", "null_odds.json", "predictions.json"],
        )
        for name in os.listdir(folder):
            self.assertEqual(self.content(folder, name), "{}\n")

    def test_a_prediction_that_fails_leaves_what_was_there(self):
        folder = self.folder()
        with PredictionFiles(folder, False) as written:
            written.add("q1", decoded("before"))
            written.finish()
        before = self.content(folder, "nbest_predictions.json")
        with (
            self.assertRaisesRegex(RuntimeError, "midway"),
            PredictionFiles(folder, False) as written,
        ):
            written.add("q1", decoded("after"))
            raise RuntimeError("midway")
        self.assertEqual(
            sorted(os.listdir(folder)), ["nbest_predictions.json", "predictions.json"]
        )
        self.assertEqual(self.content(folder, "nbest_predictions.json"), before)

    def test_remote(self):
        folder = "ram://predictions"
        tf.io.gfile.makedirs(folder)
        with PredictionFiles(folder, False) as written:
            written.add("q1", decoded("x"))
            written.add("q2", decoded("y", "z"))
            written.finish()
        self.assertEqual(
            sorted(tf.io.gfile.listdir(folder)),
            ["nbest_predictions.json", "predictions.json"],
        )
        with tf.io.gfile.GFile(f"{folder}/nbest_predictions.json") as file:
            self.assertEqual(list(json.load(file)), ["q1", "q2"])

    def test_refused(self):
        with PredictionFiles(self.folder(), False) as written:
            written.add("q1", decoded("x"))
            with self.assertRaisesRegex(ValueError, "once. Received: 'q1'"):
                written.add("q1", decoded("y"))
            with self.assertRaisesRegex(ValueError, "none for 1.1. Received: 0.5"):
                written.add("q2", decoded("", score_diff=0.5))


if __name__ == "__main__":
    tf.test.main()
