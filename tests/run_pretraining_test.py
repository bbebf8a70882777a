import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl import flags, logging

from bert_tf import run_pretraining
from bert_tf.addons.methods.initial_positions import neighbour_kernels, sinusoids
from bert_tf.addons.planning import reference_curves
from bert_tf.addons.planning.reference_curves import Reference
from bert_tf.addons.serving import export_model
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.conversion.loading import load_classifier, load_pretrainer
from bert_tf.conversion.tensorflow import read_weights
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.records import create_pretraining_data
from bert_tf.tasks import pretraining
from bert_tf.tasks.pretraining import PretrainingRun
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import reporting
from bert_tf.training.strategy import create_strategy
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.records import unmasked
from tests.script_case import ScriptCase
from tests.training import toy

WORDS = [f"w{number}" for number in range(toy.V - 5)]
TEXT = "\n\n".join(
    "\n".join(
        " ".join(
            WORDS[(7 * document + 3 * line + word) % len(WORDS)] for word in range(6)
        )
        for line in range(4)
    )
    for document in range(6)
)


class RunPretrainingTestCase(ScriptCase):
    script = run_pretraining
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)

    def setUp(self):
        super().setUp()
        self.write("text.txt", TEXT)
        self.records = self.make_records("records", dupe_factor=5)

    def defaults(self):
        return {
            "vocab_file": None,
            "input_file": self.records,
            "num_train_steps": 4,
            "num_warmup_steps": 1,
            "max_eval_steps": 3,
        }

    def make_records(self, name, **flags):
        given = {
            "input_file": self.path("text.txt"),
            "output_file": self.path(name),
            "vocab_file": self.vocab,
            "max_seq_length": toy.L,
            "max_predictions_per_seq": toy.P,
            **flags,
        }
        cli.run_script(create_pretraining_data, **given)
        return self.path(name)

    def weights(self, *names):
        """Those of a run's newest checkpoint."""
        return dict(read_weights(self.path(*names)))

    def make_model(self, path, **changes):
        """Another bert_config.json."""
        config = dataclasses.replace(toy.CONFIG, **changes)
        return self.write(path, config.to_json_string())


class TeacherTest(RunPretrainingTestCase):
    def test_a_smaller_model_with_the_teachers_first_layer(self):
        config = dataclasses.replace(toy.CONFIG, num_hidden_layers=2)
        theirs = randomize(model := BertPretrainer(config))
        large = runs.save(self.path("large"), model, config=config, tokens=None)
        self.run_script(
            do_train=True,
            init_checkpoint=large,
            init_layers=1,
            teacher_checkpoint=large,
            distill_cosine=1.0,
            num_train_steps=1,
        )
        metrics = self.read_json_lines("run", "metrics.jsonl")[0]
        parts = ("masked_lm_loss", "next_sentence_loss")
        losses = [*parts, *(f"teacher_{name}" for name in parts), "teacher_cosine"]
        self.assertAllClose(metrics["loss"], sum(metrics[name] for name in losses))
        # The first step's rate is 0: the weights are those that it began with.
        layer = "bert/encoder/layer_{}/output/dense/kernel".format
        self.assertAllEqual(self.weights("run")[layer(0)], theirs[layer(1)])
        other = runs.save(self.path("classifier"), BertClassifier(toy.CONFIG, 2))
        with self.assertRaisesRegex(InputError, "no masked LM head to learn from"):
            self.run_script(do_train=True, teacher_checkpoint=other)


class PackedTest(RunPretrainingTestCase):
    def test_long_rows_of_short_sequences_have_local_attention(self):
        model = BertPretrainer(toy.CONFIG)
        randomize(model)
        flags = {
            "input_file": self.make_records("rows", packed_length=8 * toy.L),
            "init_checkpoint": runs.save(
                self.path("made"), model, config=toy.CONFIG, tokens=None
            ),
            "do_eval": True,
            "max_eval_steps": 0,
        }
        scores = []
        for long_row, longest in ((8, toy.L), (9, None)):
            flags["output_dir"] = self.path(f"run{long_row}")
            with mock.patch.object(pretraining, "_LONG_ROW", long_row):
                run = PretrainingRun(self.flags(**flags), create_strategy())
                scores.append(self.run_script(**flags).scores)
            encoder = run.task.build_model().encoder
            self.assertEqual(encoder.options["longest_sequence"], longest)
            self.assertIsNone(encoder.bert_config.attention_window)
        for name in ("masked_lm_loss", "next_sentence_loss", "bits_per_byte"):
            local, full = (each[name] for each in scores)
            self.assertAllClose(local, full, rtol=1e-6, atol=0)


