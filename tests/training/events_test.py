import os
import tempfile

import keras
import pytest
import tensorflow as tf

from bert_tf.base import addons
from bert_tf.base.errors import InputError
from bert_tf.tasks import pretraining
from bert_tf.training import events
from bert_tf.training.events import Callback
from bert_tf.training.loop import train
from bert_tf.training.training_options import TrainingConfig
from tests.training import toy


class Noting(Callback):
    """Notes what it is told; counts the calls of the device in the checkpoints."""

    def __init__(self, most=None, ends_at=None, over_at=None):
        self.told = []
        self.most, self.ends_at, self.over_at = most, ends_at, over_at

    def optimizer(self, optimizer):
        self.calls = keras.Variable(0, trainable=False, dtype="int32", name="calls")
        self.state = {"calls": self.calls}
        return optimizer

    def restored(self):
        self.told.append(("restored", self.run.step, int(self.calls)))

    def started(self, lines):
        self.told.append(("started", [line["step"] for line in lines]))

    def before_call(self, step):
        self.told.append(("before", step))
        return self.most

    def after_call(self, call):
        self.calls.assign(self.calls + 1)
        self.is_over = self.run.step == self.over_at
        self.told.append(("after", self.run.step, call.pace is None))
        return self.run.step == 3

    def logged(self, line):
        self.told.append(("logged", line["step"], "eval/loss" in line))

    def evaluated(self, step, results, seconds):
        assert seconds >= 0.0
        self.told.append(("evaluated", step, results["loss"]))

    def saving(self):
        self.told.append(("saving", self.run.step))

    def should_end(self):
        return self.run.step == self.ends_at

    def ended(self):
        self.told.append(("ended", self.run.step))


class CallbackTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.records = toy.write_records(os.path.join(cls.root, "r.tfrecord"))

    def train(self, name, callback, **options):
        options = {
            "num_train_steps": 6,
            "num_warmup_steps": 0,
            "train_batch_size": 4,
            "save_checkpoints_steps": 100,
            "log_steps": 4,
            "eval_steps": 4,
            **options,
        }
        phase = toy.phase(self.records, 6, evaluate=lambda model: {"loss": 2.0})
        _, step = train(
            toy.without_layers(),
            TrainingConfig(**options),
            folder=os.path.join(self.root, name),
            phases=[phase],
            callbacks=[callback],
        )
        return step

    @pytest.mark.jax
    def test_what_it_is_told_in_order(self):
        noting = Noting(most=2)
        self.assertEqual(self.train("run", noting), 6)
        self.assertEqual(
            noting.told,
            [
                ("restored", 0, 0),
                ("started", []),
                ("before", 0),
                ("after", 1, True),
                ("before", 1),
                ("after", 2, False),
                ("before", 2),
                ("after", 4, False),
                ("logged", 4, False),
                ("saving", 4),
                ("logged", 4, True),
                ("evaluated", 4, 2.0),
                ("before", 4),
                ("after", 6, False),
                ("logged", 6, False),
                ("saving", 6),
                ("logged", 6, True),
                ("evaluated", 6, 2.0),
                ("ended", 6),
            ],
        )
        # Its state is in the checkpoint. A run that is complete starts no more.
        again = Noting()
        self.train("run", again)
        self.assertEqual(
            again.told, [("restored", 6, 4), ("started", [4, 4, 6, 6]), ("ended", 6)]
        )

    def test_a_checkpoint_that_it_asks_for(self):
        noting = Noting(most=1)
        self.train("asked", noting)
        saved = [one for one in noting.told if one[0] == "saving"]
        self.assertEqual(saved, [("saving", 3), ("saving", 4), ("saving", 6)])

    def test_it_ends_a_run(self):
        # After a line of metrics, with a checkpoint, and whatever is due then.
        self.assertEqual(self.train("ends", Noting(ends_at=4)), 4)
        noting = Noting(ends_at=5)
        self.assertEqual(self.train("not asked", noting), 6)
        self.assertEqual(noting.told[-1], ("ended", 6))
        # Or completes it: with a line and an evaluation, as in the last step.
        noting = Noting(most=1, over_at=2)
        self.assertEqual(self.train("over", noting), 2)
        self.assertIn(("logged", 2, True), noting.told)
        self.assertEqual(noting.told[-1], ("ended", 2))

    def test_another_state_of_the_same_name_is_refused(self):
        class Twice(Noting):
            def optimizer(self, optimizer):
                self.state = {"scale": keras.Variable(0.0)}
                return optimizer

        with self.assertRaisesRegex(AssertionError, "two states of one name"):
            self.train("twice", Twice(), precision="float16")


class AddonsTest(tf.test.TestCase):
    def test_each_is_a_callback_with_a_name_of_its_own(self):
        names = (*events._ALWAYS, *events._OPTIONS, *pretraining._CALLBACKS)
        kinds = [addons.addon(name) for name in names]
        self.assertLen(set(kinds), len(kinds))
        for kind in kinds:
            self.assertTrue(issubclass(kind, Callback), kind)

    def test_those_that_options_ask_for(self):
        always = ["Divergence", "Curves"]
        names = [type(one).__name__ for one in events.asked_for(TrainingConfig())]
        self.assertEqual(names, always)
        options = TrainingConfig(
            profile_steps="3,5", max_train_hours=2.0, eval_steps=5, patience=3
        )
        names = [type(one).__name__ for one in events.asked_for(options)]
        self.assertEqual(names, [*always, "StepProfiler", "Budget", "Patience"])
        with self.assertRaisesRegex(InputError, "`profile_steps=3`: give two steps"):
            events.asked_for(TrainingConfig(profile_steps="3"))


if __name__ == "__main__":
    tf.test.main()
