import json
import os
from unittest import mock

import numpy as np
from absl import flags

from bert_tf import run_squad
from bert_tf.addons.study import run_paper, two_encoders
from bert_tf.base import cli
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.tasks import run_log
from bert_tf.tasks.run_options import RunSetting
from bert_tf.text.vocabulary import Vocabulary
from tests.script_case import FolderCase

_OF_SQUAD = (
    *("train_file", "predict_file", "output_dir", "init_checkpoint", "do_train"),
    *("max_seq_length", "doc_stride", "max_query_length"),
)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]


class Commands:
    """In the place of the commands: they leave what the tables are made of."""

    def __init__(self):
        self.ran = []

    def __call__(self, script, **values):
        name = script.__name__.rpartition(".")[2]
        self.ran.append((name, values))
        folder = values.get("output_dir")
        if name == "run_pretraining":
            os.makedirs(folder)
            if values.get("do_eval"):
                with open(os.path.join(folder, "eval_results.txt"), "w") as file:
                    file.write("masked_lm_loss = 2.0\n")
            with open(os.path.join(folder, "metrics.jsonl"), "w") as file:
                file.write(json.dumps({"steps_per_second": 5.0}) + "\n")
        elif name != "create_pretraining_data":
            os.makedirs(folder)
            self.select(folder, values)

    def select(self, folder, values):
        records = [
            run_log.RunRecord(
                settings=RunSetting(rate, 32, 3.0, seed),
                scores={1.0: {"accuracy": 0.5 + 0.01 * seed + 100 * rate}},
            )
            for rate in values["learning_rates"]
            for seed in range(values["num_restarts"])
        ]
        header = run_log.Header(made_with={}, metric="accuracy")
        run_log.write(folder, header, records)
        with open(os.path.join(folder, "eval_results.txt"), "w") as file:
            file.write("eval_mismatched_accuracy = 0.5\ntest_accuracy = 0.25\n")

    def values_of(self, name):
        return [values for script, values in self.ran if script == name]


class RunPaperTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.commands = Commands()
        self.enter_context(mock.patch.object(cli, "run_script", self.commands))
        self.enter_context(mock.patch.object(two_encoders, "fine_tune", self.commands))
        names = "text.txt", "held_out.txt", "glue/MRPC/train.tsv"
        for name in (*names, "ner/train.txt", "ner/test.txt"):
            self.write(name, "")
        Vocabulary(TOKENS).save(self.path("vocab.txt"))

    def make(self, *arguments):
        given = {
            "input_file": self.path("text.txt"),
            "eval_file": self.path("held_out.txt"),
            "vocab_file": self.path("vocab.txt"),
            "bert_size": "tiny",
            "glue_dir": self.path("glue"),
            "ner_dir": self.path("ner"),
            "output_dir": self.path("out"),
            "num_restarts": 2,
        }
        arguments = [*(f"--{k}={v}" for k, v in given.items()), *arguments]
        run_paper.run(cli.parse(run_paper.run, arguments))

    def table(self, name):
        return self.read_json("out", f"{name}.json")

    def test_table_5(self):
        self.make("--table=5", "--budget=2m")
        rows = self.table("table_5")
        names = ["BERT", "No NSP", "LTR & No NSP", "+ BiLSTM"]
        self.assertEqual([*rows], [*names, "LTR and RTL, concatenated"])
        # The files of MRPC alone are there; of three rates the largest is best.
        self.assertEqual([*rows["BERT"]], ["MRPC"])
        found = rows["BERT"]["MRPC"]
        self.assertEqual(found["settings"], "lr5e-05_bs32_ep3")
        self.assertAllClose([*found["by_seed"].values()], [50.5, 51.5])
        # 5 steps a second, measured once; LTR is pre-trained once for three rows.
        pretrained = self.commands.values_of("run_pretraining")
        self.assertEqual(
            [one["num_train_steps"] for one in pretrained], [60] + [600] * 4
        )
        folders = [os.path.basename(one["output_dir"]) for one in pretrained]
        self.assertEqual(folders, ["measured", "bert", "no_nsp", "ltr", "rtl"])
        self.assertEqual(pretrained[3]["direction"], "left_to_right")
        tuned = self.commands.values_of("run_classifier")
        self.assertLen(tuned, 5)
        self.assertTrue(tuned[3]["bilstm"])
        self.assertEqual(
            tuned[4]["second_checkpoint"], self.path("out/pretraining/rtl")
        )
        self.assertEqual(tuned[4]["init_checkpoint"], self.path("out/pretraining/ltr"))
        self.assertIn("## Table 5", self.read("out", "table_5.md"))
        # The same again makes nothing.
        self.commands.ran = []
        self.make("--table=5", "--budget=2m")
        self.assertEqual(self.commands.ran, [])

    def test_words_and_masks(self):
        self.make("--table=8,7", "--budget=100", "--tasks=NER", "--bert_size=mini")
        rows = self.table("table_8")
        self.assertEqual([*rows["0/0/100"]], ["NER dev F1", "NER from features"])
        self.assertEqual(rows["80/10/10"]["NER dev F1"]["metric"], "accuracy")
        pretrained = self.commands.values_of("run_pretraining")
        rates = [(p.get("mask_rate"), p.get("random_rate")) for p in pretrained]
        self.assertEqual(rates[0], (None, None))
        self.assertAllClose(
            np.array(rates[1:], float),
            [(1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.8), (0.0, 1.0)],
        )
        rows = self.table("table_7")
        self.assertEqual(rows["fine tuned"]["NER test F1"]["by_seed"], {"best": 25.0})
        self.assertLen(rows, 7)
        # Both columns of table 7, and table 8's, share their runs.
        tuned = [one["output_dir"] for one in self.commands.values_of("run_ner")]
        self.assertLen(set(tuned), 6 * 2 + 5)

    def test_sizes_and_figure(self):
        os.makedirs(self.path("glue/MNLI"))
        self.make("--table=6,figure5", "--budget=100", "--tasks=MRPC,MNLI")
        rows = self.table("table_6")
        perplexity = rows["3/768/12"]["LM perplexity"]["by_seed"]["12345"]
        self.assertAlmostEqual(perplexity, np.exp(2.0))
        path = self.path("out/pretraining/size_12_1024_16.json")
        config = BertConfig.from_json_file(path)
        self.assertEqual((config.num_hidden_layers, config.hidden_size), (2, 192))
        starts = [
            one["init_checkpoint"]
            for one in self.commands.values_of("run_classifier")
            if "ltr" in one["init_checkpoint"]
        ]
        self.assertLen(starts, 5)
        self.assertEqual(
            starts[1:4:2],
            [self.path(f"out/pretraining/ltr/model.ckpt-{step}") for step in (40, 80)],
        )

    def test_what_the_model_is_too_shallow_for_is_left_out(self):
        with self.assertLogs(level="INFO") as logs:
            self.make("--table=7", "--budget=10", "--tasks=NER")
        left_out = [x for x in logs.output if "it needs 4 layers, the model has 2" in x]
        self.assertLen(left_out, 4)  # two rows, two columns
        rows = self.table("table_7")
        self.assertEqual(
            [*rows],
            ["fine tuned", "embeddings", "second to last", "last", "weighted sum all"],
        )

    def test_both_development_sets_of_mnli(self):
        os.makedirs(self.path("glue/MNLI"))
        given = f"--init_checkpoint={self.get_temp_dir()}"
        self.make("--table=1", "--tasks=MNLI", given)
        row = self.table("table_1")["this checkpoint"]
        self.assertAllClose([*row["MNLI-m"]["by_seed"].values()], [50.5, 51.5])
        # Of the best run alone, as the test sets.
        self.assertEqual(row["MNLI-mm"]["by_seed"], {"best": 50.0})
        self.assertLen(self.commands.values_of("run_classifier"), 1)

    def test_table_7_of_a_checkpoint(self):
        given = self.path("given")
        config = BertConfig(vocab_size=7, num_hidden_layers=4, hidden_size=24)
        source = mock.Mock(require_config=lambda: config)
        with mock.patch("bert_tf.conversion.source.open_source", return_value=source):
            self.make(
                *("--table=7", f"--init_checkpoint={given}", "--do_lower_case=False")
            )
        tuned, *features = self.commands.values_of("run_ner")
        self.assertEqual(self.commands.values_of("run_pretraining"), [])
        self.assertEqual((tuned["init_checkpoint"], tuned["do_lower_case"]), (given, 0))
        self.assertLen(features, 6)
        self.assertEqual({one["learning_rates"] for one in features}, {(1e-3,)})
        self.assertEqual({one["num_train_epochs"] for one in features}, {(10.0,)})

    def test_squad(self):
        for name in ("train-v1.1.json", "dev-v1.1.json", "train-v2.0.json"):
            self.write(name, "")
        folder = self.get_temp_dir()
        given = f"--squad_dir={folder}", f"--init_checkpoint={folder}"
        trivia_qa = self.write("trivia.json", "")
        self.make("--table=2,3", *given, f"--triviaqa_file={trivia_qa}")
        one, other = self.commands.values_of("run_squad")
        self.assertEqual(one["first_train_file"], trivia_qa)
        self.assertNotIn("first_train_file", other)
        self.assertNotIn("doc_stride", other)
        # Windows of short sequences.
        short = "--max_seq_length=64", f"--output_dir={self.path('short')}"
        self.make("--table=2", *given, *short)
        *_, one = self.commands.values_of("run_squad")
        self.assertEqual((one["doc_stride"], one["max_query_length"]), (32, 32))
        cli.parse(run_squad.run, [f"--{name}={one[name]}" for name in _OF_SQUAD])

    def test_what_is_refused(self):
        for argument, message in (
            ("--budget=fast", "must be steps, or minutes"),
            ("--bert_size=", "bert_size"),
            ("--tasks=MRCP", "MRCP.* must be one of .*MRPC"),
        ):
            with self.assertRaisesRegex(flags.Error, message):
                self.make("--table=5", argument)
        self.make("--budget=10")
        with self.assertRaisesRegex(InputError, "`budget=10` there, 20 here. Give"):
            self.make("--budget=20")
        with self.assertRaisesRegex(InputError, "no files of its tasks"):
            checkpoint = f"--init_checkpoint={self.get_temp_dir()}"
            self.make("--table=2", checkpoint, f"--output_dir={self.path('two')}")