class RunPretrainingTest(RunPretrainingTestCase):
    def test_the_documented_command_leaves_everything_behind(self):
        # README of google-research/bert, with this test's files and lengths.
        command = f"""--input_file={self.records} --output_dir={self.path("run")}
          --do_train=True --do_eval=True --bert_config_file={self.config}
          --train_batch_size=32 --max_seq_length=12 --max_predictions_per_seq=2
          --num_train_steps=4 --num_warmup_steps=1 --learning_rate=2e-5"""
        parsed = cli.parse(run_pretraining.run, command.split())
        returned = run_pretraining.run(parsed)
        lines = self.read("run", "eval_results.txt").splitlines()
        (loss,) = (line for line in lines if line.startswith("masked_lm_loss = "))
        expected = returned.scores["masked_lm_loss"]
        self.assertAllClose(float(loss.split()[-1]), expected)
        # The original's names, order and form; the others are ours.
        self.assertEqual(
            [line.split(" = ")[0] for line in lines],
            [
                *("bits_per_byte", "global_step", "loss"),
                *("masked_lm_accuracy", "masked_lm_loss", "masked_lm_majority"),
                "masked_lm_unigram_loss",
                *("next_sentence_accuracy", "next_sentence_loss"),
                *("next_sentence_majority", "unigram_bits_per_byte"),
            ],
        )
        self.assertEqual(lines[1], "global_step = 4")
        for line in [lines[0], *lines[2:]]:
            self.assertRegex(line, r"^\w+ = \d+(\.\d+)?(e-?\d+)?$")
        self.assertContainsSubset(
            {
                *("bert_config.json", "vocab.txt", "tokenizer_config.json"),
                *("flags.json", "metrics.jsonl", "curves.png"),
                *("checkpoint", "model.ckpt-4.index"),
            },
            {*os.listdir(self.path("run"))},
        )
        self.assertEqual(
            Vocabulary.from_file(self.path("run", "vocab.txt")).sha256,
            Vocabulary.from_file(self.vocab).sha256,
        )
        self.assertEqual(self.read_json("run", "flags.json")["num_train_steps"], 4)
        # Once more: nothing to train, the same evaluation, no line twice.
        run_pretraining.run(parsed)
        self.assertEqual(self.read("run", "eval_results.txt").splitlines(), lines)
        metrics = self.read_json_lines("run", "metrics.jsonl")
        self.assertLen(metrics, 2)
        self.assertIn("eval/masked_lm_loss", metrics[-1])
        self.assert_card_tells_of_the_run()
        # A checkpoint that is given is evaluated too.
        self.run_script(
            do_eval=True,
            eval_input_file=self.make_records("held_out", dupe_factor=1),
            output_dir=self.path("other"),
            init_checkpoint=self.path("run"),
        )
        self.assertEqual(self.results("other")["global_step"], 0)

    def assert_card_tells_of_the_run(self):
        card = self.read("run", "README.md")
        head, body = card.removeprefix("---\n").split("\n---\n")
        values = dict(line.split(": ", 1) for line in head.splitlines())
        values = {name: json.loads(value) for name, value in values.items()}
        self.assertEqual(values["pipeline_tag"], "fill-mask")
        self.assertNotIn("license", values)
        # The text of 6 documents of 4 lines of 6 words, and the digest of its file.
        self.assertIn("6 documents, 24 sentences, 144 tokens; license: not given", body)
        self.assertIn(hashlib.sha256(TEXT.encode()).hexdigest(), body)
        self.assertIn("| text.txt |", body)
        weights = load_pretrainer(self.path("run")).count_params()
        self.assertIn(f"{weights:,} weights, from scratch", body)
        loss = self.results("run")["masked_lm_loss"]
        self.assertRegex(body, rf"masked_lm_loss +\| +{loss:.4f} \|")
        self.assertIn("masked_lm_unigram_loss | ", body)
        self.assertRegex(body, r"unigram_bits_per_byte +\| +\d")
        self.assertIn("](curves.png)", body)
        # What it says about its use runs, next to the folder.
        (code,) = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
        with contextlib.chdir(self.get_temp_dir()):
            exec(code, {})

    def test_the_reference_of_its_size(self):
        reference = Reference(
            size="tiny",
            made="made by hand",
            tokens=[0.0, 40.0, 1e6],
            bits_per_byte=[3.0, 2.5, 2.5],
            masked_lm_loss=[7.0, 6.0, 5.0],
            unigram_bits_per_byte=2.0,
            masked_lm_unigram_loss=3.5,
        )
        with (
            mock.patch.object(reference_curves, "of_run", lambda folder: reference),
            mock.patch.object(reporting, "write_curves") as drawing,
            self.assertLogs(level="INFO") as logs,
        ):
            self.run_script(do_train=True, do_eval=True, log_steps=1, eval_steps=2)
            self.run_script(do_eval=True)
        # Also by a later evaluation, which draws the curves again.
        behind = [call.args[2] for call in drawing.call_args_list if call.args[2:]]
        self.assertLen(behind, 2)
        said = [one for one in logs.output if "Reference tiny at 0.0 M tokens" in one]
        self.assertLen(said, 4)
        # In proportion to the unigrams of the run's text.
        results = self.results()
        unigrams = results["unigram_bits_per_byte"]
        self.assertBetween(unigrams, 1.0, 20.0)
        expected = f"{1.25 * unigrams:.2f} bits per byte, in proportion"
        self.assertIn(expected, said[-1])
        # At its tokens, or where the run was then.
        steps, bits = behind[-1]["eval/bits_per_byte"]
        self.assertEqual((steps[0], bits), (0.0, [3.0, 2.5]))
        self.assertBetween(steps[1], 0.1, 1.0)

    @pytest.mark.slow
    def test_an_evaluation_alone_needs_no_model_flag(self):
        trained = self.run_script(do_train=True, do_eval=True)
        found = self.run_script(do_eval=True, bert_config_file=None)
        self.assertAllClose(found.scores, trained.scores)
        # What the model predicts is what it was trained on.
        for number, given in enumerate(
            ({"next_sentence": False}, {"electra": True, "generator_size": 0.5})
        ):
            folder = {"output_dir": self.path(f"other{number}")}
            trained = self.run_script(do_train=True, do_eval=True, **given, **folder)
            found = self.run_script(do_eval=True, bert_config_file=None, **folder)
            self.assertAllClose(found.scores, trained.scores)
            self.assertNotIn("next_sentence_loss", found.scores)
            # Also where that training is another folder's, as the model to begin with.
            again = {"init_checkpoint": folder["output_dir"], "bert_config_file": None}
            again["output_dir"] = self.path(f"again{number}")
            found = self.run_script(do_eval=True, **again)
            self.assertAllClose(found.scores, trained.scores)
            self.assertNotIn("next_sentence_loss", found.scores)
        # The flags of an evaluation are no training's.
        plain = {"init_checkpoint": self.path("run"), "output_dir": self.path("plain")}
        found = self.run_script(do_eval=True, next_sentence=False, **plain)
        self.assertNotIn("next_sentence_loss", found.scores)
        found = self.run_script(do_eval=True, **plain)
        self.assertIn("next_sentence_loss", found.scores)
        given = {"do_eval": True, "next_sentence": True}
        found = self.run_script(output_dir=self.path("other0"), **given)
        self.assertIn("next_sentence_loss", found.scores)
        nothing = {"do_eval": True, "bert_config_file": None}
        with self.assertRaisesRegex(
            InputError, "Give `init_checkpoint`, .*`bert_size`"
        ):
            self.run_script(output_dir=self.path("none"), **nothing)

    def test_the_card_has_the_license_and_the_model_before(self):
        self.run_script(
            do_train=True,
            num_train_steps=1,
            output_dir=self.path("first", ""),
            data_license="cc-by-4.0",
        )
        self.run_script(
            do_train=True, num_train_steps=1, init_checkpoint=self.path("first")
        )
        first, second = (self.read(name, "README.md") for name in ("first", "run"))
        self.assertIn('license: "cc-by-4.0"\n', first)
        self.assertIn("tokens; license: cc-by-4.0", first)
        self.assertIn('bert_tf.load("first")', first)
        exported = {"format": "huggingface", "output_dir": self.path("exported")}
        cli.run_script(export_model, checkpoint=self.path("first"), **exported)
        of_export = first.replace('bert_tf.load("first', 'bert_tf.load("exported')
        for word in (
            "In the folder that `{}` is",
            'load_tokenizer("{}"',
            '_classifier("{}"',
        ):
            of_export = of_export.replace(word.format("first"), word.format("exported"))
        self.assertEqual(
            self.read("exported", "README.md"),
            of_export.replace('name: "bert_tf"', 'name: "transformers"'),
        )
        self.assertTrue(os.path.exists(self.path("exported", "curves.png")))
        self.assertIn(f"trained on from {self.path('first')}", second)
        self.assertNotIn("## Held-out text", second)
        self.assertNotIn("several sets of records", second)
        # Other records in the same folder: the license of before, and both sets.
        other = self.make_records("other", dupe_factor=2)
        self.run_script(
            do_train=True,
            num_train_steps=2,
            output_dir=self.path("first"),
            input_file=other,
        )
        again = self.read("first", "README.md")
        self.assertIn('license: "cc-by-4.0"\n', again)
        self.assertRegex(again, rf"\| 0 +\| +{re.escape(self.records)} \|")
        self.assertRegex(again, rf"\| 1 +\| +{re.escape(other)} \|")

    def test_the_card_of_a_growing_batch(self):
        self.run_script(
            do_train=True,
            phases=f"{toy.L}:1:2,{toy.L}:2:4",
            num_train_steps=None,
            train_batch_size=None,
        )
        card = self.read("run", "README.md")
        self.run_script(do_train=True, output_dir=self.path("plain"))
        plain = self.read("plain", "README.md")
        self.assertRegex(card, r"\| sequences per step +\| +2, 4 \|")
        text = card[card.index("## Text") : card.index("![")]
        self.assertIn(text, plain)

    @pytest.mark.slow
    def test_how_much_of_which_text_is_evaluated(self):
        same = self.make_records("same", dupe_factor=4)
        shards = json.loads(self.read("same.manifest.json"))["shards"]
        count = sum(one["num_records"] for one in shards)
        given = {"do_train": True, "do_eval": True, "num_train_steps": 1}
        given |= {"eval_input_file": same, "eval_batch_size": 1}
        with self.assertLogs(level="WARNING") as logged:
            self.run_script(**given)
        self.assertIn("the training reads text.txt too", "".join(logged.output))
        on = f"On the first 3 of {count} records of text.txt. The training has seen"
        self.assertIn(f"{on} text.txt.", self.read("run", "README.md"))
        results = []
        for steps in (0, count):
            folder = {"output_dir": self.path(str(steps))}
            self.run_script(**given | folder, max_eval_steps=steps)
            results.append(self.results(str(steps)))
            card = self.read(str(steps), "README.md")
            self.assertIn("On text.txt. The training has seen", card)
        self.assertEqual(*results)
        # Bits per byte are of as many records as there are batches of masked words.
        self.assertNotEqual(results[0], self.results("run"))

    @pytest.mark.slow
    def test_the_card_has_the_figures_before_training(self):
        first = {"output_dir": self.path("first")}
        self.run_script(do_train=True, do_eval=True, num_train_steps=1, **first)
        before = self.results("first")
        self.assertNotIn("step 0", self.read("first", "README.md"))
        # Records of the original have no manifest.
        shutil.copy(self.records, self.path("held_out"))
        given = {
            "num_train_steps": 2,
            "init_checkpoint": self.path("first"),
            "eval_input_file": self.path("held_out"),
        }
        self.run_script(do_train=True, do_eval=True, **given)
        card = self.read("run", "README.md")
        self.assertIn(
            "\nOn the first training records.\n", self.read("first", "README.md")
        )
        self.assertIn("\nOn the first 24 of 86 records without a manifest.\n", card)
        self.assertRegex(card, r"\| +\| +step 0 \| +step 2 \|")
        for name in ("masked_lm_loss", "masked_lm_accuracy", "bits_per_byte"):
            self.assertRegex(card, rf"\| {name} +\| +{before[name]:.4f} \|")
        # A run that is given again does not evaluate what it began with once more.
        metrics = self.read("run", "metrics.jsonl")
        self.run_script(do_train=True, **{**given, "num_train_steps": 3})
        again = self.read("run", "metrics.jsonl")
        for text in (metrics, again):
            self.assertEqual(text.count('"step": 0, '), 1)

    @pytest.mark.slow
    def test_bits_per_byte_of_a_model_without_knowledge(self):
        model = BertPretrainer(toy.CONFIG)
        for weight in model.weights:
            weight.assign(0.0 * weight)
        blank = runs.save(self.path("blank"), model, tokens=self.tokens)
        # Words of one piece each, of 3 bytes: "w10" to "w24".
        text = TEXT
        for number in range(10):
            text = text.replace(f"w{number} ", f"w{number + 10} ")
        self.write("text.txt", re.sub(r"\bw\d\b", "w20", text))
        unmasked = self.make_records("dynamic", masking="dynamic", pairs="none")
        for records in (self.make_records("long"), unmasked):
            given = {"input_file": records, "init_checkpoint": blank}
            self.run_script(do_eval=True, **given)
            results = self.results()
            bits = np.log2(toy.V)
            self.assertAllClose(results["bits_per_byte"], bits / 3, rtol=1e-5)
            self.assertAllClose(results["masked_lm_loss"], np.log(toy.V), rtol=1e-5)
        # Nothing is masked where each token predicts the next one.
        self.run_script(
            *("--left_to_right", "--nonext_sentence"),
            do_train=True,
            do_eval=True,
            input_file=unmasked,
            output_dir=self.path("other"),
        )
        self.assertNotIn("bits_per_byte", self.results("other"))
        # The best checkpoint by it has the lowest one.
        given = {"eval_steps": 1, "best_metric": "bits_per_byte", "do_train": True}
        self.run_script(**given, learning_rate=0.1, output_dir=self.path("best_of"))
        best = self.read_json("best_of", "best", "best.json")
        lines = self.read_json_lines("best_of", "metrics.jsonl")
        values = [line["eval/bits_per_byte"] for line in lines if "eval/loss" in line]
        self.assertLen(values, 4)
        self.assertEqual(best["value"], min(values))

    @pytest.mark.slow
    def test_records_made_again_from_other_text_are_another_set(self):
        step = {"do_train": True, "do_eval": True, "train_batch_size": 4}
        self.run_script(**step, eval_steps=1, num_train_steps=2)
        best = self.read_json("run", "best", "best.json")
        reader = tf.train.load_checkpoint(self.path("run", "model.ckpt-2"))
        key = "progress/records/.ATTRIBUTES/VARIABLE_VALUE"
        self.assertEqual(reader.get_tensor(key), 8)
        for path in pathlib.Path(self.get_temp_dir()).glob("records*"):
            path.unlink()
        # As many records, in a file of the same name.
        self.write("text.txt", TEXT.replace("w1 ", "w2 "))
        self.make_records("records", dupe_factor=5)
        with self.assertLogs(level="INFO") as logs:
            self.run_script(**step, eval_steps=1, num_train_steps=3)
        self.assertIn("from its first record", "".join(logs.output))
        reader = tf.train.load_checkpoint(self.path("run", "model.ckpt-3"))
        self.assertEqual(reader.get_tensor(key), 4)
        # And evaluations on them are not compared with the ones before.
        after = self.read_json("run", "best", "best.json")
        self.assertEqual(after["step"], 3)
        self.assertNotEqual(after["data"], best["data"])

    @pytest.mark.slow
    def test_phases_of_records_without_a_manifest(self):
        """As the original writes them: the records say their lengths."""
        for name, length, slots in (("short", 8, 1), ("long", toy.L, toy.P)):
            lengths = {"max_seq_length": length, "max_predictions_per_seq": slots}
            self.make_records(name, dupe_factor=3, **lengths)
            os.remove(self.path(f"{name}.manifest.json"))
        with mock.patch.object(logging, "info") as info:
            self.run_script(
                f"--phases=8:2:4,{toy.L}:3:2",
                do_train=True,
                input_file=f"{self.path('short')},{self.path('long')}",
                vocab_file=self.vocab,
                num_train_steps=None,
            )
        said = [call.args[0] % call.args[1:] for call in info.call_args_list]
        self.assertIn("  2 steps of 4 sequences of length 8", said)
        self.assertIn(f"  3 steps of 2 sequences of length {toy.L}", said)
        self.assertContainsSubset(
            {"vocab.txt", "model.ckpt-5.index"}, {*os.listdir(self.path("run"))}
        )


