import glob
import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.training.profiling import StepProfiler


class StepProfilerTest(tf.test.TestCase):
    def traces(self):
        pattern = os.path.join(self.get_temp_dir(), "plugins/profile/*/*.xplane.pb")
        return glob.glob(pattern)

    def test_a_trace_of_the_steps_that_were_asked_for(self):
        profiler = StepProfiler(self.get_temp_dir(), "3,5")
        product = tf.function(lambda x: tf.matmul(x, x, name="the_product"))
        before = tf.function(lambda x: tf.add(x, x, name="the_sum"))
        step, calls = 0, []
        while step < 9:
            until = min(profiler.next_boundary(step) or 9, step + 4)
            profiler.at(step)
            with profiler.call(step):
                (product if 3 <= step < 5 else before)(tf.ones([8, 8]))
            calls.append((step, until))
            self.assertLen(self.traces(), int(step >= 5))
            step = until
        self.assertEqual(calls, [(0, 3), (3, 5), (5, 9)])
        profiler.close()
        (path,) = self.traces()
        with open(path, "rb") as file:
            trace = file.read()
        self.assertIn(b"the_product", trace)
        self.assertNotIn(b"the_sum", trace)
        self.assertIn(b"step_num", trace)

    def test_a_run_that_stops_in_between_has_its_trace(self):
        profiler = StepProfiler(self.get_temp_dir(), "0,100")
        profiler.at(50)
        self.assertEmpty(self.traces())
        profiler.close()
        self.assertLen(self.traces(), 1)
        profiler.close()

    def test_other_workers_stop_at_the_same_steps_and_trace_nothing(self):
        profiler = StepProfiler(self.get_temp_dir(), "3,5", traces=False)
        self.assertEqual([profiler.next_boundary(step) for step in (0, 3)], [3, 5])
        profiler.at(3)
        profiler.close()
        self.assertEmpty(self.traces())

    def test_no_profile(self):
        profiler = StepProfiler(self.get_temp_dir(), None)
        for step in range(3):
            self.assertIsNone(profiler.next_boundary(step))
            profiler.at(step)
            with profiler.call(step):
                pass
        profiler.close()
        self.assertEmpty(self.traces())

    def test_no_steps(self):
        for spec in ("100", "5,5", "7,3", "a,b", "1,2,3", "-1,4", "1.5,3"):
            with self.assertRaisesRegex(InputError, f"--profile_steps={spec}: "):
                StepProfiler(self.get_temp_dir(), spec)
