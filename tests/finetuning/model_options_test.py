import os

import tensorflow as tf
from absl import flags

from bert_tf import flags as shared_flags
from bert_tf import stability_flags
from bert_tf.config import SINGLE_LABEL
from bert_tf.conversion.adapter_files import write_adapter
from bert_tf.errors import InputError
from bert_tf.finetuning.model_options import (
    is_parameter_efficient,
    model_options,
    opened_adapter,
)
from bert_tf.modeling.heads import BertClassifier
from tests.modeling.examples import small_config

CONFIG = small_config(num_hidden_layers=1)
NONE = {
    "lora_rank": 0,
    "adapter_size": 0,
    "layer_mixture": False,
    "train_pooler": False,
}


def options_of(*arguments, config=CONFIG):
    flag_values = flags.FlagValues()
    shared_flags.define_training(flag_values)
    stability_flags.define_stability(flag_values)
    stability_flags.define_parameter_efficient(flag_values)
    flag_values(["script", *arguments])
    return model_options(flag_values, opened_adapter(flag_values, config))


class ModelOptionsTest(tf.test.TestCase):
    def test_of_flags(self):
        self.assertEqual(options_of(), NONE)
        self.assertFalse(is_parameter_efficient(options_of("--layer_mixture")))
        options = options_of("--lora_rank=8", "--train_pooler")
        self.assertEqual(options, NONE | {"lora_rank": 8, "train_pooler": True})
        self.assertTrue(is_parameter_efficient(options))
        self.assertTrue(is_parameter_efficient(options_of("--adapter_size=8")))

    def test_of_an_adapter(self):
        folder = os.path.join(self.get_temp_dir(), "run")
        model = BertClassifier(CONFIG, 2, adapter_size=3, layer_mixture=True)
        write_adapter(folder, model, labels=("a", "b"), problem_type=SINGLE_LABEL)
        given = [f"--init_adapter={folder}", "--init_checkpoint=base"]
        expected = NONE | {"adapter_size": 3, "layer_mixture": True}
        self.assertEqual(options_of(*given), expected)
        self.assertEqual(options_of(*given, "--adapter_size=3"), expected)
        with self.assertRaisesRegex(
            InputError, "--adapter_size=4, but .* was trained with 3. Leave"
        ):
            options_of(*given, "--adapter_size=4")
        with self.assertRaisesRegex(InputError, "num_hidden_layers=1; this one has 2"):
            options_of(*given, config=small_config())


if __name__ == "__main__":
    tf.test.main()