class UnmaskedRecordsTest(RunPretrainingTestCase):
    def setUp(self):
        super().setUp()
        self.records = unmasked.write_set(self.path("unmasked"))

    def assert_same_weights(self, name, other):
        ours, theirs = self.weights(name), self.weights(other)
        self.assertEqual(ours.keys(), theirs.keys())
        for key, weight in ours.items():
            self.assertAllEqual(weight, theirs[key], key)

    @pytest.mark.slow
    def test_a_run_that_was_killed_ends_bit_identical(self):
        # 20 records and batches of 8: the second epoch begins within the third batch.
        options = {
            "do_train": True,
            "train_batch_size": 8,
            "save_checkpoints_steps": 2,
            "log_steps": 1,
            "num_train_steps": 6,
        }
        self.run_script(output_dir=self.path("whole"), **options)
        report = reporting.Reporter.report

        def report_and_die(self, step, metrics):
            report(self, step, metrics)
            if step == 3:
                raise SystemExit("killed")

        with (
            mock.patch.object(reporting.Reporter, "report", report_and_die),
            self.assertRaisesRegex(SystemExit, "killed"),
        ):
            self.run_script(output_dir=self.path("killed"), **options)
        self.run_script(output_dir=self.path("killed"), **options)
        self.assert_same_weights("killed", "whole")
        # The comparison sees masks: with others the weights are others.
        options |= {"masking_unit": "span"}
        self.run_script(output_dir=self.path("other"), **options)
        table = "bert/embeddings/word_embeddings"
        self.assertNotAllEqual(
            self.weights("other")[table], self.weights("whole")[table]
        )

    def test_electra(self):
        self.make_model(self.config, embedding_size=4)
        options = {"do_train": True, "electra": True, "generator_size": 0.5}
        with self.assertRaisesRegex(ValueError, "a hidden size of 0 and 1"):
            self.run_script(**(options | {"generator_size": 0.01}))
        self.run_script(do_eval=True, **options)
        results = self.results()
        self.assertEqual(
            list(results),
            [
                *("discriminator_accuracy", "discriminator_loss"),
                *("global_step", "loss"),
                *("masked_lm_accuracy", "masked_lm_loss", "masked_lm_majority"),
                *("masked_lm_unigram_loss", "replaced_share"),
            ],
        )
        loss = results["masked_lm_loss"] + 50 * results["discriminator_loss"]
        # The batches' losses are averaged, or all tokens'.
        self.assertAllClose(results["loss"], loss, rtol=0.05)
        self.assertBetween(results["replaced_share"], 0.05, 0.4)
        # Once more the same, and what goes out fine-tunes.
        self.run_script(do_eval=True, electra=True, generator_size=0.5)
        self.assertEqual(self.results(), results)
        self.assertEqual(
            load_classifier(self.path("run"), 2).bert_config.embedding_size, 4
        )
        with self.assertRaisesRegex(InputError, "holds a run on electra"):
            self.run_script(do_train=True)

    def test_two_evaluations_have_the_same_masks(self):
        static = self.make_records("static", dupe_factor=2)
        with self.assertRaisesRegex(
            InputError, "`masking_unit=span` is for .* masks of .*static are in the"
        ):
            self.run_script(do_train=True, input_file=static, masking_unit="span")
        # Flags may be meant for the evaluation's records alone.
        vocab = Vocabulary.from_file(self.vocab)
        options = {
            "input_file": static,
            "eval_input_file": unmasked.write_set(
                self.path("held_out"), vocabulary=vocab
            ),
            "max_predictions_per_seq": toy.P,
            "masking_unit": "span",
            "do_eval": True,
        }
        self.run_script(do_train=True, **options)
        results = self.results()
        self.run_script(random_seed=2, **options)
        self.assertEqual(self.results(), results)

    @pytest.mark.slow
    def test_the_evaluation_does_not_depend_on_the_rate_of_the_training(self):
        by_recipe = {"recipe": "budget", "next_sentence": True}
        self.run_script(do_train=True, num_train_steps=1, **by_recipe)
        settings = self.read_json_lines("run/starts.jsonl")[0]["settings"]
        self.assertEqual(settings["masked_lm_prob"], 0.25)  # names it if it changes
        start = self.path("run")

        def losses(records, **options):
            self.run_script(
                **{"do_eval": True, "init_checkpoint": start, **options},
                input_file=records,
                output_dir=self.path("evaluated"),
            )
            results = self.results("evaluated")
            return results["masked_lm_loss"], results["bits_per_byte"]

        # What records of 15 % give by themselves.
        few = losses(unmasked.write_set(self.path("few"), masked_lm_prob=0.15))
        self.assertEqual(losses(self.records, masked_lm_prob=0.9), few)
        held_out = {"eval_input_file": unmasked.write_set(self.path("held_out"))}
        self.assertEqual(losses(self.records, **held_out), few)
        many = losses(self.records, eval_masked_lm_prob=0.9)
        self.assertNotAllClose(many[0], few[0])
        # The recipe's rate is the training's, and is for records without masks.
        with self.assertLogs(level="INFO") as logs:
            self.assertEqual(losses(self.records, **by_recipe), few)
        rates = re.findall("as they are read: pieces, ([0-9.]+)", str(logs.output))
        self.assertEqual(rates, ["0.25", "0.15"])
        given = {"eval_masked_lm_prob": 0.2}
        with self.assertRaisesRegex(InputError, "model that reads in one direction"):
            losses(self.records, left_to_right=True, init_checkpoint=None, **given)
        static = self.make_records("static", dupe_factor=1)
        with self.assertRaisesRegex(InputError, "`eval_masked_lm_prob=0.2` is for"):
            losses(static, init_checkpoint=None, **given)
        given = {"do_train": True, "num_train_steps": 1, "recipe": "budget"}
        self.run_script(input_file=static, output_dir=self.path("masked"), **given)

    def test_without_sentence_pairs_the_masked_lm_is_alone(self):
        records = unmasked.write_set(self.path("none"), pairs="none")
        options = {"input_file": records, "do_train": True, "do_eval": True}
        with mock.patch.object(logging, "info") as info:
            self.run_script(**options)
        said = [call.args[0] for call in info.call_args_list]
        self.assertLen([line for line in said if "no sentence pairs" in line], 1)
        of_masked_lm = ("accuracy", "loss", "majority", "unigram_loss")
        names = ["bits_per_byte", "global_step", "loss"]
        names += [f"masked_lm_{name}" for name in of_masked_lm]
        self.assertEqual([*self.results()], [*names, "unigram_bits_per_byte"])
        # The head is there for whoever goes on with sentence pairs.
        self.assertIn("cls/seq_relationship/output_weights", self.weights("run"))
        with self.assertRaisesRegex(InputError, "cannot be used together"):
            self.run_script(
                do_eval=True, input_file=records, eval_input_file=self.records
            )


