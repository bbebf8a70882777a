import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.instances import random_stream
from bert_tf.instances.random_stream import forget_older_code

CALLER = """
from bert_tf.instances.random_stream import compiled
from bert_tf.instances.callee import callee


@compiled
def caller():
    return callee()


from absl import logging
from bert_tf.instances.random_stream import log_compilation_of

logging.set_verbosity(logging.INFO)
log_compilation_of(caller)
print(caller(), caller.stats.cache_hits, flush=True)
"""
CALLEE = """
from bert_tf.instances.random_stream import compiled


@compiled
def callee():
    return {}
"""


class CompiledTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(tempfile.mkdtemp(dir=self.get_temp_dir()))
        self.folder = self.root / "bert_tf" / "instances"
        self.folder.mkdir(parents=True)
        source = (
            pathlib.Path(bert_tf.__file__).parent / "instances" / "random_stream.py"
        )
        shutil.copyfile(source, self.folder / "random_stream.py")
        for folder in (self.folder, self.folder.parent):
            (folder / "__init__.py").touch()
        (self.folder / "caller.py").write_text(CALLER)
        (self.folder / "callee.py").write_text(CALLEE.format(1))

    def call(self, **environment):
        """What the caller returns, and whether its machine code was there already."""
        done = subprocess.run(
            [sys.executable, "-m", "bert_tf.instances.caller"],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": ""} | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        return done.stdout.split(maxsplit=1)[0], "1}" in done.stdout

    def test_another_file_changes(self):
        self.assertEqual(self.call(), ("1", False))
        self.assertIn("Compiling inner", self.said)
        self.assertEqual(self.call(), ("1", True))
        self.assertEqual(self.said, "")
        (self.folder / "callee.py").write_text(CALLEE.format(2))
        self.assertEqual(self.call(), ("2", False))

    def test_nowhere_to_keep_it(self):
        # A locator of zip files alone finds no folder.
        locators = {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}
        self.assertEqual(self.call(**locators), ("1", False))
        self.assertIn("is kept for the next runs if", self.said)

    def test_newer_code_stays(self):
        cache = self.root / "cache"
        cache.mkdir()
        for name, moment in (("older.nbi", 1), ("newer.nbi", 1 << 40)):
            (cache / name).touch()
            os.utime(cache / name, (moment, moment))
        forget_older_code(str(cache))
        self.assertEqual(os.listdir(cache), ["newer.nbi"])


SEEDS = (0, 1, 12345, -7, 2**31 - 1, 2**200 + 3)


class RandomStreamTest(tf.test.TestCase):
    def test_below(self):
        for seed in SEEDS:
            stream, expected = random_stream.random_stream(seed), random.Random(seed)
            for limit in [*range(1, 300), 2**16, 2**31, 2**32 - 1]:
                self.assertEqual(
                    random_stream.random_below(stream, limit), expected.randrange(limit)
                )

    def test_shuffle(self):
        for seed in SEEDS:
            stream, expected = random_stream.random_stream(seed), random.Random(seed)
            for length in (0, 1, 2, 3, 17, 1000):
                values, wanted = np.arange(length), list(range(length))
                random_stream.shuffle(stream, values)
                expected.shuffle(wanted)
                self.assertEqual(values.tolist(), wanted)


ALL = (1 << 64) - 1


def splitmix(state):
    """The next state and number of the generator."""
    state = (state + 0x9E3779B97F4A7C15) & ALL
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & ALL
    return state, z ^ (z >> 31)


def restarted(*key):
    stream = np.zeros(random_stream.STREAM_WORDS, np.uint32)
    random_stream.restart(stream, tuple(np.uint64(number) for number in key))
    return stream


class RestartTest(tf.test.TestCase):
    def test_its_words_are_those_of_another_generator(self):
        for key in ((0, 0, 0), (12345, 1, 77), (ALL, 3, (5 << 40) + 1)):
            state = 0
            for number in key:
                _, state = splitmix(state ^ number)
            words = []
            for _ in range(312):
                state, bits = splitmix(state)
                words += [bits & 0xFFFFFFFF, bits >> 32]
            self.assertEqual(restarted(*key).tolist(), [*words, 624])

    def test_seeds_epochs_and_records_share_nothing(self):
        seen = {
            random_stream.random(restarted(seed, epoch, record))
            for seed in range(3)
            for epoch in range(20)
            for record in range(50)
        }
        self.assertLen(seen, 3 * 20 * 50)
