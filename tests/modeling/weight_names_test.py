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
from tests.modeling.examples import small_config


def encoder_shapes(num_layers):
    """The variables of a released checkpoint's encoder; H 24, inner size 40."""
    shapes = {
        "bert/embeddings/word_embeddings": (53, 24),
        "bert/embeddings/token_type_embeddings": (3, 24),
        "bert/embeddings/position_embeddings": (20, 24),
        "bert/embeddings/LayerNorm/beta": (24,),
        "bert/embeddings/LayerNorm/gamma": (24,),
        "bert/pooler/dense/kernel": (24, 24),
        "bert/pooler/dense/bias": (24,),
    }
    for i in range(num_layers):
        scope = f"bert/encoder/layer_{i}"
        for part, inputs, outputs in (
            ("attention/self/query", 24, 24),
            ("attention/self/key", 24, 24),
            ("attention/self/value", 24, 24),
            ("attention/output/dense", 24, 24),
            ("intermediate/dense", 24, 40),
            ("output/dense", 40, 24),
        ):
            shapes[f"{scope}/{part}/kernel"] = (inputs, outputs)
            shapes[f"{scope}/{part}/bias"] = (outputs,)
        for part in ("attention/output", "output"):
            for weight in ("gamma", "beta"):
                shapes[f"{scope}/{part}/LayerNorm/{weight}"] = (24,)
    return shapes


PRETRAINING_SHAPES = {
    "cls/predictions/transform/dense/kernel": (24, 24),
    "cls/predictions/transform/dense/bias": (24,),
    "cls/predictions/transform/LayerNorm/beta": (24,),
    "cls/predictions/transform/LayerNorm/gamma": (24,),
    "cls/predictions/output_bias": (53,),
    "cls/seq_relationship/output_weights": (2, 24),
    "cls/seq_relationship/output_bias": (2,),
}


def shapes_of(model):
    return {name: tuple(v.shape) for name, v in weights_by_name(model).items()}


class WeightsByNameTest(tf.test.TestCase, parameterized.TestCase):
    def test_a_base_models_206_variables(self):
        expected = encoder_shapes(12) | PRETRAINING_SHAPES
        self.assertLen(expected, 206)
        model = BertPretrainer(small_config(num_hidden_layers=12))
        self.assertEqual(shapes_of(model), expected)
        # Keras' own names are the original's.
        self.assertSameElements([w.path for w in model.weights], expected)

    @parameterized.parameters(
        (lambda: BertClassifier(small_config(), 5), "", 5, True),
        (lambda: BertSpanPredictor(small_config()), "cls/squad/", 2, False),
        (lambda: BertTagger(small_config(), 5), "cls/tagging/", 5, False),
        (lambda: BertMultipleChoice(small_config()), "cls/multiple_choice/", 1, True),
    )
    def test_heads_of_fine_tuning(self, build_model, scope, outputs, has_pooler):
        expected = {
            name: shape
            for name, shape in encoder_shapes(2).items()
            if has_pooler or "pooler" not in name
        } | {f"{scope}output_weights": (outputs, 24), f"{scope}output_bias": (outputs,)}
        with keras.name_scope("outer"):
            model = build_model()
        self.assertEqual(shapes_of(model), expected)

    def test_encoder_of_another_name_in_another_scope(self):
        with keras.name_scope("outer"):
            model = BertEncoder(small_config(), name="student")
        self.assertEqual(shapes_of(model), encoder_shapes(2))

    def test_a_weight_without_a_name(self):
        class Odd(BertClassifier):
            def __init__(self):
                super().__init__(small_config(), 2)
                self.odd = keras.layers.Dense(3, name="odd")
                self.odd.build((None, 2))

        with self.assertRaisesRegex(ValueError, "must stand in the scope.*kernel"):
            weights_by_name(Odd())
