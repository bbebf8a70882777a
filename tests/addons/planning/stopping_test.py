import types

import tensorflow as tf

from bert_tf.addons.planning.stopping import Stopping, parse
from bert_tf.base.errors import InputError


def reason(text, *lines):
    """Why a run with these lines ends."""
    stopping = Stopping([text])
    objective = types.SimpleNamespace(losses=["loss"], metrics=["accuracy"])
    stopping.run = types.SimpleNamespace(
        task=types.SimpleNamespace(objective=objective)
    )
    stopping.started([])
    for step, seconds, metrics in lines:
        stopping.logged({"step": step, "seconds": seconds, **metrics})
    return stopping.reason


class StoppingTest(tf.test.TestCase):
    def test_when_it_ends(self):
        bad, good = {"loss": 6.5}, {"loss": 5.5}
        for text, lines, ends in (
            ("loss>6@100", [(99, 9.0, bad)], False),
            ("loss>6@100", [(100, 9.0, bad)], True),
            ("loss>6.5@100", [(100, 9.0, bad)], False),
            ("loss > 6 @ 100", [(150, 9.0, bad)], True),
            # Once: what was reached stays reached.
            ("loss>6@100", [(100, 9.0, good), (200, 18.0, bad)], False),
            ("loss>6@0.5h", [(1, 1799.0, bad)], False),
            ("loss>6@.5h", [], None),
            ("loss>6@0.5h", [(1, 1800.0, bad)], True),
            ("accuracy<0.1@5", [(5, 1.0, {"accuracy": 0.09})], True),
            ("accuracy<1e-1@5", [(5, 1.0, {"accuracy": 0.2})], False),
            # The training's, or where it has none the evaluation's.
            ("loss>6@5", [(5, 1.0, {"eval/loss": 7.0})], False),
            ("eval/loss>6@5", [(5, 1.0, bad), (5, 1.0, {"eval/loss": 7.0})], True),
            ("bits_per_byte>2@5", [(7, 1.0, {"eval/bits_per_byte": 2.5})], True),
        ):
            if ends is None:
                with self.assertRaisesRegex(InputError, 'Received: "loss>6@.5h"'):
                    parse([text])
            else:
                self.assertEqual(bool(reason(text, *lines)), ends, text)

    def test_the_reason(self):
        self.assertEqual(
            reason("bits_per_byte>2@5", (7, 1.0, {"eval/bits_per_byte": 2.54321})),
            "eval/bits_per_byte is 2.543 at step 7 (`stop_if=bits_per_byte>2@5`)",
        )

    def test_what_is_no_condition(self):
        for text in ("loss", "loss>6", "loss>@5", "loss=6@5", "loss>6@5m", "loss>6@"):
            with self.assertRaisesRegex(InputError, "METRIC>VALUE@STEP"):
                parse([text])


if __name__ == "__main__":
    tf.test.main()
