"""Sets of TensorFlow Datasets with rows of a test's own, and without files."""

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
