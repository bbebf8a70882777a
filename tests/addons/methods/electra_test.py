import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.addons.methods.electra import (
    ElectraPretrainer,
    ReplacedTokens,
    generator_config,
)
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.modeling.fused import per_example_dropout, without_fusion
from bert_tf.modeling.objectives import replaced_tokens
from bert_tf.modeling.weight_names import weights_by_name
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    one_of,
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)

CONFIG = small_config(num_attention_heads=4, embedding_size=8)


def unmasked(records):
    """Records without masks: the discriminator gets the text itself."""
    weights = np.zeros_like(records["masked_lm_weights"])
    return {**records, "masked_lm_weights": weights}


class GeneratorTest(tf.test.TestCase):
    def test_its_sizes(self):
        # Clark et al. 2020, table 6: the generator of ELECTRA-base has a third.
        base = generator_config(BertConfig.from_size("base"), 1 / 3)
        self.assertEqual(
            (base.hidden_size, base.num_attention_heads, base.intermediate_size),
            (256, 4, 1024),
        )
        self.assertEqual((base.embedding_size, base.num_hidden_layers), (768, 12))
        one = generator_config(BertConfig.from_size("L-2_H-128"), 0.25)
        self.assertEqual((one.hidden_size, one.num_attention_heads), (32, 1))
        with self.assertRaisesRegex(InputError, "hidden size of 253 and 4 attention"):
            generator_config(BertConfig.from_size("base"), 0.33)
        with self.assertRaisesRegex(InputError, "reads in both directions"):
            generator_config(small_config(left_to_right=True), 0.5)

    def test_it_shares_the_embeddings_alone(self):
        model = ElectraPretrainer(CONFIG)
        names = weights_by_name(model)
        self.assertLen(names, len(model.weights))
        self.assertLen([name for name in names if "word_embeddings" in name], 1)
        self.assertIn("cls/generator/encoder/layer_1/output/dense/kernel", names)
        self.assertEqual(
            names["cls/generator/encoder/embedding_hidden_mapping_in/kernel"].shape,
            (8, 6),
        )


class LogitsTest(tf.test.TestCase):
    def test_against_numpy(self):
        model = ElectraPretrainer(CONFIG)
        weights = randomize(model)
        records = random_records(CONFIG)
        masked_lm = outputs_of(model, records)["masked_lm_logits"]
        outputs = outputs_of(model, unmasked(records))
        self.assertAllEqual(outputs["is_replaced"], np.zeros((4, 14)))
        # The generator is a BERT with the discriminator's embeddings.
        of_generator = {
            name.replace("cls/generator/", "bert/").replace(
                "cls/generator_predictions", "cls/predictions"
            ): array
            for name, array in weights.items()
            if not name.startswith("bert/encoder/")
        }
        small = generator_config(CONFIG, 0.25)
        for row in range(4):
            record = one_of(records, row)
            states = numpy_bert.sequence_outputs(of_generator, small, record)[0][-1]
            expected = numpy_bert.masked_lm_logits(
                of_generator, small, states, record["masked_lm_positions"]
            )
            self.assertLess(relative_error(masked_lm[row], expected), 1e-5)
            states = numpy_bert.sequence_outputs(weights, CONFIG, record)[0][-1]
            scope = "cls/discriminator_predictions"
            hidden = numpy_bert.activation(
                "gelu", numpy_bert.dense(weights, f"{scope}/dense", states)
            )
            expected = numpy_bert.dense(weights, f"{scope}/dense_1", hidden)[:, 0]
            actual = outputs["discriminator_logits"][row]
            self.assertLess(relative_error(actual, expected), 1e-5)

    def test_no_gradient_reaches_the_generator_through_the_drawing(self):
        model = ElectraPretrainer(CONFIG)
        randomize(model)
        records = random_records(CONFIG)
        loss = model.objective.losses["discriminator_loss"]
        with without_fusion(), tf.GradientTape() as tape:
            value = loss(records, model(records, training=True)).value()
        names = weights_by_name(model)
        gradients = tape.gradient(value, [weight.value for weight in names.values()])
        for name, gradient in zip(names, gradients, strict=True):
            self.assertEqual(gradient is None, name.startswith("cls/generator"), name)


