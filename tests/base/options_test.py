import importlib
import json
import os
import pathlib
import typing
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf import run_classifier, run_ner, run_pretraining
from bert_tf.addons.methods.embeddings_options import EmbeddingOptions
from bert_tf.addons.serving import answer
from bert_tf.addons.study import ensemble_squad, inspect_checkpoint
from bert_tf.base import cli, options
from bert_tf.base.errors import InputError
from bert_tf.base.options import Path
from bert_tf.records import create_pretraining_data
from bert_tf.tasks import data_set_options
from bert_tf.tasks.data_set_options import ClassifierOptions, GlueOptions
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.swag.multiple_choice_options import ChoiceOptions
from bert_tf.tasks.tagging.tagging_options import TaggingOptions
from bert_tf.training.training_options import TrainingConfig
from tests.base.cli_test import SCRIPTS
from tests.processes import run_python
from tests.script_case import FolderCase

# What each command must be given, and a path that is not there.
_WRONG = {
    "bert_tf.run_pretraining": "--input_file=FILE --output_dir=o --do_train"
    " --bert_config_file=WRONG",
    "bert_tf.run_classifier": "--task_name=MRPC --do_train --output_dir=o"
    " --data_dir=WRONG",
    "bert_tf.run_glue": "--output_dir=o --glue_dir=WRONG",
    "bert_tf.fill_mask": "--checkpoint=WRONG",
    "bert_tf.answer": "--checkpoint=FOLDER --context_file=WRONG",
    "bert_tf.evaluate_squad": "FILE FILE --na_prob_file=WRONG",
    "bert_tf.ensemble_squad": "--output_dir=o --prediction_dirs=FOLDER,WRONG",
    "bert_tf.run_squad": "--output_dir=o --do_train --train_file=WRONG",
    "bert_tf.run_swag": "--output_dir=o --do_eval --dev_file=WRONG",
    "bert_tf.run_ner": "--output_dir=o --do_predict --test_file=FILE,WRONG",
    "bert_tf.run_embeddings": "--output_dir=o --do_eval --dev_file=WRONG",
    "bert_tf.run_paper": "--output_dir=o --table=2 --init_checkpoint=FOLDER"
    " --glue_dir=WRONG",
    "bert_tf.compare": "FOLDER WRONG",
    "bert_tf.plan": "--output_dir=o --hours=1 --input_file=WRONG",
    "bert_tf.probe": "--output_dir=o --train_file=FILE --init_checkpoint=WRONG",
    "bert_tf.extract_features": "--output_file=o --input_file=FILE"
    " --init_checkpoint=WRONG",
    "bert_tf.predict": "--checkpoint=FOLDER --input_file=WRONG",
    "bert_tf.explain": "--checkpoint=WRONG",
    "bert_tf.score": "--checkpoint=FOLDER --input_file=WRONG",
    "bert_tf.plot_attention": "--output_dir=o --checkpoint=WRONG",
    "bert_tf.export_model": "--output_dir=o --format=tf1 --checkpoint=WRONG",
    "bert_tf.inspect_checkpoint": "WRONG",
    "tfrecords.create_pretraining_data": "--output_file=o --input_file=FILE"
    " --vocab_file=WRONG",
    "tfrecords.extend_vocabulary": "--output_file=o --input_file=FILE"
    " --num_new_tokens=1 --init_checkpoint=WRONG",
    "tfrecords.trim_vocabulary": "--output_dir=o --input_file=FILE"
    " --init_checkpoint=WRONG",
    "tfrecords.learn_vocabulary": "--output_file=o --input_file=WRONG",
    "tfrecords.inspect_records": "WRONG",
}


