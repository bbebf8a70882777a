import json
import warnings

from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from tests.script_case import FolderCase

# The bert_config.json of uncased_L-12_H-768_A-12, as released.
RELEASED_BASE = """{
  "attention_probs_dropout_prob": 0.1,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1,
  "hidden_size": 768,
  "initializer_range": 0.02,
  "intermediate_size": 3072,
  "max_position_embeddings": 512,
  "num_attention_heads": 12,
  "num_hidden_layers": 12,
  "type_vocab_size": 2,
  "vocab_size": 30522
}
"""


class BertConfigTest(FolderCase):
    def write(self, text):
        return super().write("bert_config.json", text)

    def test_reads_and_writes_a_released_config(self):
        config = BertConfig.from_json_file(self.write(RELEASED_BASE))
        self.assertEqual(config.to_json_string(), RELEASED_BASE)
        self.assertEqual(config, BertConfig.from_size("base"))

    def test_defaults_are_the_originals(self):
        config = BertConfig.from_dict({"vocab_size": 99})
        self.assertEqual(
            config.to_dict(),
            json.loads(RELEASED_BASE) | {"vocab_size": 99, "type_vocab_size": 16},
        )

    def test_named_sizes(self):
        # Turc et al. 2019, table 1, and the releases' folder names.
        for size, layers, hidden, heads in (
            ("large", 24, 1024, 16),
            ("medium", 8, 512, 8),
            ("small", 4, 512, 8),
            ("mini", 4, 256, 4),
            ("tiny", 2, 128, 2),
            ("L-10_H-768", 10, 768, 12),
        ):
            config = BertConfig.from_size(size)
            self.assertEqual(
                (
                    config.num_hidden_layers,
                    config.hidden_size,
                    config.num_attention_heads,
                    config.intermediate_size,
                    config.vocab_size,
                    config.type_vocab_size,
                ),
                (layers, hidden, heads, 4 * hidden, 30522, 2),
            )
        for layers in (2, 4, 6, 8, 10, 12):
            for hidden in (128, 256, 512, 768):
                BertConfig.from_size(f"L-{layers}_H-{hidden}")
        with self.assertRaisesRegex(ValueError, "Did you mean 'small'"):
            BertConfig.from_size("smal")

    def test_unknown_keys_are_warned_about_and_near_misses_refused(self):
        with self.assertWarnsRegex(UserWarning, "model_type, torch_dtype"):
            BertConfig.from_dict({"vocab_size": 9, "torch_dtype": 1, "model_type": 2})
        with self.assertRaisesRegex(
            InputError, "'hiden_size'; did you mean 'hidden_size'"
        ):
            BertConfig.from_dict({"vocab_size": 9, "hiden_size": 128})
        with self.assertRaisesRegex(InputError, "did you mean 'num_hidden_layers'"):
            BertConfig.from_dict({"vocab_size": 9, "num_hidden_layer": 2})

    def test_a_model_of_two_encoders_is_refused(self):
        values = {"vocab_size": 9, "second_encoder": {"vocab_size": 9}}
        with self.assertRaisesRegex(InputError, "two encoders, which this version"):
            BertConfig.from_dict(values)

    def test_keys_of_the_chinese_release_pass_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            BertConfig.from_dict(
                {
                    "vocab_size": 21128,
                    "directionality": "bidi",
                    "pooler_fc_size": 768,
                    "pooler_num_attention_heads": 12,
                    "pooler_num_fc_layers": 3,
                    "pooler_size_per_head": 128,
                    "pooler_type": "first_token_transform",
                }
            )

    def test_bad_files_are_named(self):
        with self.assertRaisesRegex(InputError, "No such BERT config file.*nowhere"):
            BertConfig.from_json_file("nowhere/bert_config.json")
        for text, message in (
            ('{\n"vocab_size": }', "bert_config.json:2: not valid JSON"),
            ("[1]", "one JSON object"),
            ("{}", "`vocab_size` is missing"),
            ('{"vocab_size": 9, "hidden_size": 0}', "`hidden_size` must be a positive"),
        ):
            with self.assertRaisesRegex(InputError, message):
                BertConfig.from_json_file(self.write(text))

    def test_values_are_checked(self):
        for bad, message in (
            ({"hidden_size": 10, "num_attention_heads": 3}, "multiple"),
            ({"hidden_act": "swish"}, "`hidden_act`"),
            ({"hidden_dropout_prob": 1.0}, r"in \[0, 1\)"),
            ({"vocab_size": 3.5}, "positive integer"),
            ({"vocab_size": True}, "positive integer"),
            ({"initializer_range": "0.02"}, "must be a number"),
            ({"left_to_right": 1}, "must be true or false"),
            ({"layer_norm_eps": 0.0}, "`layer_norm_eps` must be positive"),
            ({"initializer_range": 10**400}, "must be positive and finite"),
            ({"vocab_size": 10**30}, "`vocab_size` must be a positive integer, below"),
            ({"layer_norm_eps": float("nan")}, "`layer_norm_eps` must be positive"),
            ({"masked_lm_layer_norm_eps": -1e-5}, "must be positive.*-1e-05"),
            ({"masked_lm_layer_norm_eps": "1e-5"}, "must be a number.*'1e-5'"),
            ({"masked_lm_hidden_act": "swish"}, "`masked_lm_hidden_act` must be one"),
            ({"embedding_size": 0}, "`embedding_size` must be a positive integer"),
            ({"embedding_size": 4, "num_hidden_groups": 2}, "must be 1.*Received: 2"),
            ({"inner_group_num": 2}, "`inner_group_num` must be 1"),
            ({"num_hidden_groups": 1}, "`embedding_size` must be given"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                BertConfig(**{"vocab_size": 9, **bad})

    def test_what_the_original_does_not_have_is_written_where_it_is_set_alone(self):
        # Their defaults, given or not, leave no trace: the original's code computes
        # such a model.
        as_original = BertConfig(
            vocab_size=9,
            left_to_right=False,
            layer_norm_eps=1e-12,
            masked_lm_hidden_act=None,
            masked_lm_layer_norm_eps=None,
        )
        self.assertEqual(as_original, BertConfig(vocab_size=9))
        self.assertEqual(as_original.to_dict().keys(), json.loads(RELEASED_BASE).keys())
        self.assertEmpty(as_original.beyond_the_original())
        relu = BertConfig(vocab_size=9, hidden_act="relu")
        self.assertEmpty(relu.beyond_the_original())
        for name, value in (
            ("left_to_right", True),
            ("layer_norm_eps", 1e-5),
            ("masked_lm_hidden_act", "gelu_erf"),
            ("masked_lm_layer_norm_eps", 1e-5),
            ("embedding_size", 128),
            ("hidden_act", "gelu_erf"),
        ):
            config = BertConfig(vocab_size=9, **{name: value})
            self.assertEqual(config.to_dict()[name], value)
            self.assertLen(config.to_dict(), 12 - (name == "hidden_act"))
            path = self.write(config.to_json_string())
            self.assertEqual(BertConfig.from_json_file(path), config)
            self.assertEqual(config.beyond_the_original(), {name: value})

    def test_alberts_settings(self):
        settings = {"embedding_size": 4, "num_hidden_groups": 1, "inner_group_num": 1}
        config = BertConfig(vocab_size=9, **settings)
        self.assertEqual(config.to_dict() | settings, config.to_dict())
        path = self.write(config.to_json_string())
        self.assertEqual(BertConfig.from_json_file(path), config)
        self.assertEmpty(config.beyond_the_original())
        widths = [config.embedding_width, BertConfig(vocab_size=9).embedding_width]
        self.assertEqual(widths, [4, 768])

    def test_activation_in_any_case_and_none(self):
        for given, meant in (("GELU", "gelu"), ("", "linear"), (None, "linear")):
            config = BertConfig.from_dict({"vocab_size": 9, "hidden_act": given})
            self.assertEqual(config.hidden_act, meant)