class RefusalTest(RunPretrainingTestCase):
    def assert_refused(self, message, **options):
        with self.assertRaisesRegex((flags.Error, InputError, ValueError), message):
            self.run_script(**({"do_train": True} | options))

    def test_before_anything_is_written(self):
        short = self.make_model(self.path("short.json"), max_position_embeddings=8)
        small = self.make_model(self.path("small.json"), vocab_size=20)
        bare = toy.write_records(self.path("bare.tfrecord"))
        lengths = {"max_seq_length": 10, "max_predictions_per_seq": toy.P}
        other = self.path("other.txt")
        Vocabulary([*self.tokens[:5], *reversed(WORDS)]).save(other)
        others = self.make_records("others", vocab_file=other, dupe_factor=2)
        for options, message in (
            ({"bert_config_file": short}, "must not exceed the model's .* .8."),
            ({"bert_config_file": small}, "30 tokens, but the .* `vocab_size` is 20"),
            ({"input_file": "nowhere*"}, "`input_file`: no file matches"),
            (
                {"do_eval": True, "eval_input_file": "nowhere*"},
                "`eval_input_file`: no file matches",
            ),
            ({"input_file": self.write("empty", "")}, "there is no record in"),
            ({"max_seq_length": 16}, "=16`, but the records of .* were made with 12"),
            ({"max_predictions_per_seq": 20}, "_per_seq=20`, but .* with 2"),
            (
                {"input_file": bare, **lengths},
                "bare.tfrecord: `input_ids` must have 10 values .* Received: 12",
            ),
            (
                {"input_file": f"{self.records},{others}"},
                "they have different vocabularies",
            ),
            ({"vocab_file": other}, "not the vocabulary of"),
            ({"stop_if": "loss>6"}, "condition must be METRIC>VALUE@STEP"),
            ({"stop_if": "loss>6@4"}, "the training ends at 4"),
            ({"stop_if": "perplexity>6@2"}, "the metrics are loss, .*bits_per_byte;"),
            ({"stop_if": "bits_per_byte>6@2"}, "give `eval_steps`"),
            ({"do_lower_case": False}, "`do_lower_case=False`, but the records"),
            (
                {
                    "phases": f"{toy.L}:2:3",
                    "gradient_accumulation_steps": 2,
                    "num_train_steps": None,
                },
                "`phases=.*:2:3: BATCH=3` cannot be divided",
            ),
            # Found before training.
            (
                {"eval_steps": 1000, "best_metric": "f1"},
                "`best_metric=f1` .* evaluation: loss, ",
            ),
        ):
            self.assert_refused(message, **options)
            self.assertFalse(os.path.exists(self.path("run")), message)

    def test_flags(self):
        electra = {"electra": True}
        for options, message in (
            ({"generator_size": 0.5}, "--generator_size has no effect without"),
            (electra | {"left_to_right": True}, "exclude each other"),
            (electra | {"next_sentence": True}, "exclude each other"),
            (electra | {"teacher_checkpoint": "x"}, "teacher_checkpoint excl"),
            ({"masked_lm_prob": 0}, "masked_lm_prob"),
            ({"stacking": "1:2,x"}, 'must be LAYERS:STEPS.*Received: "x"'),
            ({"stacking": "3:2"}, "are not a multiple of 3"),
            ({"learning_rate_power": 2.0}, "--learning_rate_power"),
            (
                {"learning_rate_schedule": "polynomial", "learning_rate_power": 0.0},
                "--learning_rate_power",
            ),
            (
                {"learning_rate_schedule": "constant", "end_learning_rate": 1e-5},
                "--end_learning_rate",
            ),
            (
                {"learning_rate_schedule": "inverse_sqrt", "decay_from": "warmup"},
                "--decay_from",
            ),
        ):
            self.assert_refused(message, **options)

    def test_an_id_outside_the_vocabulary_is_one_line_and_no_nan(self):
        bare = toy.write_records(self.path("bare.tfrecord"), vocab_size=toy.V + 9)
        lengths = {"max_seq_length": toy.L, "max_predictions_per_seq": toy.P}
        message = "outside the vocabulary of 30 tokens"
        self.assert_refused(message, input_file=bare, **lengths)