class PathsTest(FolderCase):
    def test_a_wrong_path_is_told_before_tensorflow_is_imported(self):
        folder = self.path("broken")
        for name in ("tensorflow", "keras", "keras_hub"):
            self.write(f"broken/{name}.py", "raise SystemExit('imported')")
        file = self.write("file.json", "x\n")
        self.assertEqual(set(SCRIPTS) - set(_WRONG), {"bert_tf.quickstart"})
        wrong = self.path("no/such.thing")
        words = {"WRONG": wrong, "FOLDER": self.get_temp_dir(), "FILE": file}
        lines = []
        for module, arguments in _WRONG.items():
            for word, value in words.items():
                arguments = arguments.replace(word, value)
            lines.append([module.rpartition(".")[2], *arguments.split()])
        export = ["export_model", "--format=onnx", "--output_dir=o"]
        lines.append([*export, f"--checkpoint={folder}"])
        # One process for all of them.
        program = (
            "import json, sys; from tests.golden.commands import outcome\n"
            "outcomes = [outcome(*line)[:3] for line in json.loads(sys.argv[1])]\n"
            "print(json.dumps(outcomes))"
        )
        done = run_python("-c", program, json.dumps(lines), modules=folder)
        *outcomes, onnx = json.loads(done.stdout)
        for code, _, stderr in outcomes:
            self.assertEqual(code, 2, stderr)
            self.assertEqual(stderr.count("\n"), 1, stderr)
            self.assertIn(wrong, stderr)
        # It is no requirement, and not installed for the tests.
        self.assertIn("pip install onnx\n", onnx[2])

    def test_commas_and_brackets_in_paths_that_exist(self):
        paths = [self.write(f"a, [b]/{name}.txt", "x") for name in ("c, d", "e")]
        for several in (*paths, ",".join(paths), self.path("a, [b]/*")):
            command = f"--output_file=o --vocab_file={paths[0]}"
            arguments = [*command.split(" ", 1), f"--input_file={several}"]
            given = cli.parse(create_pretraining_data.run, arguments)
            options.check_paths(given)

    def test_what_a_path_must_be(self):
        folder = self.get_temp_dir()
        file = self.write("a.txt", "x")
        self.write("model.ckpt.index", "x")
        gone = f"{folder}/gone"
        has = f"Give another path; {folder} has: a.txt, model.ckpt.index"
        for path, kind, message in (
            (file, Path.FOLDER, f"--x: {file} is a file, not a folder."),
            (folder, Path.FILE, f"--x: {folder} is a folder; give a file."),
            (gone, Path.FILE, f"--x: no such file: {gone}. {has}"),
            (gone, Path.FOLDER, f"--x: no such folder: {gone}. {has}"),
            (f"{gone}*", Path.FILES, f"--x: no file matches '{gone}*'. {has}"),
            (
                f"{folder}/a.tx",
                Path.FILE,
                f"--x: no such file: {folder}/a.tx. Did you mean {folder}/a.txt?",
            ),
            (
                f"{gone}/ckpt",
                Path.CHECKPOINT,
                f"--x: No checkpoint {gone}/ckpt: there is no such folder, and no"
                f" {gone}/ckpt.index. Give another path; {gone} is no folder that"
                " can be read here.",
            ),
        ):
            with self.assertRaises(InputError) as caught:
                options.check_path(path, "--x: ", kind)
            self.assertEqual(str(caught.exception), message)
        for path, kind in (
            (file, Path.FILE),
            ("-", Path.FILE),
            (folder, Path.FOLDER),
            (folder, Path.FILES),
            (self.path("*.txt"), Path.FILES),
            (folder, Path.CHECKPOINT),
            (self.path("model.ckpt"), Path.CHECKPOINT),
            ("bert_base_en_uncased", Path.CHECKPOINT),  # KerasHub's
            ("/no", Path.OUTPUT),
            ("gs://no/no", Path.CHECKPOINT),
            ("gs://no/*", Path.FILES),
        ):
            options.check_path(path, "--x: ", kind)

    def test_a_model_of_the_hub_is_to_be_downloaded(self):
        for name in ("bert-base-uncased", "google-bert/bert-base-uncased"):
            self.assertIn(
                f"hf download {name} --local-dir", options.no_checkpoint(name)
            )
        for path in ("/tmp/bert-base", "bert_model.ckpt", "a/b/c"):
            self.assertNotIn("hf download", options.no_checkpoint(path))

    def test_only_what_is_used_must_be_there(self):
        arguments = ["--output_dir=o", "--train_file=/no", "--test_file=/no"]
        values = cli.parse(run_ner.run, [*arguments, "--do_predict"])
        with self.assertRaisesRegex(InputError, "`test_file`: no file matches '/no'"):
            options.check_paths(values)
        values = cli.parse(
            run_pretraining.run,
            [
                "--input_file=gs://no",
                "--output_dir=/no",
                "--do_eval",
                "--bert_size=tiny",
            ],
        )
        options.check_paths(values)

    def test_a_file_of_a_folder(self):
        folder = self.get_temp_dir()
        table = ["--task_name=tsv", f"--data_dir={folder}", "--output_dir=o"]
        self.write("mine.tsv", "x")
        for arguments, message in (
            (["--do_train", "--train_file=no.tsv"], f"no such file: {folder}/no.tsv"),
            (["--do_train", "--train_file=mine.tsv", "--dev_file=no.tsv"], None),
        ):
            values = cli.parse(run_classifier.run, [*table, *arguments])
            if message is None:
                options.check_paths(values)
                continue
            with self.assertRaisesRegex(InputError, f"`train_file`: {message}"):
                options.check_paths(values)

    def test_a_tilde_is_the_users_folder(self):
        with mock.patch.dict(os.environ, {"HOME": "/home/me"}):
            values = cli.parse(
                create_pretraining_data.run,
                [
                    "--input_file=~/a/*.txt,b,~/c",
                    "--vocab_file=~/vocab.txt",
                    "--output_file=~/1,~/2",
                ],
            )
            runs = cli.parse(
                ensemble_squad.run, ["--prediction_dirs=~/a, ~/b", "--output_dir=~/run"]
            )
        self.assertEqual(values.input_file, "/home/me/a/*.txt,b,/home/me/c")
        self.assertEqual(values.vocab_file, "/home/me/vocab.txt")
        self.assertEqual(values.output_file, "/home/me/1,/home/me/2")
        self.assertEqual(runs.prediction_dirs, ("/home/me/a", "/home/me/b"))
        self.assertEqual(runs.output_dir, "/home/me/run")

    def test_every_option_that_is_a_path_is_declared_as_one(self):
        ends = ("_file", "_dir", "_dirs", "checkpoint", "_adapter")
        for module in _WRONG:
            kind = cli.options_of(importlib.import_module(module).run)
            for name, declared in options.declarations(kind).items():
                if name.endswith(ends):
                    self.assertIsNotNone(declared.path, name)


