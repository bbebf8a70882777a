import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf


class DevicesTest(tf.test.TestCase):
    # tests/training/strategies_test.py makes whole steps on several devices.
    @pytest.mark.slow
    def test_the_same_update_everywhere(self):
        # A process of its own: logical devices are settled before anything runs.
        output = subprocess.run(
            [sys.executable, "-m", "tests.optimization.devices_child"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        runs = json.loads(output.splitlines()[-1])
        start = np.concatenate(
            [np.linspace(-1, 2, 12), np.linspace(3, 1, 12), np.ones(5)]
        )
        self.assertLen(runs, 6)
        self.assertGreater(np.abs(runs["plain"] - start).max(), 0.05)
        for run, weights in runs.items():
            self.assertAllClose(weights, runs["plain"], rtol=1e-6, atol=1e-6, msg=run)


if __name__ == "__main__":
    tf.test.main()
