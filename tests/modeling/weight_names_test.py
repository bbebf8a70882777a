import keras
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.modeling.weight_names import weights_by_name
from tests.conversion import one_layer
from tests.modeling.examples import small_config

# By the classes of transformers that have the same weights.
MODELS = {
    "BertForPreTraining": BertPretrainer,
    "BertForSequenceClassification": lambda config: BertClassifier(config, 3),
    "BertForQuestionAnswering": BertSpanPredictor,
    "BertForTokenClassification": lambda config: BertTagger(config, 3),
    "BertForMultipleChoice": BertMultipleChoice,
    # Of another name.
    "BertModel": lambda config: BertEncoder(config, name="student"),
}


class WeightsByNameTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*MODELS.items())
    def test_shapes_by_the_originals_names(self, name, build_model):
        with keras.name_scope("outer"):
            model = build_model(one_layer.CONFIG)
        shapes = {key: tuple(v.shape) for key, v in weights_by_name(model).items()}
        lines = one_layer.lines_of(name)
        self.assertEqual(shapes, {line.original: line.shape for line in lines})

    def test_a_base_models_206_variables(self):
        expected = {
            line.original.replace("layer_0", f"layer_{number}")
            for line in one_layer.lines_of("BertForPreTraining")
            for number in range(12)
        }
        self.assertLen(expected, 206)
        model = BertPretrainer(small_config(num_hidden_layers=12))
        self.assertEqual(set(weights_by_name(model)), expected)
        # Keras' own names are the original's.
        self.assertCountEqual([w.path for w in model.weights], expected)

    def test_a_weight_without_a_name(self):
        class Odd(BertClassifier):
            def __init__(self):
                super().__init__(small_config(), 2)
                self.odd = keras.layers.Dense(3, name="odd")
                self.odd.build((None, 2))

        with self.assertRaisesRegex(ValueError, "must stand in the scope.*kernel"):
            weights_by_name(Odd())