class TypesTest(tf.test.TestCase):
    def test_values_of_python_become_their_type(self):
        made = ChoiceOptions(
            output_dir=pathlib.Path("o"),
            do_train=True,
            train_file="d",
            num_train_epochs=2,
            warmup_proportion=np.float32(0.5),
            eval_batch_size=np.int64(8),
            learning_rates=3e-5,
            train_batch_sizes=[1, 2],
            labels=[],
        )
        values = (made.output_dir, made.num_train_epochs, made.warmup_proportion)
        self.assertEqual(values, ("o", (2.0,), 0.5))
        self.assertIs(type(made.warmup_proportion), float)
        self.assertIs(type(made.eval_batch_size), int)
        self.assertEqual(
            (made.learning_rates, made.train_batch_sizes), ((3e-5,), (1, 2))
        )
        self.assertIsNone(made.labels)
        json.dumps(made.as_flags())

    def test_values_of_another_type(self):
        for values, message in (
            ({"learning_rate": "3e-5"}, "`learning_rate='3e-5'` must be a number."),
            (
                {"learning_rates": "3e-5"},
                "`learning_rates='3e-5'` must be a number, or several of them.",
            ),
            ({"train_batch_size": 8.5}, "`train_batch_size=8.5` must be a whole"),
            ({"train_batch_size": True}, "`train_batch_size=True` must be a whole"),
            ({"train_batch_size": None}, "`train_batch_size=None` must be a whole"),
            ({"do_train": "false"}, "`do_train='false'` must be True or False."),
            ({"output_dir": 3}, "`output_dir=3` must be a string."),
            ({"output_dir": ""}, "`output_dir` must not be empty."),
            ({"num_train_epochs": []}, "`num_train_epochs` must not be empty."),
            ({"train_batch_sizes": (1, "2")}, "must be a whole number, or several"),
        ):
            with self.assertRaisesRegex(InputError, message):
                ChoiceOptions(**{"output_dir": "o", "do_train": True} | values)


