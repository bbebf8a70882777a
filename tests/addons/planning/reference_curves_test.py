import json
from unittest import mock

import tensorflow as tf

from bert_tf.addons.planning import reference_curves
from bert_tf.addons.planning.reference_curves import Reference, of_run
from bert_tf.base.config import SIZE_NAMES, BertConfig
from tests.script_case import FolderCase

CURVE = Reference(
    size="tiny",
    made="English",
    tokens=[1e6, 2e6, 4e6],
    bits_per_byte=[3.0, 2.5, 2.0],
    masked_lm_loss=[7.0, 6.0, 5.0],
    unigram_bits_per_byte=3.0,
    masked_lm_unigram_loss=7.0,
)


class ReferenceTest(FolderCase):
    def test_the_packages_own(self):
        for size, one in reference_curves.references().items():
            self.assertIn(size, SIZE_NAMES)
            self.assertIn("Wikipedia", one.made)
            self.assertEqual(list(one.tokens), sorted(one.tokens))
            lengths = {len(one.bits_per_byte), len(one.masked_lm_loss)}
            self.assertEqual(lengths, {len(one.tokens)})
            self.assertGreater(len(one.tokens), 3)
            # No curve rises above where it began by more than noise.
            self.assertLess(max(one.bits_per_byte), 1.02 * one.bits_per_byte[0])

    def test_by_hand(self):
        self.assertEqual(
            CURVE.line(3e6),
            "Reference tiny at 3.0 M tokens: 2.25 bits per byte, in proportion to the"
            " unigrams' 3.00 (English)",
        )
        self.assertIsNone(CURVE.line(0.9e6))
        self.assertIsNone(CURVE.line(4.1e6))
        until = CURVE.until(2.5e6, "masked_lm_loss")
        self.assertEqual(until, ([1e6, 2e6], [7.0, 6.0]))

    def test_of_a_text_with_other_unigrams(self):
        found = CURVE.of_text({"unigram_bits_per_byte": 4.5, "loss": 1.0})
        self.assertEqual(found.bits_per_byte, [4.5, 3.75, 3.0])
        self.assertEqual(found.masked_lm_loss, CURVE.masked_lm_loss)
        self.assertEqual(found.bits_at(1.5e6), 4.125)
        scores = {"unigram_bits_per_byte": 1.5, "masked_lm_unigram_loss": 14.0}
        again = found.of_text(scores)
        self.assertEqual(again.bits_per_byte, [1.5, 1.25, 1.0])
        self.assertEqual(again.masked_lm_loss, [14.0, 12.0, 10.0])
        self.assertEqual(CURVE.of_text({}), CURVE)

    def test_the_run_that_it_is_for(self):
        folder = self.path("run")
        self.assertIsNone(of_run(folder))
        with mock.patch.object(reference_curves, "references", lambda: {"tiny": CURVE}):
            for size, expected in (("tiny", CURVE), ("mini", None)):
                config = BertConfig.from_size(size, vocab_size=50)
                self.write("run/bert_config.json", config.to_json_string())
                self.assertEqual(of_run(folder), expected)
            config = BertConfig.from_size("tiny")
            self.write("run/bert_config.json", config.to_json_string())
            # For the run's text, as its training was evaluated the last time.
            lines = [
                {"eval/unigram_bits_per_byte": 2.0, "eval/masked_lm_unigram_loss": 7.0},
                {
                    "eval/unigram_bits_per_byte": 1.5,
                    "eval/masked_lm_unigram_loss": 14.0,
                },
                {"eval/unigram_bits_per_byte": 9.0, "after_training": True},
            ]
            text = "".join(
                json.dumps({"step": step, "seconds": 1.0, **line}) + "\n"
                for step, line in enumerate(lines)
            )
            self.write("run/metrics.jsonl", text)
            found = of_run(folder)
            assert found is not None
            self.assertEqual(found.bits_per_byte, [1.5, 1.25, 1.0])
            self.assertEqual(found.masked_lm_loss, [14.0, 12.0, 10.0])
            self.write("run/flags.json", json.dumps({"init_checkpoint": "other"}))
            self.assertIsNone(of_run(folder))


if __name__ == "__main__":
    tf.test.main()
