import importlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
from unittest import mock

import tensorflow as tf
from absl import flags

from bert_tf import run_classifier, run_pretraining
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.base.options import declarations
from bert_tf.records import learn_vocabulary
from bert_tf.training import loop
from tests.base import errors_test
from tests.golden.commands import outcome
from tests.processes import run_python, seconds_of_other_processes

SCRIPTS = (
    *("bert_tf.run_pretraining", "bert_tf.run_classifier", "bert_tf.run_glue"),
    *("bert_tf.fill_mask", "bert_tf.answer", "bert_tf.evaluate_squad"),
    *("bert_tf.ensemble_squad", "bert_tf.run_squad", "bert_tf.run_swag"),
    *("bert_tf.run_ner", "bert_tf.run_embeddings"),
    *("bert_tf.run_paper", "bert_tf.compare", "bert_tf.probe"),
    *("bert_tf.extract_features", "bert_tf.score", "bert_tf.plot_attention"),
    *("bert_tf.predict", "bert_tf.explain", "bert_tf.plan"),
    *("bert_tf.export_model", "bert_tf.inspect_checkpoint", "bert_tf.quickstart"),
    *("tfrecords.create_pretraining_data", "tfrecords.extend_vocabulary"),
    "tfrecords.trim_vocabulary",
)
# How long each page takes in a process that has made those before it.
PAGES = """
import json, sys, time
from tests.golden.commands import outcome
for command in sys.argv[1:]:
    began = time.process_time()
    code, page, _, _ = outcome(command, "--help")
    print(json.dumps([command, code, len(page), time.process_time() - began]))
"""


NEEDED = ["--input_file=a", "--bert_config_file=b", "--output_dir=c"]
VERBOSITY = ("TF_CPP_MIN_LOG_LEVEL",)


class HelpTest(tf.test.TestCase):
    def test_help_and_usage_errors_take_less_than_a_second_without_tensorflow(self):
        # Modules that cannot be imported stand in for TensorFlow and Keras.
        folder = self.get_temp_dir()
        for name in ("tensorflow", "keras", "keras_hub"):
            with open(os.path.join(folder, name + ".py"), "w") as file:
                file.write("raise SystemExit('imported')")
        for arguments in (
            ["-m", "bert_tf.run_pretraining", "--help"],
            ["-m", "bert_tf.run_pretraining", "--no_such=1"],
            ["-m", "bert_tf.run_squad", "--help"],
            ["-c", PAGES, *(module.rpartition(".")[2] for module in SCRIPTS)],
        ):
            # Of the processor: a busy machine takes longer, whatever the command.
            began = seconds_of_other_processes()
            result = run_python(*arguments, without=VERBOSITY, modules=folder)
            seconds = seconds_of_other_processes() - began
            self.assertNotIn("imported", result.stderr, arguments)
            if arguments[0] == "-m":
                self.assertLess(seconds, 1.0, arguments)
        pages = [*map(json.loads, result.stdout.splitlines())]
        self.assertLen(pages, len(SCRIPTS), result.stderr)
        for command, code, length, seconds in pages:
            self.assertEqual(code, 0, command)
            self.assertGreater(length, 200, command)
            self.assertLess(seconds, 1.0, command)


class LogTest(tf.test.TestCase):
    def test_what_is_shown(self):
        for level, path, message, is_shown in (
            ("INFO", cli.__file__, "hello", True),
            ("INFO", loop.__file__, "step 100", True),
            ("INFO", learn_vocabulary.__file__, "Wrote 300 tokens", True),
            ("INFO", "/site-packages/other.py", "hello", False),
            ("WARNING", "/site-packages/other.py", "beware", True),
            (
                "WARNING",
                "/site-packages/tensorflow.py",
                "5 out of the last 5 calls to f triggered tf.function retracing.",
                False,
            ),
        ):
            record = logging.LogRecord(
                "root", logging.getLevelName(level), path, 1, message, None, None
            )
            self.assertEqual(cli._OurLines().filter(record), is_shown, message)

    def test_of_a_run_that_python_calls(self):
        folder = self.get_temp_dir()
        path = os.path.join(folder, "text.txt")
        with open(path, "w") as file:
            file.write("a text of words\n")
        for number, (before, printed) in enumerate(
            (
                ("", "Wrote "),
                ("import logging as l; l.basicConfig()", "INFO:absl:Wrote "),
                (
                    "import logging as l; l.basicConfig(level='DEBUG')",
                    "INFO:absl:Wrote ",
                ),
                ("import absl.logging as l; l.set_verbosity('error')", None),
            )
        ):
            output = os.path.join(folder, f"{number}.txt")
            code = (
                f"{before}\nfrom tfrecords import learn_vocabulary as learn\n"
                f"given = learn.VocabularyOptions(input_file={path!r}, vocab_size=25,"
                f" output_file={output!r})\n"
                "learn.run(given)"
            )
            result = run_python("-c", code)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = [line for line in result.stderr.splitlines() if "Wrote" in line]
            self.assertLen(lines, int(printed is not None), result.stderr)
            self.assertNotIn("before flag parsing", result.stderr)
            for line in lines:
                self.assertStartsWith(line, printed)


