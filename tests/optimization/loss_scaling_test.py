import tensorflow as tf

from bert_tf.optimization.loss_scaling import (
    GROWTH_STEPS,
    INITIAL_LOSS_SCALE,
    next_loss_scale,
)


class NextLossScaleTest(tf.test.TestCase):
    def run_of(self, scale, steps, growth_steps):
        """The scales after each of the steps: "." finite, "x" not."""
        step = tf.function(
            lambda s, n, f: next_loss_scale(s, n, f, growth_steps=growth_steps)
        )
        scale, good_steps = tf.constant(scale), tf.constant(0)
        scales = []
        for finite in steps:
            scale, good_steps = step(scale, good_steps, tf.constant(finite == "."))
            scales.append(float(scale))
        return scales

    def test_doubled_after_so_many_finite_steps_in_a_row(self):
        self.assertEqual(self.run_of(8.0, ".......", 3), [8, 8, 16, 16, 16, 32, 32])

    def test_halved_at_once_and_counted_anew(self):
        self.assertEqual(self.run_of(8.0, "..x..x...", 3), [8, 8, 4, 4, 4, 2, 2, 2, 4])

    def test_never_below_1_nor_infinite(self):
        self.assertEqual(self.run_of(4.0, "xxxx", 3), [2, 1, 1, 1])
        self.assertEqual(self.run_of(2.0**125, "...", 1), [2.0**126] * 3)

    def test_defaults(self):
        self.assertEqual((INITIAL_LOSS_SCALE, GROWTH_STEPS), (32768, 2000))
        for good_steps, scale in ((1998, 4.0), (1999, 8.0)):
            result = next_loss_scale(4.0, good_steps, True)
            self.assertEqual(float(result[0]), scale)
            self.assertEqual(int(result[1]), 1999 if scale == 4.0 else 0)

    def test_keeps_the_types_of_its_variables(self):
        scale, good_steps = tf.Variable(4.0), tf.Variable(7)
        for is_finite in (True, False):
            results = next_loss_scale(scale, good_steps, tf.constant(is_finite))
            self.assertEqual([r.dtype for r in results], [tf.float32, tf.int32])


if __name__ == "__main__":
    tf.test.main()
