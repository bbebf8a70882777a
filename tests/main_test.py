import contextlib
import io
import sys
from unittest import mock

import tensorflow as tf

from bert_tf import __main__


class MainTest(tf.test.TestCase):
    def run_main(self, *arguments):
        """The exit code, and what is written to stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["bert-tf", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            self.assertRaises(SystemExit) as ended,
        ):
            __main__.main()
        return ended.exception.code, out.getvalue(), err.getvalue()

    def test_a_command_is_run_by_its_name(self):
        seen = []

        def note():
            seen.append(list(sys.argv))
            sys.exit(7)

        for name in ("run-classifier", "run_classifier"):
            with mock.patch("bert_tf.run_classifier.main", note):
                code, _, _ = self.run_main(name, "--task_name=MRPC")
            self.assertEqual(code, 7)
            self.assertEqual(seen.pop(), [name, "--task_name=MRPC"])

    def test_an_unknown_one_is_one_line(self):
        code, _, error = self.run_main("run_clasifier", "--help")
        self.assertEqual(code, 1)
        self.assertEqual(
            error,
            "bert-tf: no command 'run_clasifier'. Did you mean run-classifier? bert-tf"
            " lists them.\n",
        )