class PreviousOrNextTest(RunPretrainingTestCase):
    def test_three_labels(self):
        three = self.make_records("three", pairs="previous")
        self.run_script(do_train=True, do_eval=True, input_file=three)
        model = load_pretrainer(self.path("run"))
        self.assertEqual(model.output["next_sentence_logits"].shape[-1], 3)
        with self.assertRaisesRegex(InputError, "cannot be used together"):
            self.run_script(do_train=True, input_file=f"{three},{self.records}")


class InitialPositionsTest(RunPretrainingTestCase):
    POSITIONS = "bert/embeddings/position_embeddings"

    def test_a_training_begins_with_neighbours_once(self):
        given = {"do_train": True, "initial_positions": "neighbours"}
        # The warmup's first step has the rate 0.
        self.run_script(**given, num_train_steps=1)
        shape = (toy.CONFIG.max_position_embeddings, toy.CONFIG.hidden_size)
        first = self.weights("run")[self.POSITIONS]
        self.assertAllClose(first, sinusoids(*shape))
        query = "bert/encoder/layer_0/attention/self/query/kernel"
        added = neighbour_kernels(shape[1], toy.CONFIG.num_attention_heads)[0]
        rest = self.weights("run")[query] - added
        self.assertAllLessEqual(np.abs(rest), 2.0 * toy.CONFIG.initializer_range + 1e-6)
        self.run_script(**given, num_train_steps=9, learning_rate=0.01)
        later = self.weights("run")[self.POSITIONS]
        self.assertNotAllClose(later, first, atol=1e-3)
        # A training that is resumed goes on with its own.
        self.run_script(**given, num_train_steps=10, learning_rate=1e-9)
        self.assertAllClose(self.weights("run")[self.POSITIONS], later, atol=1e-6)


