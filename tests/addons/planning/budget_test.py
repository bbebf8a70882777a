import types

import tensorflow as tf

from bert_tf.addons.planning.budget import Budget
from bert_tf.optimization.optimizers import create_optimizer
from bert_tf.training.events import Call

SECONDS = 100.0


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class BudgetTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()

    def budget(self, num_evaluations=0, checkpoint_bytes=0, hours=SECONDS / 3600.0):
        budget = Budget(hours, clock=self.clock)
        # Bytes are those of weights of 4 bytes, with both moments.
        weight = types.SimpleNamespace(shape=(checkpoint_bytes // 12,))
        self.phase = types.SimpleNamespace(
            evaluates_afterwards=num_evaluations > 1, num_evaluated=24, batch_size=2
        )
        budget.run = types.SimpleNamespace(
            config=types.SimpleNamespace(eval_steps=num_evaluations),
            phases=[self.phase],
            model=types.SimpleNamespace(weights=[weight]),
            optimizer=types.SimpleNamespace(),
            bar=types.SimpleNamespace(),
            step=0,
            saving_seconds=None,
            summed=lambda *numbers: numbers,
        )
        planned = create_optimizer(1.0, 1000, 100, optimizer="lamb", epsilon=1e-5)
        optimizer = budget.optimizer(planned)
        expected = {**planned.get_config(), "learning_rate": 0.0}
        self.assertEqual(optimizer.get_config(), expected)
        return budget

    def resumed(self, before, **kwargs):
        """A budget that takes a checkpoint's state."""
        budget = self.budget(**kwargs)
        for name, variable in budget.state.items():
            variable.assign(before.state[name])
        budget.restored()
        return budget

    def step(self, budget, pace):
        """Makes a step."""
        budget.run.step += 1
        return budget.after_call(Call(self.phase, 1, None, seconds=pace, pace=pace))

    def compile(self, budget, seconds):
        """A first call, without a step of its own here."""
        budget.after_call(Call(self.phase, 1, None, seconds=seconds, pace=None))

    def train(self, budget, step=0, until=10**6, pace=1.0):
        """Makes steps one by one; the rate of each, by its step."""
        rates = {}
        budget.run.step = step
        while not budget.is_over and budget.run.step < until:
            step = budget.run.step
            budget.before_call(step)
            rates[step] = budget.run.optimizer.learning_rate
            self.clock.now += pace
            self.step(budget, pace)
        return rates

    def test_the_schedule_takes_the_hours_whatever_compiling_takes(self):
        budget = self.budget()
        self.clock.now += 20.0  # compiling
        rates = self.train(budget)
        self.assertLen(rates, 80)
        # Of 80 steps 8 are warmup: a tenth; step 40 is half way down.
        for step, rate in ((0, 0.0), (4, 0.5), (8, 0.9), (40, 0.5), (79, 1 / 80)):
            self.assertAllClose(rates[step], rate, atol=1e-5)

    def test_a_slower_machine_makes_fewer_steps(self):
        self.assertLen(self.train(self.budget(), pace=2.0), 50)

    def test_the_last_evaluation_and_checkpoint_have_time(self):
        given = {"num_evaluations": 2, "checkpoint_bytes": 499_999_992}
        budget = self.budget(**given)
        budget.evaluated(0, {}, 10.0)
        self.assertLen(self.train(budget), 75)
        budget = self.budget(**given)
        budget.evaluated(0, {}, 10.0)
        budget.run.saving_seconds = 0.0
        self.assertLen(self.train(budget), 80)

    def test_an_evaluation_that_was_not_timed_is_foreseen_by_the_pace(self):
        budget = self.budget(num_evaluations=2)
        # Half of the time of 12 steps of 2 for 24 sequences, and 4 s of compiling.
        self.compile(budget, 4.0)
        self.train(budget, until=40)
        # One slow step ends nothing.
        self.clock.now += 20.0
        self.step(budget, 20.0)
        self.assertFalse(budget.is_over)
        self.assertLen(self.train(budget, step=41), 100 - 40 - 20 - 2 * 10)
        budget.saving()
        first = self.budget(num_evaluations=2)
        first.evaluated(0, {}, 5.0)
        first.evaluated(1, {}, 1.0)  # without compiling
        self.train(first, until=30)
        first.saving()
        second = self.resumed(first, num_evaluations=2)
        self.compile(second, 40.0)
        self.assertLen(self.train(second, step=30), 60)

    def test_a_checkpoint_is_due_by_time(self):
        budget = self.budget()  # of 100 seconds: each 30
        due = []
        for _ in range(10):
            self.clock.now += 10.0
            due.append(self.step(budget, 10.0))
        self.assertEqual([n for n, is_due in enumerate(due) if is_due], [3, 6, 9])

    def test_few_steps_follow_a_change_of_the_rate(self):
        budget = self.budget()
        self.assertIsNone(budget.before_call(0))  # the pace is not known
        self.train(budget, until=98, pace=1.0)
        # 2 of 100 are left: one at a time.
        self.assertEqual(budget.before_call(98), 1)
        self.assertEqual(budget.run.bar.total, 100)
        long = self.budget(hours=10.0)
        self.train(long, until=1)
        # A thousandth of 36,000.
        self.assertEqual(long.before_call(1), 37)

    def test_it_resumes_where_the_checkpoint_was_written(self):
        first = self.budget()
        self.train(first, until=40)
        first.saving()
        self.clock.now += 5000.0
        second = self.resumed(first)
        self.clock.now += 10.0  # compiling again
        rates = self.train(second, step=40)
        self.assertLen(rates, 50)
        self.assertTrue(second.is_over)
        # Of the 90 steps of both.
        self.assertAllClose(rates[45], 0.5, atol=1e-5)
        second.saving()
        self.assertTrue(self.resumed(second).is_over)

    def test_hours_that_are_used_up_stay_so(self):
        # 14.4 seconds are fewer in the checkpoint's single precision.
        for hours in (0.004, 0.017, 1.0):
            first = self.budget(hours=hours)
            first.is_over = True
            first.saving()
            self.assertTrue(self.resumed(first, hours=hours).is_over)


if __name__ == "__main__":
    tf.test.main()
