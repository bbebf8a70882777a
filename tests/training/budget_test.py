import tensorflow as tf

from bert_tf.optimization.schedules import WarmupSchedule
from bert_tf.training.budget import Budget

SECONDS = 100.0


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class BudgetTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.clock = Clock()
        self.schedule = WarmupSchedule(1.0, 1000, 100)

    def budget(self, **kwargs):
        hours = SECONDS / 3600.0
        return Budget(hours, self.schedule, clock=self.clock, **kwargs)

    def train(self, budget, step=0, until=10**6, pace=1.0):
        """Makes steps one by one; the rate of each, by its step."""
        rates = {}
        while not budget.is_over and step < until:
            rates[step] = budget.rate(step)
            self.clock.now += pace
            step += 1
            budget.update(step, budget.seconds_left(), pace)
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
        budget = self.budget(num_evaluations=2, checkpoint_bytes=5 * 10**8)
        budget.evaluated(10.0)
        self.assertLen(self.train(budget), 75)
        budget = self.budget(num_evaluations=2, checkpoint_bytes=5 * 10**8)
        budget.evaluated(10.0)
        budget.saved(0.0)
        self.assertLen(self.train(budget), 80)

    def test_an_evaluation_that_was_not_timed_is_foreseen_by_the_pace(self):
        budget = self.budget(num_evaluations=2)
        budget.foresee_evaluation(4.0, num_steps=6.0)
        self.train(budget, until=40)
        # One slow step ends nothing.
        self.clock.now += 20.0
        budget.update(41, budget.seconds_left(), 20.0)
        self.assertFalse(budget.is_over)
        self.assertLen(self.train(budget, step=41), 100 - 40 - 20 - 2 * 10)
        budget.keep()
        first = self.budget(num_evaluations=2)
        first.evaluated(5.0)
        first.evaluated(1.0)  # without compiling
        self.train(first, until=30)
        first.keep()
        second = self.budget(num_evaluations=2)
        for name, variable in second.variables.items():
            variable.assign(first.variables[name])
        second.resume()
        second.foresee_evaluation(40.0, num_steps=60.0)
        self.assertLen(self.train(second, step=30), 60)

    def test_a_checkpoint_is_due_by_time(self):
        budget = self.budget()  # of 100 seconds: each 30
        due = [left for left in range(100, 0, -10) if budget.saves(float(left))]
        self.assertEqual(due, [70, 40, 10])

    def test_it_resumes_where_the_checkpoint_was_written(self):
        first = self.budget()
        self.train(first, until=40)
        first.keep()
        self.clock.now += 5000.0
        second = self.budget()
        second.used.assign(first.used)
        second.resume()
        self.clock.now += 10.0  # compiling again
        rates = self.train(second, step=40)
        self.assertLen(rates, 50)
        self.assertTrue(second.is_over)
        # Of the 90 steps of both.
        self.assertAllClose(rates[45], 0.5, atol=1e-5)
        second.keep()
        third = self.budget()
        third.used.assign(second.used)
        third.resume()
        self.assertTrue(third.is_over)

    def test_hours_that_are_used_up_stay_so(self):
        # 14.4 seconds are fewer in the checkpoint's single precision.
        for hours in (0.004, 0.017, 1.0):
            first, second = (
                Budget(hours, self.schedule, clock=self.clock) for _ in range(2)
            )
            first.is_over = True
            first.keep()
            second.used.assign(first.used)
            second.resume()
            self.assertTrue(second.is_over)


if __name__ == "__main__":
    tf.test.main()
