"""Damaged files: every reader reads them or says in one line what is wrong."""

import itertools
import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

_SEED = 20
_CASES = 100  # of each reader


class MutatedFilesTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_no_file_ends_a_reader_but_by_a_message(self):
        """The child says what it is about to read: it may be ended by native code."""
        problems, first = [], 0
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        while True:
            child = subprocess.run(
                [
                    *(sys.executable, "-m", "tests.mutated_files_child"),
                    *map(str, (_SEED, _CASES, first)),
                ],
                capture_output=True,
                text=True,
                env=environment,
            )
            *_, last = lines = child.stdout.splitlines() or [""]
            for before, line in itertools.pairwise(lines):
                if line.startswith('"'):
                    problems.append(f"{before}: {json.loads(line)}")
            if last == "done":
                break
            self.assertLess(child.returncode, 0, child.stderr)
            problems.append(f"{last}: ended with {child.returncode}: {child.stderr}")
            first = int(last.split()[0]) + 1
        self.assertEqual(problems, [], "\n\n".join(problems))