class UsageTest(tf.test.TestCase):
    def assert_usage_error(self, command, arguments, message):
        code, stdout, stderr, _ = outcome(command, *arguments)
        self.assertEqual((code, stdout), (1, ""))
        self.assertIn(message, stderr)
        self.assertEqual(stderr.count("\n"), 2, stderr)

    def test_what_is_wrong_is_told_in_two_lines(self):
        for arguments, message in (
            (["--max_seq_lenght=128"], "max_seq_length"),
            (NEEDED, "--do_train, --do_eval"),
            # A boolean with a space, and stray words anywhere.
            ([*NEEDED, "--do_train", "False"], "'False'"),
            (["--do_train", "True", *NEEDED], "'True'"),
            ([*NEEDED, "--do_train", "--eval_steps", "=", "10"], "10"),
            ([*NEEDED, "--do_train", "--nodo_eval=True"], "--nodo_eval=True"),
            # Other packages' names.
            (["--per_device_train_batch_size=8"], ". Here: --train_batch_size of"),
            (["--model_name_or_path=x"], ". Here: --init_checkpoint"),
            (["--bf16"], ". Here: --precision=bfloat16"),
            (["--max-steps=10"], ". Here: --num_train_steps"),
            (["--learning-rate=1e-4"], ". Here: --learning_rate"),
            (["--weight_decay=0.01"], ". Here: --weight_decay_rate"),
        ):
            self.assert_usage_error("run_pretraining", arguments, message)

    def test_names_of_transformers_are_answered(self):
        names = {
            script: [*declarations(cli.options_of(script.run))]
            for script in (run_classifier, run_pretraining)
        }
        for theirs, *ours in (
            ("load_best_model_at_end", "--eval_steps, which", "--eval_steps, which"),
            ("early_stopping_patience", "--patience", "--stop_if"),
            ("overwrite_output_dir", "another --output_dir", "another --output_dir"),
            ("eval_strategy", "--eval_steps", "--eval_steps"),
            ("logging-dir", "TensorBoard's logs", "TensorBoard's logs"),
            ("label_smoothing_factor", "--label_smoothing", ""),
            ("ignore_mismatched_sizes", "--init_head=False", ""),
            ("per_device_eval_batch_size", "--eval_batch_size", "--eval_batch_size"),
            ("max_eval_samples", "a shorter file", "--max_eval_steps"),
            ("dataloader_num_workers", "none is needed", "none is needed"),
            ("fsdp_config", "--distribution", "--distribution"),
            ("hub_model_id", "export_model", "export_model"),
            ("no_such_thing",),
        ):
            for script, wanted in zip(names, ours or ["", ""], strict=True):
                found = cli._meaning(theirs, names[script])
                self.assertStartsWith(found, wanted)
                self.assertEqual(bool(found), bool(wanted), (theirs, script))

    def test_every_answer_names_a_flag_of_some_command(self):
        known = {"verbosity"}  # absl's
        for name in SCRIPTS:
            script = importlib.import_module(name)
            known |= {*declarations(cli.options_of(script.run))}
        for ours in cli._OURS:
            self.assertLessEqual({*re.findall("--([a-z_0-9]+)", ours)}, known)

    def test_another_value_of_a_known_flag(self):
        arguments = ["--do_train", "--train_file=x.csv", "--output_dir=x"]
        self.assert_usage_error(
            "run_classifier",
            [*arguments, "--report_to=wandb,tensorboard"],
            "trackio, each of them. TensorBoard's logs are always in --output_dir",
        )

    def test_nan_is_no_number(self):
        """Every comparison with it is false, whatever a flag's rule is."""
        threshold = "--null_score_diff_threshold=nan"
        self.assert_usage_error(
            "answer",
            ["--checkpoint=x", "--context_file=y", threshold],
            f"{threshold} must be a",
        )

    def test_what_the_terminal_cannot_spell_is_escaped(self):
        path = os.path.join(self.get_temp_dir(), "é.txt")
        code = (
            "import sys; from bert_tf.base import cli, options; sys.argv = ['x']\n"
            f"def run(options: options.Options): print({path!r})\n"
            "cli.main(run)"
        )
        result = run_python("-c", code, PYTHONIOENCODING="ascii")
        self.assertEndsWith(result.stdout, "\\xe9.txt\n", result.stderr)

    def test_wrong_input_is_one_line_and_code_2(self):
        # Many have the first one set, against what TensorFlow prints when imported.
        for environment in ({"TF_CPP_MIN_LOG_LEVEL": "3"}, {}):
            result = run_python(
                *("-m", "bert_tf.run_pretraining", f"--input_file={__file__}"),
                *("--bert_config_file=nowhere.json", "--do_train"),
                f"--output_dir={self.get_temp_dir()}",
                without=VERBOSITY,
                **environment,
            )
            self.assertEqual(result.returncode, 2)
            self.assertRegex(
                result.stderr,
                r"\Arun_pretraining: --bert_config_file: no such file: nowhere.json\."
                r" Give another path; .*\n\Z",
            )

    def test_a_reader_that_has_enough_is_no_error(self):
        """Such as `head`; of what is printed at once, and of what is flushed last."""
        for arguments in (["bert_tf.run_classifier", "--help"], ["bert_tf"]):
            reader, writer = os.pipe()
            os.close(reader)
            with os.fdopen(writer, "wb") as stdout:
                result = subprocess.run(
                    [sys.executable, "-m", *arguments],
                    stdout=stdout,
                    stderr=subprocess.PIPE,
                    text=True,
                    check=False,
                )
            self.assertEqual(result.stderr, "", arguments)
            self.assertEqual(result.returncode, 128 + signal.SIGPIPE, arguments)