# What each list of options was when it was written by hand.
WITHOUT_EFFECT_ON_STEPS = {
    *("reinitialize_layers", "init_head", "init_adapter", "init_layers"),
    *("stack_layers", "gradient_accumulation_steps"),
    *("jit_compile", "recompute", "save_checkpoints_steps", "keep_checkpoint_max"),
    *("log_steps", "eval_steps", "best_metric", "patience", "profile_steps"),
    *("iterations_per_loop", "stop_if", "report_to"),
}
SAME_SELECTION = {
    *("data_dir", "glue_dir", "output_dir", "task_name", "tasks", "tfds_data_dir"),
    *("train_file", "dev_file", "test_file", "predict_file", "evidence_dir"),
    *("feature_dir", "num_workers", "verbose_logging", "find_null_threshold"),
    *("do_train", "do_eval", "do_predict", "eval_batch_size"),
    *("predict_batch_size", "plots", "num_mistakes", "fill_missing_tasks", "calibrate"),
    *("learning_rate", "learning_rates", "train_batch_size", "train_batch_sizes"),
    *("num_train_epochs", "num_restarts", "random_seed", "best_metric", "recipe"),
    *("stop_early", "stop_early_at", "stop_early_keep", "keep_all_runs"),
    *("save_checkpoints_steps", "keep_checkpoint_max", "iterations_per_loop"),
    *("log_steps", "profile_steps", "jit_compile", "recompute", "distribution"),
    *("local_workers", "report_to"),
    *("backend", "use_tpu", "tpu_name", "tpu_zone", "gcp_project", "master"),
    *("num_tpu_cores", "gradient_accumulation_steps", "two_stage", "delimiter"),
}
READING = {
    *("max_seq_length", "long_text", "doc_stride", "window_pooling"),
    *("max_query_length", "version_2_with_negative", "document_context"),
    *("pooling", "normalize"),
}
OF_MODEL = {"lora_rank", "adapter_size", "layer_mixture", "train_pooler"} | {
    *("features", "bilstm_size"),
}
OF_TABLES = {
    *("train_file", "dev_file", "test_file", "has_header", "tfds_splits"),
    *("text_a_column", "text_b_column", "label_column", "label_separator"),
    *("labels", "regression", "several_labels", "dev_share", "delimiter"),
    *("folds", "group_column"),
}
SUMMARY = {
    *("input_file", "data_dir", "task_name", "init_checkpoint", "phases"),
    *("max_seq_length", "train_batch_size", "learning_rate", "num_train_steps"),
    *("num_train_epochs", "optimizer", "precision"),
}
FINE_TUNING = (
    ClassifierOptions,
    GlueOptions,
    ChoiceOptions,
    EmbeddingOptions,
    SquadOptions,
    TaggingOptions,
)


class DecidesTest(tf.test.TestCase):
    def deciding(self, *words):
        found = set()
        for kind in FINE_TUNING:
            found |= set(options.deciding(kind, *words))
        return found

    def test_what_options_decide(self):
        self.assertEqual(
            set(options.deciding(TrainingConfig, "result", "nothing")),
            WITHOUT_EFFECT_ON_STEPS,
        )
        self.assertEqual(self.deciding("setting", "nothing"), SAME_SELECTION)
        self.assertEqual(self.deciding("reading"), READING)
        self.assertEqual(self.deciding("model"), OF_MODEL)
        self.assertEqual(set(data_set_options.OF_TABLES), OF_TABLES)
        self.assertEqual(set(inspect_checkpoint.summary_names()), SUMMARY)
        self.assertEqual(
            answer.DEFAULTS,
            {
                "max_seq_length": 384,
                "doc_stride": 128,
                "max_query_length": 64,
                "n_best_size": 20,
                "max_answer_length": 30,
                "version_2_with_negative": False,
                "null_score_diff_threshold": 0.0,
            },
        )

    def test_an_option_decides_the_same_in_all_fine_tuning(self):
        words = {}
        for kind in FINE_TUNING:
            for name, declared in options.declarations(kind).items():
                words.setdefault(name, set()).add(declared.decides)
        self.assertEqual([name for name in words if len(words[name]) > 1], [])

    def test_every_declaration_says_what_it_decides(self):
        with self.assertRaisesRegex(TypeError, "Silent.number does not say `decides`"):

            class Silent(options.Options):
                number: int = options.option(1, "A number.")

        words = typing.get_args(options.Decides)
        for module in _WRONG:
            kind = cli.options_of(importlib.import_module(module).run)
            for name, declared in options.declarations(kind).items():
                self.assertIn(declared.decides, words, name)


class HiddenTest(tf.test.TestCase):
    def test_a_class_hides_what_it_inherits(self):
        names = options.declarations(SquadOptions)
        self.assertNotIn("do_eval", names)
        given = SquadOptions(output_dir="o", do_predict=True, predict_file="f")
        self.assertIs(given.do_eval, False)
        self.assertNotIn("do_eval", given.as_flags())
        self.assertIs(GlueOptions(output_dir="o", glue_dir="d").do_train, True)
        with self.assertRaisesRegex(TypeError, "do_eval"):
            SquadOptions(output_dir="o", do_predict=True, do_eval=True)
        # A class that has it takes the value.
        one = GlueOptions(output_dir="o", glue_dir="d")
        made = one.to(ClassifierOptions, task_name="MRPC", data_dir="d")
        self.assertIs(made.do_train, True)
