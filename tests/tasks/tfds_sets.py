"""Sets of TensorFlow Datasets: the library's with rows of our own; one to prepare."""

from typing import ClassVar

import tensorflow as tf
import tensorflow_datasets as tfds


def mocked(rows):
    """Within it, every split of a set has these rows, cut to the set's features."""

    def as_dataset(self, split, **_):
        features = self.info.features

        def generate():
            for row in rows:
                yield {name: row[name] for name in features}

        return tf.data.Dataset.from_generator(
            generate, output_types=features.dtype, output_shapes=features.shape
        )

    return tfds.testing.mock_data(
        as_dataset_fn=as_dataset, policy=tfds.testing.MockPolicy.USE_CODE
    )


class MadeHere(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A set to prepare: a row's values are made of its number."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = None  # nothing is downloaded, so no checksums are next to the code

    def _info(self):
        features = tfds.features.FeaturesDict(self.FEATURES)
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {
            split: self._generate_examples(size) for split, size in self.SIZES.items()
        }

    def _generate_examples(self, size):
        for number in range(size):
            yield number, self.row(number)


_TEXT = tfds.features.Text()


class TinyRows(MadeHere):
    """Rows of features of all kinds."""

    SIZES: ClassVar = {"train": 300}  # more than a batch
    FEATURES: ClassVar = {
        "id": _TEXT,
        "context": _TEXT,
        "question": _TEXT,
        "answers": tfds.features.Sequence({"text": _TEXT, "answer_start": tf.int32}),
        "words": tfds.features.Sequence(_TEXT),
        "tags": tfds.features.Sequence(_TEXT),
        "numbers": tfds.features.Sequence(tf.int64),
        "kinds": tfds.features.Sequence(
            tfds.features.ClassLabel(names=["even", "odd"])
        ),
        "score": tf.float32,
        "is_odd": tf.bool,
        "picture": tfds.features.Tensor(shape=(4,), dtype=tf.int64),
    }

    @staticmethod
    def row(number):
        """A row's plain values, as the reader should give them."""
        size = number % 7
        return {
            "id": str(number),
            "context": f"Tower é {number % 30} is high.",
            "question": f"Question {number}?",
            "answers": {"text": ["Tower"] * size, "answer_start": [0] * size},
            "words": [f"w{number}"] * size,
            "tags": [f"t{number}"] * size,
            "numbers": [number % 2] * size,
            "kinds": [number % 2] * size,
            "score": number / 10,
            "is_odd": bool(number % 2),
            "picture": [1, 2, 3, number],
        }
