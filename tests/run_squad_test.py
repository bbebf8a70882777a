import os
import shutil
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf import run_squad
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.tasks.squad import window_logits
from tests.script_case import ScriptCase

# The answer is the words from "from" to "to", where they are there.
WORDS = ["from", "to", "who", *(f"w{number}" for number in range(20))]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def article(count, seed, negative=0):
    """An article of one paragraph a question; every `negative`-th has no answer."""
    rng = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        words = [str(word) for word in rng.choice(WORDS[3:], rng.integers(3, 20))]
        is_impossible = bool(negative) and number % negative == 0
        answers = []
        if not is_impossible:
            place = rng.integers(len(words) - 1)
            words[place : place + 2] = ["from", "to"]
            start = len(" ".join([*words[:place], ""]))
            answers = [{"text": "From To", "answer_start": start}]
        qa = {"id": f"q{seed}-{number}", "question": "Who?", "answers": answers}
        if negative:
            qa["is_impossible"] = is_impossible
        context = " ".join(words).replace("from to", "From To")
        paragraphs.append({"context": context, "qas": [qa]})
    return {"title": "T", "paragraphs": paragraphs}


class RunSquadTest(ScriptCase):
    script = run_squad
    tokens = TOKENS

    def defaults(self):
        return {
            "max_seq_length": 16,
            "max_query_length": 4,
            "doc_stride": 4,
            "train_batch_size": 16,
            "learning_rate": 3e-2,
            "num_workers": 1,
        }

    def write(self, name, *articles):
        return super().write(name, {"version": "x", "data": articles})

    def write_trivia_qa(self, name, article):
        """The article's questions in TriviaQA's form, each with a document."""
        entries = []
        for paragraph in article["paragraphs"]:
            (qa,) = paragraph["qas"]
            super().write(f"evidence/wikipedia/{qa['id']}", paragraph["context"])
            answer = {"Value": "from to", "Aliases": [], "NormalizedAliases": []}
            entry = {"QuestionId": qa["id"], "Question": "Who?", "Answer": answer}
            entries.append(entry | {"EntityPages": [{"Filename": qa["id"]}]})
        return super().write(name, {"Data": entries})

    def test_learns_to_answer_in_windows_and_goes_on_where_it_was_killed(self):
        options = {
            "train_file": self.write("train.json", article(96, 1)),
            "predict_file": self.write("dev.json", article(40, 2)),
            "num_train_epochs": 8,
        }
        returned = self.run_script("--do_train", "--do_predict", **options)
        results = self.results()
        self.assertAllClose(returned.scores["f1"], results["f1"])
        self.assertGreater(results["exact_match"], 80.0)
        self.assertGreaterEqual(results["f1"], results["exact_match"])
        self.assertFalse(os.path.exists(self.path("run", "null_odds.json")))
        predictions = self.read_json("run", "predictions.json")
        n_best = self.read_json("run", "nbest_predictions.json")
        places = self.read_json("run", "prediction_spans.json")
        self.assertEqual([*places], [*predictions])
        for paragraph in article(40, 2)["paragraphs"]:
            (question_id,) = (qa["id"] for qa in paragraph["qas"])
            start, end = places[question_id]
            self.assertEqual(paragraph["context"][start:end], predictions[question_id])
        self.assertEqual(list(predictions), [f"q2-{n}" for n in range(40)])
        self.assertEqual(
            predictions, {name: answers[0]["text"] for name, answers in n_best.items()}
        )
        # The same command again: nothing is trained, the same is written.
        with self.training_nothing():
            self.run_script("--do_train", "--do_predict", **options)
        self.assertEqual(self.read_json("run", "nbest_predictions.json"), n_best)
        # A smaller group of windows changes no answer: they come in the same order.
        with mock.patch.object(window_logits, "WINDOWS_AT_ONCE", 7):
            self.run_script(
                "--do_predict",
                predict_file=options["predict_file"],
                bert_config_file=None,
            )
        again = self.read_json("run", "nbest_predictions.json")
        self.assertEqual(list(again), list(n_best))
        for name, answers in n_best.items():
            self.assertEqual(again[name][0]["text"], answers[0]["text"])
            self.assertAllClose(
                [answer["probability"] for answer in again[name][:3]],
                [answer["probability"] for answer in answers[:3]],
                atol=1e-4,
            )

    def test_finds_the_null_threshold_and_keeps_to_it(self):
        dev = self.write("dev.json", article(40, 2, negative=3))
        options = {"predict_file": dev, "version_2_with_negative": True}
        self.run_script(
            *("--do_train", "--do_predict", "--find_null_threshold"),
            train_file=self.write("train.json", article(96, 1, negative=3)),
            num_train_epochs=8,
            **options,
        )
        results = self.results()
        found = self.read_json("run", "null_threshold.json")
        self.assertAllClose(results["f1"], found["best_f1"], rtol=1e-5)
        self.assertGreater(results["best_f1"], 70.0)
        for name in ("HasAns_f1", "NoAns_f1", "exact", "total"):
            self.assertIn(name, results)
        predictions = self.read_json("run", "predictions.json")
        places = self.read_json("run", "prediction_spans.json")
        for name, answer in predictions.items():
            self.assertEqual(places[name] is None, answer == "", name)
        odds = self.read_json("run", "null_odds.json")
        tau = found["null_score_diff_threshold"]
        for name, answer in predictions.items():
            self.assertEqual(answer == "", odds[name] > tau, name)
        for name in os.listdir(self.path("run")):
            if name.endswith(".png") and name != "curves.png":
                self.assertGreater(os.path.getsize(self.path("run", name)), 5000)
        # Kept to by what comes later, unless a flag says otherwise.
        self.run_script("--do_predict", **options)
        self.assertEqual(self.read_json("run", "predictions.json"), predictions)
        self.run_script("--do_predict", null_score_diff_threshold=1e9, **options)
        self.assertNotIn("", self.read_json("run", "predictions.json").values())
        # It goes with the model that it was found for.
        steps = tf.train.latest_checkpoint(self.path("run")).split("-")[-1]
        self.assertEqual(found["checkpoint"], f"model.ckpt-{steps}")
        lower = {**found, "null_score_diff_threshold": -1e5}
        super().write("run/null_threshold.json", lower)
        options["output_dir"] = self.path("other")
        self.run_script("--do_predict", init_checkpoint=self.path("run"), **options)
        self.assertFalse(any(self.read_json("other", "predictions.json").values()))

    def test_two_stages_and_evaluation_on_the_way(self):
        options = {
            "first_train_file": self.write_trivia_qa("first.json", article(32, 3)),
            "evidence_dir": self.path("evidence"),
            "train_file": self.write("train.json", article(32, 1)),
            "predict_file": self.write("dev.json", article(8, 2)),
            "first_num_train_epochs": 4,
            "num_train_epochs": 0.4,
            "eval_steps": 1,
        }
        self.run_script("--do_train", **options)
        first = tf.train.latest_checkpoint(self.path("run", "first_stage"))
        second = tf.train.latest_checkpoint(self.path("run"))
        (weight,) = (
            name
            for name, _ in tf.train.list_variables(first)
            if "output_weights" in name and "optimizer" not in name
        )
        weights = [tf.train.load_variable(path, weight) for path in (first, second)]
        # The second stage began where the first one ended: from new weights, which are
        # small, its few steps could not have come near it.
        distance = np.linalg.norm(weights[1] - weights[0])
        self.assertBetween(distance, 1e-5, 0.5 * np.linalg.norm(weights[0]))
        best = self.read_json("run", "best", "best.json")
        self.assertEqual(best["metric"], "f1")
        # What `answer` wants of a run.
        self.assertEqual(self.read_json("run", "best", "flags.json")["doc_stride"], 4)
        self.assertEqual(self.read_json("run", "best", "reading.json")["doc_stride"], 4)
        other = self.write("other.json", article(32, 4))
        with self.assertRaisesRegex(InputError, "holds a run on .*train.json; .*other"):
            self.run_script("--do_train", **(options | {"train_file": other}))
        # Where the second stage stands, the first one is not asked for again.
        shutil.rmtree(self.path("run", "first_stage"))
        self.run_script("--do_train", **options)
        self.assertFalse(os.path.exists(self.path("run", "first_stage")))

    def test_what_a_user_got_wrong_is_said_before_training(self):
        train = self.write("train.json", article(8, 1))
        negative = self.write("negative.json", article(8, 1, negative=2))
        unanswered = article(8, 2)
        for paragraph in unanswered["paragraphs"]:
            del paragraph["qas"][0]["answers"]
        test = self.write("test.json", unanswered)
        empty = article(2, 1, negative=1)
        for paragraph in empty["paragraphs"]:
            paragraph["context"] = "\x01"
        no_token = self.write("empty.json", empty)
        for options, message in (
            ({"train_file": negative}, "version_2_with_negative"),
            ({"max_seq_length": 512}, "max_position_embeddings .16."),
            ({"max_query_length": 13}, "greater than `max_query_length`"),
            ({"cls_normalization": True}, "cls_normalization`: .* no pooler"),
            ({"best_metric": "best_f1"}, "best_metric=best_f1` is not a metric"),
            (
                {"predict_file": test, "eval_steps": 5},
                "eval_steps` needs a development",
            ),
            (
                {"first_train_file": train, "num_train_epochs": 0.4, "pad": "max"},
                "num_train_epochs=0.4`: .* one step",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", **({"train_file": train} | options))
            self.assertFalse(os.path.exists(self.path("run")), message)
        with self.assertRaisesRegex(InputError, "empty.json: no paragraph has a token"):
            self.run_script(
                *("--do_train", "--version_2_with_negative"), train_file=no_token
            )
        with self.assertRaisesRegex(InputError, "questions without an answer"):
            self.run_script(
                *("--do_predict", "--find_null_threshold", "--version_2_with_negative"),
                predict_file=test,
            )
        with self.assertRaisesRegex(InputError, "Nothing to evaluate"):
            # Which --eval_steps, without training, has no part in.
            self.run_script("--do_predict", predict_file=test, eval_steps=5)

    def test_usage_errors(self):
        first = "--train_file=x", "--first_train_file=x"
        for arguments, message in (
            (["--do_train"], "--do_train needs --train_file"),
            (["--do_predict"], "--do_predict needs --predict_file"),
            (["--do_predict", "--predict_file=x", "--find_null_threshold"], "needs"),
            (["--do_predict", "--predict_file=x", "--eval_steps=-1"], "at least 0"),
            (
                ["--do_train", *first, "--first_num_train_epochs=0"],
                "--first_num_train_epochs must be above 0",
            ),
            (["--do_predict", "--predict_file=x", "--evidence_dir=x"], "needs --first"),
            ([], "do_train"),
        ):
            with self.assertRaisesRegex(Exception, message):
                cli.parse(run_squad.run, ["--output_dir=x", *arguments])