class StackingTest(RunPretrainingTestCase):
    @pytest.mark.slow
    def test_layers_begin_as_those_of_the_stages_before(self):
        self.make_model(self.config, num_hidden_layers=2)
        given = {"stacking": "1:3", "learning_rate": 0.01, "do_train": True}
        # The last model's only step is the warmup's first, of rate 0: it stays as it is
        # stacked.
        self.run_script(**given, num_train_steps=1)
        one = self.weights("run", "stacking_1_layers")
        for name, weight in self.weights("run").items():
            source = re.sub("layer_[0-9]", "layer_0", name)
            self.assertAllEqual(weight, one[source], name)
        # Again: nothing is left to do.
        with self.assertLogs(level="INFO") as logs:
            self.run_script(**given, num_train_steps=1)
        self.assertNotIn("Stage of", "".join(logs.output))
        self.assertIn("Training is complete", "".join(logs.output))
        # A checkpoint of fewer layers, by hand.
        given = {
            "do_train": True,
            "init_checkpoint": self.path("run", "stacking_1_layers"),
            "output_dir": self.path("other"),
        }
        with self.assertRaisesRegex(InputError, "lacks"):
            self.run_script(**given)
        with self.training_nothing(), self.assertRaisesRegex(AssertionError, "trained"):
            self.run_script(**given, stack_layers=True)

    def test_each_stage_begins_with_the_model_of_the_one_before(self):
        self.make_model(self.config, num_hidden_layers=4)
        stages = []

        def trained(run):
            stages.append(run.options)
            model = BertPretrainer(run.config)
            runs.save(stages[-1].output_dir, model, config=run.config, tokens=None)

        options = self.flags(
            do_train=True, stacking="1:3,2:20", initial_positions="sinusoids"
        )
        run = PretrainingRun(options, create_strategy())
        with mock.patch.object(PretrainingRun, "train", trained):
            run.first_stages()
        one, two = (self.path("run", f"stacking_{n}_layers") for n in (1, 2))
        self.assertEqual(run.init_checkpoint, two)
        names = (
            "init_checkpoint",
            "stack_layers",
            "num_train_steps",
            "num_warmup_steps",
            "initial_positions",
        )
        self.assertEqual(
            [[getattr(stage, name) for name in names] for stage in stages],
            [[None, False, 3, 0, "sinusoids"], [one, True, 20, 1, "random"]],
        )
        self.assertLen({stage.random_seed for stage in [options, *stages]}, 3)
        # The last model begins with the positions of the stage before.
        model = BertPretrainer(run.config)
        positions = model.encoder.embeddings.position_embeddings
        before = np.array(positions)
        run.task.begin(model)
        self.assertAllEqual(positions, before)
        run.init_checkpoint = None
        run.task.begin(model)
        self.assertNotAllClose(positions, before)


# Loss of each of the first 50 steps, by optimizer.
FIRST_LOSSES = pathlib.Path(__file__).with_name("first_losses.json")


class FirstLossesTest(RunPretrainingTestCase):
    def losses(self, optimizer):
        self.run_script(
            "--do_train",
            recipe="budget",
            optimizer=optimizer,
            learning_rate=4e-3,
            num_train_steps=50,
            num_warmup_steps=3,
            log_steps=1,
            input_file=self.make_records("dynamic", masking="dynamic", pairs="none"),
            output_dir=self.path(optimizer),
        )
        entries = self.read_json_lines(optimizer, "metrics.jsonl")
        return [one["loss"] for one in entries if "learning_rate" in one]

    @pytest.mark.slow
    def test_they_are_anybodys(self):
        # Another processor adds in another order.
        for optimizer, wanted in json.loads(FIRST_LOSSES.read_text()).items():
            self.assertLen(wanted, 50)
            self.assertAllClose(self.losses(optimizer), wanted, rtol=1e-4, atol=0.0)
