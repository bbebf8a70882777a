import csv
import json
import os

import numpy as np
from absl import flags

import bert_tf
from bert_tf import run_embeddings
from bert_tf.addons.serving.text_models.model import TextModel
from bert_tf.base.errors import InputError
from tests.script_case import ScriptCase

# Texts mean the same if they have the same one of these words.
TOPICS = [f"topic{number}" for number in range(8)]
WORDS = [*TOPICS, *(f"w{number}" for number in range(12))]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


def text(rng, topic):
    """A topic among other words."""
    words = [*rng.choice(WORDS[len(TOPICS) :], 2), TOPICS[topic]]
    return " ".join(rng.permutation(words))


def triples(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        topic, other = rng.choice(len(TOPICS), 2, replace=False)
        yield {
            "anchor": text(rng, topic),
            "positive": text(rng, topic),
            "negative": text(rng, other),
        }


def scored(count, seed):
    """Every other pair means the same: 5, else 0."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        topic, other = rng.choice(len(TOPICS), 2, replace=False)
        second = topic if number % 2 else other
        yield {
            "sentence1": text(rng, topic),
            "sentence2": text(rng, second),
            "score": 5.0 * (number % 2),
        }


def columns(rows, *names):
    return [{name: row[name] for name in names} for row in rows]


class RunEmbeddingsTest(ScriptCase):
    script = run_embeddings
    tokens = TOKENS

    def defaults(self):
        return {
            "max_seq_length": 8,
            "length_buckets": 1,
            "learning_rate": 1e-2,
            "train_batch_size": 16,
        }

    def write_csv(self, name, rows):
        rows = list(rows)
        with open(self.path(name), "w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
        return self.path(name)

    def rows(self, *names):
        with open(self.path(*names), newline="") as file:
            return list(csv.DictReader(file))

    def test_triples(self):
        train = self.write_csv("train.csv", triples(128, 1))
        dev = [*scored(40, 2)]
        returned = self.run_script(
            *("--do_train", "--do_eval"),
            train_file=train,
            dev_file=self.write(
                "dev.jsonl", "".join(json.dumps(x) + "\n" for x in dev)
            ),
            num_train_epochs=8,
        )
        self.assertGreater(returned.scores["spearman"], 0.8)
        self.assertAllClose(
            self.results()["eval_spearman"], returned.scores["spearman"], rtol=1e-6
        )
        self.assertEqual(self.results()["global_step"], 64)
        self.check_predictions(dev, returned.scores)
        with self.assertRaisesRegex(
            InputError, "scale 20.* of mean.*scale 20.* of max"
        ):
            self.run_script("--do_train", "--pooling=max", train_file=train)

    def check_predictions(self, dev, scores):
        """The run's vectors are those of `load`, and of length 1."""
        model = bert_tf.load(self.path("run"))
        self.assertIs(type(model), TextModel)
        texts = [[row[name] for row in dev] for name in ("sentence1", "sentence2")]
        one, other = map(model.embed, texts)
        self.assertAllClose(np.linalg.norm(one, axis=1), np.ones(40), rtol=1e-5)
        free = model.embed(texts[0], normalize=False)
        self.assertGreater(np.ptp(np.linalg.norm(free, axis=1)), 1e-3)
        predictions = self.rows("run", "dev_predictions.csv")
        similarity = [float(row["similarity"]) for row in predictions]
        self.assertAllClose((one * other).sum(axis=1), similarity, atol=2e-6)
        self.assertEqual([row["text_b"] for row in predictions], texts[1])
        labels = [float(row["score"]) for row in predictions]
        self.assertEqual(labels, [row["score"] for row in dev])
        pearson = np.corrcoef(similarity, labels)[0, 1]
        self.assertAllClose(pearson, scores["pearson"], rtol=1e-5)

    def test_pairs_hold_out_their_development_set(self):
        rows = columns(triples(80, 1), "anchor", "positive")
        returned = self.run_script(
            *("--do_train", "--do_eval", "--pooling=max", "--normalize=false"),
            train_file=self.write_csv("train.csv", rows),
            dev_share=0.25,
            num_train_epochs=1,
        )
        predictions = self.rows("run", "dev_predictions.csv")
        self.assertLen(predictions, 20)
        self.assertEqual(set(returned.scores), {"recall_at_1", "mrr"})
        model = bert_tf.load(self.path("run"))
        anchors, positives = (
            [row[name] for row in predictions] for name in ("text_a", "text_b")
        )
        one, other = (model.embed(x, normalize=True) for x in (anchors, positives))
        expected = model.embed(anchors, pooling="max", normalize=False)
        self.assertAllEqual(model.embed(anchors), expected)
        ranks = []
        for row, vector in enumerate(one):
            near = {t: v @ vector for t, v in zip(positives, other, strict=True)}
            ranks.append(sorted(near, key=near.get)[::-1].index(positives[row]) + 1)
        self.assertEqual([int(row["rank"]) for row in predictions], ranks)
        self.assertAllClose(returned.scores["mrr"], np.mean(1 / np.array(ranks)))

    def test_single_texts_and_scored_pairs(self):
        dev = self.write_csv("dev.csv", scored(20, 2))
        single = self.write_csv("single.csv", columns(triples(40, 1), "anchor"))
        for number, (options, loss) in enumerate(
            (
                ({"train_file": single}, "simcse_loss"),
                (
                    {"train_file": dev, "max_score": 5, "loss": "cosine_similarity"},
                    "cosine_similarity_loss",
                ),
            )
        ):
            run = f"run{number}"
            self.run_script(
                *("--do_train", "--do_eval"),
                dev_file=dev,
                num_train_epochs=1,
                output_dir=self.path(run),
                **options,
            )
            lines = self.read_json_lines(run, "metrics.jsonl")
            trained = [line for line in lines if loss in line]
            self.assertNotEmpty(trained, run)
            # With the same mask a text would be as near to itself as can be.
            self.assertGreater(trained[0][loss], 1e-3)

    def test_what_a_user_got_wrong_is_said_before_training(self):
        pairs = self.write_csv(
            "pairs.csv", columns(triples(8, 1), "anchor", "positive")
        )
        wide = self.write_csv("wide.csv", scored(8, 2))
        single = self.write_csv("single.csv", columns(triples(8, 1), "anchor"))
        words = [{**row, "score": "high"} for row in scored(8, 1)]
        words = self.write_csv("words.csv", words)
        for options, message in (
            ({"loss": "cosent"}, "pairs of .*multiple_negatives_ranking"),
            ({"train_file": wide, "loss": "cosine_similarity"}, "csv:3: .*max_score"),
            ({"train_file": words}, "words.csv:2: the score must be .*'high'"),
            ({"train_file": single}, "single.csv: a model is scored on pairs"),
            ({"text_columns": "x"}, "no column 'x' .`text_columns`"),
            ({"dev_file": "/none.csv"}, "none.csv"),
            ({"max_seq_length": 512}, "max_position_embeddings .16."),
            ({"gradient_accumulation_steps": 2}, "multiple_negatives_ranking_loss"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(
                    *("--do_train", "--do_eval"), **({"train_file": pairs} | options)
                )
        with self.assertRaisesRegex(flags.IllegalFlagValueError, "--dev_file is neede"):
            self.run_script("--do_train", "--do_eval", dev_share=0.0, train_file=pairs)
        self.assertFalse(os.path.exists(self.path("run", "checkpoint")))
