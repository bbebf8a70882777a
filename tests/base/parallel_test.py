"""Work on several processes: order, errors, and workers that do not outlive anybody."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
from unittest import mock

import tensorflow as tf

from bert_tf.base import parallel
from bert_tf.base.parallel import Workers, available_cores, ordered_map
from tests.parallel_work import (
    end_this_process,
    fail_at_three,
    process_id,
    remember,
    slow_process_id,
    slow_square,
)


class AvailableCoresTest(tf.test.TestCase):
    def test_no_more_than_the_containers_quota(self):
        for quota, cores in (
            ({"cpu.max": "150000 100000\n"}, 2),
            ({"cpu.max": "20000 100000\n"}, 1),
            ({"cpu.max": "max 100000\n"}, 64),
            (
                {
                    "cpu/cpu.cfs_quota_us": "400000\n",
                    "cpu/cpu.cfs_period_us": "100000\n",
                },
                4,
            ),
            (
                {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
                64,
            ),
            ({"cpu.max": "\n"}, 64),
            ({"cpu.max": "100000 0\n"}, 64),
            ({}, 64),
        ):
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.get_temp_dir()))
            (folder / "cpu").mkdir()
            for name, text in quota.items():
                (folder / name).write_text(text)
            with (
                mock.patch.object(parallel, "_CONTROL_GROUP", folder),
                mock.patch.object(
                    os, "sched_getaffinity", lambda _: set(range(64)), create=True
                ),
            ):
                self.assertEqual(available_cores(), cores)


class OrderedMapTest(tf.test.TestCase):
    def test_in_order_whatever_the_number_of_workers(self):
        for num_workers in (1, 2, 5):
            self.assertEqual(
                list(ordered_map(slow_square, range(9), num_workers=num_workers)),
                [0, 1, 4, 9, 16, 25, 36, 49, 64],
            )

    def test_one_worker_is_this_process(self):
        self.assertEqual(
            set(ordered_map(process_id, range(3), num_workers=1)), {os.getpid()}
        )
        self.assertNotIn(
            os.getpid(), set(ordered_map(process_id, range(3), num_workers=2))
        )

    def test_what_is_shared_is_kept_from_piece_to_piece(self):
        for num_workers in (1, 2):
            found = list(
                ordered_map(
                    remember, range(6), num_workers=num_workers, shared=(["x"],)
                )
            )
            for number, known in enumerate(found):
                self.assertEqual([known[0], known[-1]], ["x", number])
            # Two workers with six pieces: one of them has had three at least.
            self.assertGreater(max(map(len, found)), 3)

    def test_an_error_comes_out_and_ends_the_work(self):
        for num_workers in (1, 2):
            results = ordered_map(fail_at_three, range(100), num_workers=num_workers)
            self.assertEqual([next(results) for _ in range(3)], [0, 1, 2])
            with self.assertRaisesRegex(KeyError, "three"):
                next(results)

    def test_a_worker_that_is_killed(self):
        with self.assertRaisesRegex(ChildProcessError, "`num_workers`"):
            list(ordered_map(end_this_process, range(3), num_workers=2))

    def test_workers_end_when_the_parent_is_killed(self):
        script = """
            import os, signal, sys, time
            from bert_tf.base.parallel import ordered_map
            from tests.parallel_work import process_id
            if __name__ == "__main__":
                pids = ordered_map(process_id, range(10**9), num_workers=2)
                print(next(pids), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        """
        path = os.path.join(self.get_temp_dir(), "script.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(script))
        done = subprocess.run(
            [sys.executable, path],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            text=True,
        )
        worker = int(done.stdout)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                os.kill(worker, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)
        self.fail("the worker is still there")

    def test_workers_stay_for_the_next_work(self):
        with Workers(2) as workers:
            first = set(workers.map(slow_process_id, range(8)))
            second = set(workers.map(slow_process_id, range(8)))
            self.assertEqual(list(workers.map(slow_square, range(4))), [0, 1, 4, 9])
        self.assertLen(first | second, 2)
