import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.modeling import objectives
from bert_tf.squad.features import Featurizer
from bert_tf.tasks import squad
from tests.squad.toy_tokens import question, tokenizer
from tests.training import toy


def blocks(*, for_training):
    make = Featurizer(
        tokenizer(),
        max_seq_length=12,
        doc_stride=4,
        max_query_length=3,
        for_training=for_training,
    )
    questions = [
        question("a b c d e a b c d e", text="a c", answer="c d"),
        question("a b", text="", is_impossible=True),
    ]
    return list(squad.parallel_blocks(questions, make, num_workers=1))


class TaskTest(tf.test.TestCase):
    def test_model_and_objective(self):
        task = squad.task(toy.CONFIG, name="trivia", recompute=True)
        self.assertEqual(task.name, "trivia")
        self.assertIs(task.objective, objectives.SPAN)
        model = task.build_model()
        self.assertIs(model.objective, objectives.SPAN)
        self.assertTrue(model.get_config()["recompute"])
        self.assertGreater(task.training_flops({"input_ids": (2, 12)}), 0)
        self.assertEqual(squad.task(toy.CONFIG).name, "squad")

    def test_the_model_takes_the_records(self):
        (block,) = blocks(for_training=True)
        task = squad.task(toy.CONFIG)
        outputs = task.build_model()(block)
        self.assertEqual(outputs["start_logits"].shape, block["input_ids"].shape)
        (loss,) = task.objective.losses.values()
        # Hardly trained: near the logarithm of the 12 places.
        self.assertAllClose(loss(block, outputs).value(), np.log(12.0), atol=0.3)


class SchemaTest(tf.test.TestCase):
    def test_records_are_those_of_the_schema(self):
        for for_training in (False, True):
            schema = squad.schema(12, for_training=for_training)
            (block,) = blocks(for_training=for_training)
            serialized = schema.serialize_block(block)
            schema.check(serialized[0], "f")
            parsed = schema.parse(serialized)
            self.assertEqual(set(parsed), set(block))
            for name, values in parsed.items():
                self.assertAllEqual(values, block[name])

    def test_what_the_originals_reader_expects(self):
        # The names and lengths of its name_to_features, as scalars.
        (block,) = blocks(for_training=True)
        serialized = squad.schema(12, for_training=True).serialize_block(block)
        spec = {
            **{
                name: tf.io.FixedLenFeature([], tf.int64)
                for name in ("unique_ids", "start_positions", "end_positions")
            },
            **{
                name: tf.io.FixedLenFeature([12], tf.int64)
                for name in ("input_ids", "input_mask", "segment_ids")
            },
        }
        parsed = tf.io.parse_example(serialized, spec)
        # [CLS] a c [SEP], and a window of 7 tokens: c and d are its third and fourth.
        self.assertAllEqual(parsed["unique_ids"], 1000000000 + np.arange(3))
        self.assertAllEqual(parsed["start_positions"], [6, 0, 0])
        self.assertAllEqual(parsed["end_positions"], [7, 0, 0])

    def test_records_for_prediction_do_not_train(self):
        (block,) = blocks(for_training=False)
        serialized = squad.schema(12, for_training=False).serialize_block(block)
        with self.assertRaisesRegex(InputError, "must have `start_positions`"):
            squad.schema(12, for_training=True).check(serialized[0], "f")


if __name__ == "__main__":
    tf.test.main()