class ParseTest(tf.test.TestCase):
    def test_bounds(self):
        for bad in (
            "--train_batch_size=0",
            "--train_batch_size=99999999999999999999",
            "--random_seed=4294967296",
            "--learning_rate=-1",
            "--learning_rate=inf",
            "--learning_rate=nan",
            "--max_seq_length=0",
        ):
            with self.assertRaises(flags.Error):
                cli.parse(run_pretraining.run, [*NEEDED, "--do_eval", bad])

    def test_one_line(self):
        told = "x: {{function_node __wrapped__a_device_/job:b}} cut off [Op:C] name: "
        denied = PermissionError(13, "Permission denied", "/x")
        for error, line in (
            (InputError("a\n  b"), "a b"),
            (InputError(told), "x: cut off"),
            (denied, "Permission denied: /x"),
            # Of a stream, which has no name.
            (OSError(28, "No space left on device"), "No space left on device"),
            (OSError("File is a pipe."), "File is a pipe."),
        ):
            self.assertEqual(cli.one_line(error), line)

    def test_a_full_disk_is_no_lack_of_memory(self):
        with (
            self.assertRaises(tf.errors.ResourceExhaustedError) as caught,
            tf.io.gfile.GFile("/dev/full", "w") as file,
        ):
            file.write("x")
        self.assertEqual(
            cli.one_line(caught.exception), "/dev/full; No space left on device"
        )

    def test_one_line_of_a_remote_file(self):
        error = tf.errors.FailedPreconditionError(
            None,
            None,
            "Error executing an HTTP request: libcurl code 6\n\t when reading metadata"
            " of gs://a/b",
        )
        self.assertIsInstance(error, cli._users_errors())
        self.assertEqual(
            cli.one_line(error),
            "Error executing an HTTP request: libcurl code 6 when reading metadata of"
            " gs://a/b. Check the network, and the credentials: gcloud auth"
            " application-default login",
        )
        for kind in ("Aborted", "DeadlineExceeded", "Unauthenticated", "Unavailable"):
            kind = getattr(tf.errors, f"{kind}Error")
            self.assertIsInstance(kind(None, None, "x"), cli._users_errors())
        # What is a fault of ours keeps its traceback.
        other = tf.errors.InvalidArgumentError(None, None, "x")
        self.assertNotIsInstance(other, cli._users_errors())

    def test_out_of_memory(self):
        for message in (errors_test.OF_TWO, errors_test.EAGER):
            error = tf.errors.ResourceExhaustedError(None, None, message)
            self.assertRegex(
                cli.one_line(error),
                r"OOM when allocating tensor with shape\[9\]"
                r"\. Memory is short: make batches or sequences smaller",
            )

    def test_arguments_are_flags_on_a_command_line(self):
        code = """
import logging
from absl import flags
from bert_tf.base import cli, config, errors
flags.DEFINE_integer("max_seq_length", 640, "")
try:
    config.BertConfig(vocab_size=9).check_sequences(640)
except errors.InputError as error:
    print(error)
    print(cli.one_line(error))
flags.DEFINE_float("beta_1", 0.9, "")
print(cli.one_line(errors.InputError("`no_flag` is `beta_1`")))
for path in cli.__file__, "/site-packages/other.py":
    record = logging.LogRecord("", 20, path, 1, "`beta_1=%s`.", (0.5,), None)
    print(cli._PlainFormatter().format(record))
"""
        done = run_python("-c", code)
        rest = " must not exceed the model's max_position_embeddings (512). Give less."
        self.assertEqual(
            done.stdout.splitlines(),
            [
                "`max_seq_length=640`" + rest,
                "--max_seq_length=640" + rest,
                "`no_flag` is --beta_1",
                "--beta_1=0.5.",
                "`beta_1=0.5`.",
            ],
        )

    def test_packages_are_asked_for_before_any_work(self):
        cli.require_packages("--a", "json", "os")
        with self.assertRaisesRegex(
            InputError, "^--a=b needs no_such_1 and no_such_2: pip install no_such_1"
        ):
            cli.require_packages("--a=b", "no_such_1", "json", "no_such_2")
        os.makedirs(os.path.join(self.get_temp_dir(), "no_such_3"))
        with (
            mock.patch.object(sys, "path", [self.get_temp_dir(), *sys.path]),
            self.assertRaisesRegex(InputError, "needs no_such_3: pip install no_such"),
        ):
            cli.require_packages("--a=b", "no_such_3")
