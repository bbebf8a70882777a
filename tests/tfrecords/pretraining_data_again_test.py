"""create_pretraining_data under a name that was used before, or is in use just now."""

import tensorflow as tf

from tests.tfrecords.sharded_pretraining_data_test import ScriptCase, as_text, corpus


class AgainTest(ScriptCase):
    def test_other_text_and_vocabulary_in_one_process(self):
        self.run_script(num_shards=2)
        more = self.write("more.txt", as_text(corpus(seed=1)))
        text = f"{self.path('text.txt')},{more}"
        with open(self.path("vocab.txt"), encoding="utf-8") as file:
            tokens = file.read().splitlines()
        other = self.write("other.txt", "\n".join(tokens[:5] + tokens[:4:-1]) + "\n")
        arguments = {"num_shards": 2, "input_file": text, "vocab_file": other}
        self.run_script(**arguments, overwrite=True)
        # Under a name of its own nothing is there before.
        self.run_script(**arguments, output_file=self.path("new"))
        for number in range(2):
            name = f"-0000{number}-of-00002"
            self.assertEqual(
                list(self.features("out" + name)), list(self.features("new" + name))
            )


if __name__ == "__main__":
    tf.test.main()