class ReplacedTokensTest(tf.test.TestCase):
    def test_where_the_tokens_go(self):
        # The logits leave no choice: tokens 3 and 1 in the first row, 0 in the second.
        logits = np.full((2, 2, 4), -1e4, np.float32)
        logits[0, 0, 3] = logits[0, 1, 1] = logits[1, 0, 0] = logits[1, 1, 2] = 0.0
        replaced, is_replaced = ReplacedTokens()(
            logits,
            np.array([[7, 9, 5, 9, 6], [9, 7, 0, 0, 0]]),
            np.array([[1, 3], [0, 0]]),
            np.array([[3, 8], [2, 0]]),
            np.array([[1.0, 1.0], [1.0, 0.0]], np.float32),
        )
        # 3 is what stood there; 8 and 2 are not. The last slot has no weight.
        self.assertAllEqual(replaced, [[7, 3, 5, 1, 6], [0, 7, 0, 0, 0]])
        self.assertAllEqual(is_replaced, [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0]])

    def arguments(self, batch=64, slots=40):
        rng = np.random.default_rng(0)
        chances = np.log(np.array([0.1, 0.6, 0.3], np.float32))
        return (
            np.broadcast_to(chances, (batch, slots, 3)),
            rng.integers(5, 90, (batch, slots)),
            np.broadcast_to(np.arange(slots), (batch, slots)),
            np.full((batch, slots), 9),
            np.ones((batch, slots), np.float32),
        )

    def test_they_follow_the_generators_distribution(self):
        layer = ReplacedTokens()
        arguments = self.arguments()
        drawn = [np.array(layer(*arguments, training=True)[0]) for _ in range(2)]
        self.assertNotAllEqual(*drawn)
        for tokens in (*drawn, np.array(layer(*arguments)[0])):
            share = np.bincount(tokens.ravel(), minlength=3) / tokens.size
            # 2,560 draws: a standard deviation is at most 0.0097.
            self.assertAllClose(share, [0.1, 0.6, 0.3], atol=0.04)
            # No two sequences, and no two slots, draw the same.
            for rows in (tokens, tokens.T):
                self.assertLen({tuple(row) for row in rows}, len(rows))
            agreement = (tokens[1:] == tokens[:-1]).mean()
            self.assertAllClose(agreement, 0.01 + 0.36 + 0.09, atol=0.04)

    def test_a_part_of_a_batch_draws_what_the_whole_does(self):
        arguments = self.arguments(batch=6)
        whole, parts = ReplacedTokens(), ReplacedTokens()
        parts.seed_generator.state.assign(whole.seed_generator.state)
        for training in (True, True, False):
            expected = whole(*arguments, training=training)[0]
            for number in range(3):
                rows = slice(2 * number, 2 * number + 2)
                part = [argument[rows] for argument in arguments]
                with per_example_dropout(ops.arange(6)[rows], again=number > 0):
                    drawn = parts(*part, training=training)[0]
                self.assertAllEqual(drawn, expected[rows])


class ObjectiveTest(tf.test.TestCase):
    def test_by_hand(self):
        records = {"input_mask": np.array([[1, 1, 1], [1, 0, 0]])}
        outputs = {
            "discriminator_logits": np.array([[0.0, 2.0, -1.0], [3.0, 5.0, 5.0]], "f"),
            "is_replaced": np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]], "f"),
        }
        objective = replaced_tokens(50.0)
        means = objective.means(records, outputs)
        # log 2, log(1 + e^-2), log(1 + e), log(1 + e^3), over four tokens.
        mean = (0.69314718 + 0.12692801 + 1.31326169 + 3.04858735) / 4
        loss = means["discriminator_loss"]
        self.assertAllClose(loss.total / loss.weight, mean, rtol=1e-6)
        self.assertAllClose(loss.value(), 50 * mean, rtol=1e-6)
        # Half of a batch, of which the whole has eight tokens.
        self.assertAllClose(loss.value(8.0), 25 * mean, rtol=1e-6)
        self.assertAllClose(means["discriminator_accuracy"].value(), 2 / 4)
        self.assertAllClose(means["replaced_share"].value(), 2 / 4)
